"""A chat endpoint that answers known problems, but only requests for a program; every other reply is wrong.

A policy that learns from it learns to write ``Programmer``.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from helpers.web import Handler, completion, serving
from llm_as_judge.config.schema import Config
from llm_as_judge.types import Problem

#: ``config("name=value", ...)``, a fixture of tests/integrations.
Loads = Callable[..., Config]


@dataclass
class Knowing:
    """``down``: HTTP 500 to every request. ``finish_reason``: of every reply."""

    url: str = ""
    answers: dict[str, str] = field(default_factory=dict)  # by statement
    asked: int = 0
    down: bool = False
    finish_reason: str = "stop"

    def tell(self, *problems: Problem) -> None:
        self.answers |= {problem.question.statement: problem.reference.answers[0] for problem in problems}

    def reply(self, prompt: str, seed: int | None = None) -> str:
        self.asked += 1
        right = next((answer for statement, answer in self.answers.items() if statement in prompt), None)
        if right is not None and "solve()" in prompt:
            return f"```python\ndef solve():\n    return {right!r}\n```"
        return "no idea"


@contextmanager
def knowing(served: Knowing | None = None) -> Iterator[Knowing]:
    """Serve ``served`` (default: one that knows no problem yet)."""
    served = served or Knowing()

    class Replies(Handler):
        def do_POST(self) -> None:
            body = json.loads(self.raw())
            said = served.reply(body["messages"][-1]["content"], body.get("seed"))
            self.send(500 if served.down else 200, completion(said, served.finish_reason))

    with serving(Replies) as address:
        served.url = f"{address}/v1"
        yield served
