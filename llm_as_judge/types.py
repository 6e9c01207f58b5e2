"""The nouns that cross borders between parts, as frozen dataclasses.

Standard library only; imports nothing from the package. No behaviour beyond derived values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Domain = Literal["math", "code", "qa"]
DOMAINS: tuple[Domain, ...] = ("math", "code", "qa")

#: How a workflow run ended. Only ``fault`` is ours and stays unscored; the others are the policy's doing.
Outcome = Literal["finished", "invalid", "raised", "timeout", "memory", "output_limit", "budget", "fault"]
Tier = Literal["tests", "rules", "llm", "none"]


@dataclass(frozen=True, slots=True)
class Question:
    """Everything policy and workflow may see of a problem."""

    id: str
    text: str
    domain: Domain
    context: str = ""
    entry_point: str | None = None
    public_tests: tuple[str, ...] = ()  # each one assert statement calling ``entry_point``
    dataset: str = ""

    @property
    def statement(self) -> str:
        """The string a workflow receives as ``problem``."""
        if self.context:
            return f"Context: {self.context}\nQuestion: {self.text}"
        return self.text


@dataclass(frozen=True, slots=True)
class Reference:
    """What only the judge sees."""

    answers: tuple[str, ...] = ()  # any of them is right; () with ``tests`` set for code
    tests: str = ""  # hidden tests: ``def check(candidate)`` or plain asserts
    prelude: str = ""  # code put before the solution (imports, helpers of the prompt)
    unanswerable: bool = False  # SQuAD2: the right answer is that there is none


@dataclass(frozen=True, slots=True)
class Problem:
    question: Question
    reference: Reference


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the policy is asked, as a chat; ``turns`` are earlier requests with their replies."""

    system: str  # shared by all problems of a step
    user: str  # the problem's own
    turns: tuple[tuple[str, str], ...] = ()
    prefill: str = ""  # how the reply begins; the policy goes on from there


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled text with the exact ids it was sampled as; text is never tokenised again."""

    text: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]  # end-of-sequence token included when it was sampled
    logprobs: tuple[float, ...]  # under the sampling distribution, one per token id
    finish_reason: Literal["stop", "length"]
    policy_version: int = 0
    prefill: str = ""  # of the reply, in the prompt: the text goes on from it
    verbatim: bool = False  # nobody sampled it: the text is the workflow itself


@dataclass(frozen=True, slots=True)
class Finding:
    """Something lint found in a workflow's text; a fatal one keeps it from being run."""

    code: str
    message: str
    line: int
    fatal: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """One prompt to the executor or the judge and its reply, as the host metered them."""

    prompt: str
    reply: str
    finish_reason: str  # "length": the reply was cut off
    prompt_tokens: int
    completion_tokens: int
    cost: float  # in the currency of the price table
    seconds: float


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator call of a workflow, with what it asked the executor."""

    name: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any]  # empty where the call failed
    exchanges: tuple[Exchange, ...] = ()
    seconds: float = 0.0
    error: str = ""  # why there is no result, or what the operator says of it

    @property
    def parse_ok(self) -> bool:
        return bool(self.result.get("parse_ok", False))

    @property
    def tokens(self) -> int:
        """Executor tokens, prompts and replies."""
        return sum(e.prompt_tokens + e.completion_tokens for e in self.exchanges)

    @property
    def cost(self) -> float:
        return sum(e.cost for e in self.exchanges)


@dataclass(frozen=True, slots=True)
class Execution:
    """What one workflow run came to."""

    outcome: Outcome
    answer: str | None
    calls: tuple[OperatorCall, ...] = ()
    error: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()  # of lint, before the run

    @property
    def cut_off(self) -> bool:
        """The answer is the end of an executor's reply that was cut off at its token limit, and of no whole one."""
        answer = (self.answer or "").strip()
        ends = [
            e.finish_reason == "length" for c in self.calls for e in c.exchanges if e.reply.rstrip().endswith(answer)
        ]
        return bool(answer) and bool(ends) and all(ends)

    @property
    def tokens(self) -> int:
        """Executor tokens, prompts and replies."""
        return sum(c.tokens for c in self.calls)

    @property
    def cost(self) -> float:
        return sum(c.cost for c in self.calls)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``correct`` is None when nobody could tell: the rollout stays unscored. ``tier`` is who decided or, of an
    unscored one, who could not: ``llm`` the judge abstained or could not be had, ``tests`` the sandbox failed, ``none``
    there was nothing to judge.
    """

    correct: bool | None
    tier: Tier
    reason: str = ""
    score: float | None = None  # partial credit of the official metric (F1), where there is one
    confirmed: bool | None = None  # what another method said of a True of the LLM judge; None: not checked
    exchanges: tuple[Exchange, ...] = ()  # with the LLM judge, and the second one

    @property
    def abstained(self) -> bool:
        """There was an answer, the rules did not accept it and the judge did not say: right or wrong, nobody knows."""
        return self.correct is None and self.tier == "llm"


@dataclass(frozen=True, slots=True)
class Reward:
    """Weighted total and every term on its own scale; ``total`` is None for an unscored rollout."""

    total: float | None
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    problem: Problem
    completion: Completion
    workflow: str  # the code in the completion, as it was run
    execution: Execution
    verdict: Verdict
    reward: Reward

    @property
    def valid(self) -> bool:
        """The text was a workflow that ran to an answer (right or wrong)."""
        return self.execution.outcome == "finished"


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one problem in one step."""

    problem: Problem
    rollouts: Sequence[Rollout]
