"""Sections of the configuration for judges, and a judge model whose replies are written down."""

from dataclasses import dataclass, field
from typing import Any

from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.types import Domain, Exchange, Problem, Question, Reference, Verdict

TRUE = "<analysis>a</analysis><true_false>True</true_false>"
FALSE = "<analysis>a</analysis><true_false>False</true_false>"

HYBRID = JudgeConfig(provider="openai", structured=False, extract=False)
ALONE = HYBRID.model_copy(update={"mode": "llm"})


def asked(**changed: Any) -> JudgeConfig:
    """``HYBRID`` with some settings changed."""
    return HYBRID.model_copy(update=changed)


def problem(*answers: str, domain: Domain = "math", dataset: str = "", unanswerable: bool = False) -> Problem:
    question = Question("p", "How many?", domain, dataset=dataset)
    return Problem(question, Reference(answers, unanswerable=unanswerable))


@dataclass
class Always:
    """A judge with one verdict on everything."""

    correct: bool | None

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        return Verdict(self.correct, "llm", "no word")


@dataclass
class ScriptedModel:
    """Replies from a list: a text, a (text, finish_reason) pair or an error. One text is the reply to everything."""

    replies: list[Any] | str
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def chat(self, prompt: str, **request: Any) -> Exchange:
        self.asked.append({"prompt": prompt, "system": None, "temperature": None, "max_tokens": None, **request})
        reply = self.replies if isinstance(self.replies, str) else self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        text, finish = reply if isinstance(reply, tuple) else (reply, "stop")
        return Exchange(prompt, text, finish, 1, 1, 0.0, 0.0)
