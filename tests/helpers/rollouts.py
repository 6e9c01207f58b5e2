"""Hand-made rollouts, for tests of what is computed from them."""

from llm_as_judge.events import RolloutEvent
from llm_as_judge.types import (
    Completion,
    Domain,
    Exchange,
    Execution,
    OperatorCall,
    Outcome,
    Problem,
    Question,
    Reference,
    Reward,
    Rollout,
    Verdict,
)
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
    call = OperatorCall("Custom", {}, {}, (Exchange("", "", "stop", tokens - 3, 3, 0.0, 0.1),))
    outcome = outcome or ("fault" if correct is None else "finished")
    source = workflow(SHAPES[plan], of.question.domain) if text is None else text
    return Rollout(
        of,
        Completion(source, (), (), (), "stop"),
        source,
        Execution(outcome, answer if outcome == "finished" else None, (call,)),
        Verdict(correct, "rules", reason="" if correct is not None else "the provider was down"),
        Reward(None if correct is None else float(correct)),
    )


def record_of(index: int, sample: int, rollout: Rollout) -> RolloutEvent:
    """The record that an evaluation keeps of a rollout."""
    from llm_as_judge.evaluation import evaluate

    return evaluate.record_of(rollout, index, sample)
