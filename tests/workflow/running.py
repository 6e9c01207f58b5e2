"""A scripted executor for tests that run workflows."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from helpers.workflows import SQUARE

from llm_as_judge.types import Exchange, Execution

Wait = Callable[[Coroutine[Any, Any, Any]], Any]
Run = Callable[..., Execution]

TAGS = {"answer": "42", "review_result": "True", "feedback": "right", "solution": "42", "solution_letter": "A"}


class Script:
    """Gives the replies in turn; after them 42, or a right program, in the form that the operator reads. ``by`` makes
    the replies from the prompts instead; ``error`` is raised.
    """

    def __init__(
        self, *replies: str, by: Callable[[str], str] | None = None, error: Exception | None = None, **fields: Any
    ) -> None:
        self.prompts: list[str] = []
        self.replies, self.by, self.error, self.fields = list(replies), by, error, fields

    async def chat(self, prompt: str, **options: Any) -> Exchange:
        self.prompts.append(prompt)
        if self.error:
            raise self.error
        if self.by:
            text = self.by(prompt)
        elif self.replies:
            text = self.replies.pop(0)
        elif "solve()" in prompt:
            text = "```python\ndef solve():\n    return 6 * 7\n```"
        elif "function f" in prompt:
            text = f"```python\n{SQUARE}\n```"
        else:
            text = "".join(f"<{tag}>{value}</{tag}>" for tag, value in TAGS.items())
        return replace(Exchange(prompt, text, "stop", 10, 5, 0.5, 0.0), **self.fields)
