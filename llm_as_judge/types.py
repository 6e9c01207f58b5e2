"""Core data types, as frozen dataclasses. Standard library only; no behaviour beyond derived values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

#: The built-in domains. Each names a kind of answer: a number or formula, the source of a function, text.
Kind = Literal["math", "code", "qa"]
DOMAINS: tuple[Kind, ...] = ("math", "code", "qa")
#: Name of a built-in domain or of one of ``data.domains``.
Domain = str
#: What the answers of a domain of ``data.domains`` are like: those of a built-in one, or the letter of a choice.
Like = Literal[Kind, "choice"]


def kind_of(domain: Domain, like: Like | None) -> Kind:
    """Return the built-in domain whose rules, limits and workflows apply."""
    return next((kind for kind in DOMAINS if kind == (like or domain)), "qa")


def in_order(names: Iterable[Domain]) -> list[Domain]:
    """Order the domains of a table, each once: the built-in ones first, then the others by name."""
    found = set(names)
    return [*(domain for domain in DOMAINS if domain in found), *sorted(found.difference(DOMAINS))]


#: How a workflow run ended. ``fault`` is a failure of ours and stays unscored; the policy is to blame for the others.
Outcome = Literal["finished", "invalid", "raised", "timeout", "memory", "output_limit", "budget", "fault"]
Tier = Literal["tests", "metric", "rules", "llm", "function", "rubric", "relative", "none"]


@dataclass(frozen=True, slots=True)
class Question:
    """The part of a problem that policy and workflow may see."""

    id: str
    text: str
    domain: Domain
    context: str = ""
    entry_point: str | None = None
    public_tests: tuple[str, ...] = ()  # assert statements that call ``entry_point``
    dataset: str = ""
    like: Like | None = None  # None: ``domain`` is built-in
    prelude: str = ""  # code that runs before a solution in all tests (imports, helpers of the prompt)

    @property
    def kind(self) -> Kind:
        return kind_of(self.domain, self.like)

    @property
    def statement(self) -> str:
        """The string a workflow receives as ``problem``."""
        if self.context:
            return f"Context: {self.context}\nQuestion: {self.text}"
        return self.text


@dataclass(frozen=True, slots=True)
class Reference:
    """The part of a problem that only the judge sees."""

    answers: tuple[str, ...] = ()  # any of them is right; () for code, which has ``tests``
    tests: str = ""  # hidden tests: ``def check(candidate)`` or plain asserts
    unanswerable: bool = False  # SQuAD2: the right answer is that the text has none

    @property
    def first(self) -> str | None:
        """The hidden tests or the first answer; None for an unanswerable question and where nothing is given."""
        return self.tests or next(iter(self.answers), None)

    @property
    def shown(self) -> tuple[str, ...]:
        """What the log and its viewers show: the answers; without any, the hidden tests."""
        tests = (self.tests,) if self.tests else ()
        return self.answers or tests or (("no answer",) if self.unanswerable else ())

    @property
    def given(self) -> bool:
        """Whether there is anything to compare an answer with."""
        return self.unanswerable or self.first is not None


@dataclass(frozen=True, slots=True)
class Problem:
    question: Question
    reference: Reference
    place: str = field(default="", compare=False, repr=False)  # file and line; "" if not read from a file
    benchmark: str = field(default="", compare=False, repr=False)  # name of its row in results; "": its dataset


@dataclass(frozen=True, slots=True)
class Prompt:
    """The policy's prompt as a chat; ``turns`` are earlier requests with their replies."""

    system: str  # shared by all problems of a step
    user: str  # the problem's own
    turns: tuple[tuple[str, str], ...] = ()
    prefill: str = ""  # given beginning of the reply, which the policy continues


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled text with its token ids as sampled; text is never tokenised again.

    After a repair turn, ids, log-probs and mask are those of all turns, user turns included; the text and how it ended
    are those of the last one.
    """

    text: str
    prompt_ids: tuple[int, ...]  # of the first turn
    token_ids: tuple[int, ...]  # end-of-sequence token included when it was sampled
    logprobs: tuple[float, ...]  # under the sampling distribution, one per token id; 0 for those that were given
    finish_reason: Literal["stop", "length"]
    policy_version: int = 0
    prefill: str = ""  # beginning of the reply in the prompt, which the text continues
    verbatim: bool = False  # not sampled: the text is the workflow itself
    mask: tuple[bool, ...] = ()  # of each token id, whether it was sampled; (): all were
    dropped: int = 0  # sampled tokens whose ids are not kept, in a log

    @property
    def sampled(self) -> tuple[bool, ...]:
        """Of each token id, whether the policy sampled it; user turns were given."""
        return self.mask or (True,) * len(self.token_ids)

    @property
    def written(self) -> int:
        """Number of sampled tokens."""
        return self.dropped + sum(self.sampled)


#: Called with a completion's problem, its index in the group, and itself.
OnCompletion = Callable[[int, int, Completion], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that lint found in a workflow; with a fatal one the workflow is not run."""

    code: str
    message: str
    line: int
    fatal: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """One prompt to the executor or the judge and its reply, as metered by the host."""

    prompt: str
    reply: str
    finish_reason: str  # "length": the reply was cut off
    prompt_tokens: int
    completion_tokens: int
    cost: float  # in the currency of the price table
    seconds: float

    @property
    def cut_off(self) -> bool:
        """Whether the reply reached its length limit, so that an unclosed part of it is incomplete."""
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator call of a workflow, with its exchanges with the executor."""

    name: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any]  # empty where the call failed
    exchanges: tuple[Exchange, ...] = ()
    seconds: float = 0.0
    error: str = ""  # why there is no result, or a remark of the operator
    executor: str = ""  # name in ``executors``; "": the default
    weight: float = 1.0  # what its tokens cost, relative to the same tokens of the default

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

    @property
    def bare(self) -> "OperatorCall":
        """The call without texts, and with one exchange that has the sums of all."""
        read, seconds = sum(e.prompt_tokens for e in self.exchanges), sum(e.seconds for e in self.exchanges)
        whole = Exchange("", "", "", read, self.tokens - read, self.cost, seconds)
        return replace(self, arguments={}, result={}, exchanges=(whole,), error="")


@dataclass(frozen=True, slots=True)
class Crash:
    """An exception of a user's own operator that does not refuse its arguments."""

    operator: str
    place: str  # type of the exception, file and line
    traceback: str


