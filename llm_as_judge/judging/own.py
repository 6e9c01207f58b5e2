"""The user's own verdict: a function, a rubric, or the order within a group, which say how right answers are.

    def is_right(completions, ground_truth, **kwargs) -> list[bool | float | None]:
        return [truth in answer for answer, truth in zip(completions, ground_truth)]

A function (``judge.function``) has TRL's reward signature: ``completions`` are the answers that workflows returned,
``workflows`` their code; ``_columns`` has the other arguments. One call sees the answers of one group. A number is the
score, right from ``judge.right_at`` on; with None, an exception or a time-out the answer is left open. In evaluations
the benchmark's own tests or usual scorer decide where there are any.
"""

from collections.abc import Sequence
from typing import Any

from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.judging.grading import Answers, Ranking, Rubric
from llm_as_judge.judging.judge import Judge
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.rewards.functions import Failed, OwnFunction, question_columns
from llm_as_judge.types import Execution, Problem, Verdict

#: Stands for the verdict on an answer that is judged with its group (``rl.rollout``).
LATER = Verdict(None, "none", "not yet judged: it waits for its group")


class Function:
    """Asks the user's function."""

    def __init__(self, config: JudgeConfig) -> None:
        assert config.function is not None
        columns = (*question_columns(()), "completions", "workflows")
        self._function = OwnFunction("judge.function", config.function, columns, config.timeout_s, (0.0, 1.0))
        self._right_at = config.right_at

    async def verdicts(self, problem: Problem, answers: Answers, cut_off: bool = False) -> list[Verdict]:
        return [self._verdict(value) for value in await self._function.values(_columns(problem, answers))]

    async def try_out(self, problem: Problem, workflow: str) -> None:
        await self._function.try_out(_columns(problem, [(problem.reference.first or "", workflow)] * 2))

    def _verdict(self, value: float | Failed | None) -> Verdict:
        name = self._function.name
        if value is None or isinstance(value, Failed):
            return Verdict(None, "function", f"{name} gave None" if value is None else value.reason)
        return Verdict(value >= self._right_at, "function", f"{name} gave {value:g}", score=value)


class OwnJudge:
    """What the configuration names decides, or ``official`` where a problem has tests or a usual scorer.

    ``together``: training asks for the verdicts of whole groups; a rubric judges each answer as soon as it is there.
    ``llm`` is not asked before there are answers. Raises ``ConfigError`` for a function or rubric that cannot be used.
    """

    def __init__(
        self, config: JudgeConfig, official: Judge | None = None, llm: ChatModel | None = None, together: bool = False
    ) -> None:
        kind = Ranking if config.relative else Rubric
        self.grader = Function(config) if config.function else kind(config, llm, together)
        self._official, self.together = official, not config.rubric and together

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        """Judge an answer alone, as ``Judge`` does."""
        return (await self.verdicts(problem, [(answer, "")], cut_off))[0]

    async def verdicts(
        self, problem: Problem, answers: Sequence[tuple[str | None, str]], cut_off: bool = False
    ) -> list[Verdict]:
        """Judge answers to one problem, each with its workflow's code; None is wrong, and a blank one too
        unless a function decides.

        Raises ``ConfigError`` if the function returns anything but a value for each answer.
        """
        if self._official is not None and not self.decides(problem):
            return [await self._official.verdict(problem, answer, cut_off) for answer, _ in answers]
        blank = isinstance(self.grader, Function)
        given = [(said, code) for said, code in answers if said is not None and (blank or said.strip())]
        found = iter(await self.grader.verdicts(problem, given, cut_off))
        return [next(found) if one in given else Verdict(False, "none", "no answer given") for one in answers]

    def decides(self, problem: Problem) -> bool:
        return self._official is None or not self._official.scores(problem)

    async def try_out(self, problem: Problem, workflow: str) -> None:
        """Ask a function about the reference twice. Raises ``ConfigError`` before a run if it cannot be used."""
        if isinstance(self.grader, Function):
            await self.grader.try_out(problem, workflow)


AnyJudge = Judge | OwnJudge


async def verdict_of(judge: AnyJudge, problem: Problem, execution: Execution, workflow: str) -> Verdict:
    """Judge a finished workflow; ``LATER`` if it is judged with its group."""
    if not isinstance(judge, OwnJudge):
        return await judge.verdict(problem, execution.answer, execution.cut_off)
    if judge.together:
        return LATER
    return (await judge.verdicts(problem, [(execution.answer, workflow)], execution.cut_off))[0]


def _columns(problem: Problem, answers: Answers) -> dict[str, list[Any]]:
    """Build all arguments."""
    shared = question_columns([problem] * len(answers))
    return {**shared, "completions": [answer for answer, _ in answers], "workflows": [code for _, code in answers]}
