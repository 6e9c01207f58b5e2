"""What is checked before the first step of anything that runs workflows: the problems, and the user's own functions."""

from collections.abc import Iterable

from llm_as_judge.data.check import refuse_vacuous
from llm_as_judge.data.reading import Faults
from llm_as_judge.errors import DataError
from llm_as_judge.judging.own import AnyJudge, OwnJudge
from llm_as_judge.rewards.custom import CustomRewards
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Completion, Execution, Problem, Reward, Rollout, Verdict
from llm_as_judge.workflow.shapes import SHAPES, workflow


async def check_before(
    problems: Iterable[Problem], sandbox: Sandbox, *judges: AnyJudge, extra: CustomRewards | None = None
) -> None:
    """Raises ``DataError`` with file and line for hidden tests that pass anything and for problems that one of
    ``judges`` has nothing to judge by; ``ConfigError`` for a function of the user's own that cannot be used.
    """
    problems = list(problems)
    await refuse_vacuous(problems, sandbox)
    for judge in judges:
        if not isinstance(judge, OwnJudge):
            _refuse_unanswered(problems)
        elif first := next(filter(judge.decides, problems), None):
            await judge.try_out(first, _some_workflow(first))
    if extra and problems:
        problem, text = problems[0], _some_workflow(problems[0])
        completion, ran = Completion(text, (), (), (), "stop"), Execution("finished", problem.reference.first or "")
        await extra.try_out(Rollout(problem, completion, text, ran, Verdict(True, "none"), Reward(0.0)))


def _refuse_unanswered(problems: Iterable[Problem]) -> None:
    faults = Faults()
    for problem in problems:
        if not problem.reference.given:
            faults.add(problem.place or problem.question.id, "neither an answer nor tests")
    if faults.count:
        cure = (
            "give answers (data.fields names their column), or say what is right with judge.function=file.py:function"
        )
        raise DataError(f"{faults}\n{faults.count:,} problems cannot be judged; {cure}")


def _some_workflow(problem: Problem) -> str:
    return workflow(SHAPES["direct"], problem.question.domain)