@dataclass(frozen=True, slots=True)
class Execution:
    """Result of one workflow run; the sandbox returns it without calls and lint's facts. Long texts are ``cut``."""

    outcome: Outcome
    answer: str | None
    calls: tuple[OperatorCall, ...] = ()
    error: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    findings: tuple[Finding, ...] = ()  # of lint, before the run
    shape: str = "invalid"  # ``workflow.structure``; also of a text that was not read
    digest: str = ""  # of the text without comments and layout
    crashes: tuple[Crash, ...] = ()  # of a user's own operators

    @property
    def cut_off(self) -> bool:
        """Whether the answer is the end of a reply cut off at its token limit, and not of a complete reply."""
        answer = (self.answer or "").strip()
        replies = [e for c in self.calls for e in c.exchanges if e.reply.rstrip().endswith(answer)]
        return bool(answer) and bool(replies) and all(e.cut_off for e in replies)

    @property
    def tokens(self) -> int:
        """Executor tokens, prompts and replies."""
        return sum(c.tokens for c in self.calls)

    @property
    def cost(self) -> float:
        return sum(c.cost for c in self.calls)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's decision; with ``correct`` None the rollout stays unscored.

    ``tier`` decided or, if unscored, failed to: ``llm``, ``rubric``, ``relative`` (the model abstained or was not
    available), ``function`` (it gave no value), ``tests`` (the sandbox failed), ``none`` (nothing to judge, a fault).
    """

    correct: bool | None
    tier: Tier
    reason: str = ""
    exchanges: tuple[Exchange, ...] = ()  # with the LLM judge and the second judge
    scores: Mapping[str, float] = field(default_factory=dict)  # of the benchmark's usual scorer
    score: float | None = None  # in [0, 1], of a judge that gives more than right and wrong

    @property
    def worth(self) -> float:
        """The score; without one, 1 if right and 0 if wrong."""
        return float(self.correct is True) if self.score is None else self.score

    @property
    def abstained(self) -> bool:
        """Whether the judge left the answer open: no verdict, no reply, or two judges that disagree."""
        return self.correct is None and self.tier in ("llm", "function", "rubric", "relative")


@dataclass(frozen=True, slots=True)
class Reward:
    """Weighted total, None if unscored, and every term on its own scale."""

    total: float | None
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A workflow that was run, or refused, and what the policy was told about it before it wrote another."""

    workflow: str
    execution: Execution
    told: str = ""
    correct: bool | None = None  # in an evaluation, whether its answer was right; None: not judged


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode; ``completion``, ``execution`` and ``verdict`` are of its last attempt."""

    problem: Problem
    completion: Completion
    workflow: str  # the code of the completion
    execution: Execution
    verdict: Verdict
    reward: Reward
    attempts: tuple[Attempt, ...] = ()  # the earlier ones

    @property
    def executions(self) -> tuple[Execution, ...]:
        """The runs of all attempts in their order."""
        return (*(attempt.execution for attempt in self.attempts), self.execution)

    @property
    def calls(self) -> tuple[OperatorCall, ...]:
        """The calls of all attempts."""
        return tuple(call for run in self.executions for call in run.calls)

    @property
    def tokens(self) -> int:
        """Executor tokens of all attempts, as the other figures."""
        return sum(call.tokens for call in self.calls)

    @property
    def weighed_tokens(self) -> float:
        """Tokens of the default executor for the same cost."""
        return sum(call.tokens * call.weight for call in self.calls)

    @property
    def cost(self) -> float:
        return sum(call.cost for call in self.calls)

    @property
    def seconds(self) -> float:
        return sum(run.seconds for run in self.executions)

    @property
    def first(self) -> "Rollout":
        """The rollout as if the first attempt had been the only one."""
        if not self.attempts:
            return self
        first, verdict = self.attempts[0], replace(self.verdict, correct=self.attempts[0].correct)
        return replace(self, workflow=first.workflow, execution=first.execution, verdict=verdict, attempts=())

    @property
    def trouble(self) -> str:
        """Why the workflow failed or could not be scored."""
        return self.verdict.reason or self.execution.error

    @property
    def valid(self) -> bool:
        """Whether the workflow ran to an answer (right or wrong)."""
        return self.execution.outcome == "finished"


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one problem in one step."""

    problem: Problem
    rollouts: Sequence[Rollout]

    @property
    def verdicts(self) -> list[Verdict]:
        return [rollout.verdict for rollout in self.rollouts]
