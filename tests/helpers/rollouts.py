"""Hand-made rollouts, for tests of what is computed from them."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from llm_as_judge import types
from llm_as_judge.answers.metrics import scores
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.errors import ProviderError
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shapes import SHAPES, workflow


def problem(
    id: str, domain: types.Domain, dataset: str = "", reference: types.Reference | None = None
) -> types.Problem:
    reference = types.Reference(answers=(f"answer {id}",)) if reference is None else reference
    return types.Problem(types.Question(id, f"Question {id}?", domain, dataset=dataset), reference)


def rollout(
    of: types.Problem,
    correct: bool | None,
    *,
    shape: str = "direct",
    tokens: int = 10,
    outcome: types.Outcome | None = None,
    text: str | None = None,
    answer: str = "an answer",
) -> types.Rollout:
    """A rollout of ``shape`` with ``tokens`` executor tokens; unscored ones are faults unless ``outcome`` is given."""
    call = types.OperatorCall("Custom", {}, {}, (types.Exchange("", "", "stop", tokens - 3, 3, 0.0, 0.1),))
    outcome = outcome or ("fault" if correct is None else "finished")
    source = workflow(SHAPES[shape], of.question.domain) if text is None else text
    metric = metric_of(of.question)
    given = answer if outcome == "finished" else None
    found = {} if correct is None else scores(metric, given, of.question, of.reference)
    return types.Rollout(
        of, types.Completion(source, (), (), (), "stop"), source,
        types.Execution(outcome, answer if outcome == "finished" else None, (call,), shape=_shape(source)),
        types.Verdict(correct, "rules", reason="" if correct is not None else "the provider was down", scores=found),
        types.Reward(None if correct is None else float(correct)),
    )  # fmt: skip


@cache
def _shape(source: str) -> str:
    return lint(source).shape


def alone(rollouts: Iterable[types.Rollout]) -> list[types.Group]:
    """Each rollout as the only one of its problem."""
    return [types.Group(rollout.problem, (rollout,)) for rollout in rollouts]


@dataclass
class Bench:
    """Runner, judge and reward in one: ``answer`` makes answers of workflows, and the references decide."""

    answer: Callable[[str, types.Question], str]
    down: Collection[str] = ()  # problems at which the provider does not answer
    runs: list[tuple[str, str]] = field(default_factory=list)  # workflow and problem

    async def run(self, source: str, question: types.Question, seed: int | None = None) -> types.Execution:
        assert type(question) is types.Question, "the reference is the judge's alone"
        self.runs.append((source, question.id))
        if question.id in self.down:
            raise ProviderError("no reply")
        return types.Execution("finished", self.answer(source, question))

    async def verdict(self, problem: types.Problem, answer: str | None, cut_off: bool = False) -> types.Verdict:
        return types.Verdict(answer in problem.reference.answers, "rules")

    def __call__(self, *parts: Any) -> types.Reward:
        return types.Reward(1.0)

    def parts(self) -> Any:
        from llm_as_judge.rl.rollout import RolloutParts

        return RolloutParts(self, self, self)
