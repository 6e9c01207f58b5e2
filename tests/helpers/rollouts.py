"""Hand-made rollouts, for tests of what is computed from them."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from llm_as_judge import types
from llm_as_judge.answers.metrics import scores
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.errors import ProviderError
from llm_as_judge.types import (
    Completion,
    Domain,
    Execution,
    Group,
    Outcome,
    Problem,
    Question,
    Reference,
    Reward,
    Rollout,
    Verdict,
)
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shapes import SHAPES, workflow


def problem(id: str, domain: Domain, dataset: str = "", reference: Reference | None = None) -> Problem:
    reference = Reference(answers=(f"answer {id}",)) if reference is None else reference
    return Problem(Question(id, f"Question {id}?", domain, dataset=dataset), reference)


def rollout(
    of: Problem,
    correct: bool | None,
    *,
    plan: str = "direct",
    tokens: int = 10,
    outcome: Outcome | None = None,
    text: str | None = None,
    answer: str = "an answer",
) -> Rollout:
    """A rollout of ``plan`` with ``tokens`` executor tokens; unscored ones are faults unless ``outcome`` is given."""
    call = types.OperatorCall("Custom", {}, {}, (types.Exchange("", "", "stop", tokens - 3, 3, 0.0, 0.1),))
    outcome = outcome or ("fault" if correct is None else "finished")
    source = workflow(SHAPES[plan], of.question.domain) if text is None else text
    metric = metric_of(of.question)
    given = answer if outcome == "finished" else None
    found = {} if correct is None else scores(metric, given, of.question, of.reference)
    return Rollout(
        of, Completion(source, (), (), (), "stop"), source,
        Execution(outcome, answer if outcome == "finished" else None, (call,), shape=lint(source).shape),
        Verdict(correct, "rules", reason="" if correct is not None else "the provider was down", scores=found),
        Reward(None if correct is None else float(correct)),
    )  # fmt: skip


def alone(rollouts: Iterable[Rollout]) -> list[Group]:
    """Each rollout as the only one of its problem."""
    return [Group(rollout.problem, (rollout,)) for rollout in rollouts]


@dataclass
class Bench:
    """Runner, judge and reward in one: ``answer`` makes answers of workflows, and the references decide."""

    answer: Callable[[str, Question], str]
    down: Collection[str] = ()  # problems at which the provider does not answer
    runs: list[tuple[str, str]] = field(default_factory=list)  # workflow and problem

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        assert type(question) is Question, "the reference is the judge's alone"
        self.runs.append((source, question.id))
        if question.id in self.down:
            raise ProviderError("no reply")
        return Execution("finished", self.answer(source, question))

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        return Verdict(answer in problem.reference.answers, "rules")

    def __call__(self, *parts: Any) -> Reward:
        return Reward(1.0)

    def parts(self) -> Any:
        from llm_as_judge.rl.rollout import RolloutParts

        return RolloutParts(self, self, self)
