"""A chat endpoint that grades and ranks as an honest, a biased or a broken judge would, and answers as an executor."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from helpers.web import Handler, completion, serving


@dataclass
class Grading:
    """``worth`` says how good a candidate is, from 0 to 1. ``fault`` is how the server fails, "" for not at all:
    ``schema`` (refuses one), ``cut``, ``mute``, ``outside`` (a score out of its scale), ``down`` or ``filter`` (refuses
    prompts with the word "forbidden"); ``first``: ranks the first candidate best.
    """

    url: str = ""
    worth: Callable[[str], float] = lambda said: min(1.0, said.count("good") / 4)
    fault: str = ""
    says: str = "good good"  # as an executor
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def graded(self) -> list[str]:
        """The prompts to the judge."""
        return [prompt for body in self.asked if "Candidate" in (prompt := body["messages"][-1]["content"])]

    def reply(self, prompt: str) -> str:
        said = [text for _, text in re.findall(r"^Candidate( \d+)?: (.*)$", prompt, re.MULTILINE)]
        if not said:
            return self.says
        if self.fault == "mute":
            return "I would rather not."
        if "best_to_worst" in prompt:
            order = sorted(range(len(said)), key=lambda i: 0.0 if self.fault == "first" else -self.worth(said[i]))
            return json.dumps({"reasons": "r", "best_to_worst": [i + (self.fault != "outside") for i in order]})
        scales = re.findall(r"^(\w+_score), from (\S+) to (\S+):", prompt, re.MULTILINE)
        worth = 2.0 if self.fault == "outside" else self.worth(said[0])
        scores = {key: float(low) + worth * (float(high) - float(low)) for key, low, high in scales}
        return f"Here it is: {json.dumps({'reasons': 'r', **scores})}"


@contextmanager
def grading(**settings: Any) -> Iterator[Grading]:
    served = Grading(**settings)

    class Replies(Handler):
        def do_POST(self) -> None:
            served.asked.append(body := json.loads(self.raw()))
            prompt = body["messages"][-1]["content"]
            if served.fault == "down" and "Candidate" in prompt:
                return self.send(500, "down")
            if served.fault == "filter" and "forbidden" in prompt:
                return self.send(400, {"error": {"code": "content_filter", "message": "content management policy"}})
            if served.fault == "schema" and "response_format" in body:
                return self.send(400, "response_format is not supported")
            self.send(200, completion(served.reply(prompt), "length" if served.fault == "cut" else "stop"))

    with serving(Replies) as address:
        served.url = f"{address}/v1"
        yield served
