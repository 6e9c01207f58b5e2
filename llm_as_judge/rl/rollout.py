"""Running, judging and rewarding workflows: from problems and completions to groups of rollouts.

Every workflow runs as soon as it is written and is judged as soon as it ends, with a concurrency limit. ``conclude``
decides whether a rollout is scored: failures of the policy are, infrastructure faults (``InfrastructureError``) are
not, and get no reward (``rewards.terms``) and no gradient (``rl.credit``). The policy's text is extracted from its
reply, never repaired.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from llm_as_judge.answers.code import first_block
from llm_as_judge.errors import ConfigError, InfrastructureError
from llm_as_judge.judging.grading import Ranking
from llm_as_judge.judging.own import LATER, AnyJudge, OwnJudge, verdict_of
from llm_as_judge.policy.chat import Encoder, joined
from llm_as_judge.rewards.custom import CustomRewards
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Attempt, Completion, Execution, Group, OnCompletion, Problem, Reward, Rollout, Verdict
from llm_as_judge.workflow.run import WorkflowRunner

if TYPE_CHECKING:
    from llm_as_judge.policy.sampling import Sampling

logger = logging.getLogger(__name__)

_FIRST_WAIT_S = 5.0
#: Equal failures of an operator in a batch, below which they may be the fault of its arguments.
_LEAST_CRASHES = 3

#: ``(index of the problem, index in the group, ...)``
Place = tuple[int, int]
#: The turns so far, and the attempts before the last one.
Episode = tuple[Completion, tuple[Attempt, ...]]
OnRollout = Callable[[int, int, Rollout], None]
#: Samples another turn of episodes after what each is told.
Again = Callable[[Sequence[Completion], Sequence[str]], Awaitable[list[Completion]]]
#: Samples one completion of each prompt.
Generate = Callable[[Sequence[Sequence[int]]], list[list[Completion]]]


class Engine(Protocol):
    """Samples completions with the weights of the last ``sync``.

    ``on_completion`` may be called for every finished completion, in any thread.
    """

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int = 1, *, sampling: "Sampling", max_new_tokens: int = 1024,
        seed: int = 0, on_completion: OnCompletion | None = None,
    ) -> list[list[Completion]]: ...  # fmt: skip

    def sync(self, policy: object, version: int) -> None: ...


@dataclass(frozen=True, slots=True)
class RolloutParts:
    """Everything that turns a workflow's text into a reward.

    ``truncated``: a workflow cut off at the length limit is run, gets the lowest reward without running, or is masked
    (unscored, not trained on). If more than ``max_unscored`` of a batch is unscored, those rollouts run again after
    growing waits of ``patience_s`` seconds in total; ``on_pause`` gets a message before each wait.
    """

    runner: WorkflowRunner  # gets the question, never the reference
    judge: AnyJudge
    reward: Callable[[Rollout], Reward]
    concurrency: int = 32
    truncated: Literal["run", "floor", "mask"] = "run"
    extra: CustomRewards | None = None
    max_unscored: float = 1.0
    patience_s: float = 0.0
    on_pause: Callable[[str], None] = logger.warning
    repairs: int = 0  # times that the policy may rewrite a failed workflow
    judges_attempts: bool = False  # whether an answer is judged that the policy will replace


_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def next_turns(
    policy: Encoder, generate: Generate, completions: Sequence[Completion], told: Sequence[str]
) -> list[Completion]:
    """Add a turn to each of ``completions``: the policy reads its text of ``told``, and ``generate`` samples.

    The prompt of a turn is the ids of the earlier ones, as sampled, and those of a user turn: nothing is decoded and
    tokenised again. An episode is one sequence, of which the policy's own tokens are trained on (``Completion.mask``).
    """
    prompts = [policy.told(completion, text) for completion, text in zip(completions, told, strict=True)]
    return [joined(*parts) for parts in zip(completions, prompts, (turn for (turn,) in generate(prompts)), strict=True)]


def extract_code(text: str, prefill: str = "") -> str:
    """Find the workflow in a completion: its first Python fence, or the whole text without one.

    A leading thinking block is removed. ``prefill`` is the beginning of the reply in the prompt; a fence opened there
    need not be closed. Any other unclosed fence is the policy's mistake and is kept.
    """
    if prefill:
        return first_block(prefill + text).removeprefix("```python\n")
    return first_block(_THINKING.sub("", text, count=1).strip())


async def collect(
    problems: Sequence[Problem], completions: Sequence[Sequence[Completion]], parts: RolloutParts,
    on_rollout: OnRollout = lambda place, member, rollout: None, *, seed: int = 0, again: Again | None = None,
) -> list[Group]:  # fmt: skip
    """Run, judge and reward ``completions[i]`` on ``problems[i]``; groups and rollouts keep their order.

    ``on_rollout`` gets every rollout as soon as it is done. ``again`` samples the repairs of failed attempts, if there
    are to be any.
    """
    collector = Collector(problems, parts, seed, on_rollout, repairs=parts.repairs if again else 0)
    episodes: dict[Place, Episode] = {(i, j): (c, ()) for i, row in enumerate(completions) for j, c in enumerate(row)}
    for key, (completion, _) in episodes.items():
        collector.start(*key, completion)
    while again and (failed := await collector.failed()):
        repaired = await again([episodes[key][0] for key in failed], [one.told for one in failed.values()])
        for (key, attempt), completion in zip(failed.items(), repaired, strict=True):
            episodes[key] = completion, (*episodes[key][1], attempt)
            collector.retry(key, *episodes[key])
    return await collector.groups()


@dataclass(eq=False)
class Collector:
    """The rollouts of one batch; each starts when its completion is available.

    The executor's seeds derive from ``seed``, the problem and the index in the group, not from the order of
    completions. With ``common_seeds`` they do not depend on the index: equal requests of a group are sent and paid for
    once, and workflows differ only where their texts do (common random numbers). ``limit`` may be shared with other
    batches, which get places in starting order. An attempt that the policy may repair, at most ``repairs`` times, waits
    in ``failed`` until ``retry`` gets the next one; both come before ``groups``.
    """

    problems: Sequence[Problem]
    parts: RolloutParts
    seed: int = 0
    on_rollout: OnRollout = lambda place, member, rollout: None
    limit: asyncio.Semaphore | None = None
    common_seeds: bool = False
    repairs: int = 0
    _episodes: dict[Place, Episode] = field(default_factory=dict)
    _tasks: dict[Place, asyncio.Task[Rollout | Attempt]] = field(default_factory=dict)
    _completed: dict[Place, Rollout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._limit = self.limit or asyncio.Semaphore(self.parts.concurrency)

    def start(self, place: int, member: int, completion: Completion, attempts: Sequence[Attempt] = ()) -> None:
        """Run, judge and reward a completion of the problem at ``place``, unless it was started before.

        ``attempts`` are the earlier ones of its episode.
        """
        if (place, member) not in self._episodes:
            self.retry((place, member), completion, attempts)

    async def failed(self) -> dict[Place, Attempt]:
        """Wait for all, and return the attempts that the policy may repair, in the order of problems and members."""
        return {key: ended for key, ended in (await self._done()).items() if isinstance(ended, Attempt)}

    def retry(self, key: Place, completion: Completion, attempts: Sequence[Attempt]) -> None:
        """Run the next attempt of an episode."""
        self._episodes[key] = completion, tuple(attempts)
        self._run(*key, self.repairs)

    async def groups(self) -> list[Group]:
        """Wait for all started rollouts, and return them in the order of problems and members.

        Errors other than ``InfrastructureError`` are bugs: they are raised after the remaining tasks were cancelled.
        Raises ``ConfigError`` if most calls of one of the user's operators fail at the same place.
        """
        parts, waits = self.parts, doubling_waits(self.parts.patience_s)
        while True:
            rollouts = {key: ended for key, ended in (await self._done()).items() if isinstance(ended, Rollout)}
            assert len(rollouts) == len(self._tasks), "failed attempts are repaired first"
            unscored = [key for key, rollout in rollouts.items() if rollout.verdict.correct is None]
            if not unscored or (share := len(unscored) / len(rollouts)) <= parts.max_unscored:
                break
            [(most, _)] = Counter(rollouts[key].trouble for key in unscored).most_common(1)
            cause = f"{share:.0%} of the rollouts could not be scored, most often because: {most}"
            if (wait := next(waits, None)) is None:
                waited = f"{cause}; waited {parts.patience_s:.0f} s"
                raise InfrastructureError(f"{waited}. Fix the cause and continue with --resume")
            parts.on_pause(f"paused: {cause}; retrying those in {wait:.0f} s")
            await asyncio.sleep(wait)
            for key in unscored:
                self._run(*key, repairs=0)
        _refuse_broken_operators([run for rollout in rollouts.values() for run in rollout.executions])
        members: list[list[Rollout]] = [[] for _ in self.problems]
        for (place, _), rollout in rollouts.items():
            members[place].append(rollout)
        return [Group(problem, tuple(group)) for problem, group in zip(self.problems, members, strict=True)]

    async def aclose(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _done(self) -> dict[Place, Rollout | Attempt]:
        """Tell how all ended; once no repair is to come, with what is done for whole groups."""
        keys = sorted(self._tasks)
        try:
            ended = dict(zip(keys, await asyncio.gather(*(self._tasks[key] for key in keys)), strict=True))
            rollouts = {key: one for key, one in ended.items() if isinstance(one, Rollout)}
            if len(rollouts) < len(ended):
                return ended
            new = {key: one for key, one in rollouts.items() if key not in self._completed}
            self._completed |= await completed(new, self.parts)
            return {key: self._completed[key] for key in keys}
        except BaseException:
            await self.aclose()
            raise

    def _run(self, place: int, member: int, repairs: int) -> None:
        whole = isinstance(judge := self.parts.judge, OwnJudge) and isinstance(judge.grader, Ranking)
        for key in [key for key in self._completed if key == (place, member) or (whole and key[0] == place)]:
            del self._completed[key]  # one more answer changes the ranks of the others
        self._tasks[place, member] = asyncio.ensure_future(self._rollout(place, member, repairs))

    async def _rollout(self, place: int, member: int, repairs: int) -> Rollout | Attempt:
        """Run an attempt; judge it, unless the policy may repair it and has not used up its ``repairs``."""
        problem, parts = self.problems[place], self.parts
        completion, attempts = self._episodes[place, member]
        seed = derived_seed(self.seed, problem.question.id, 0 if self.common_seeds else member)
        async with self._limit:
            last = await run_attempt(problem, completion, parts, seed)
            if len(attempts) < repairs and (failed := await to_repair(last, problem, parts)):
                judged = await conclude(problem, completion, parts, last) if parts.judges_attempts else None
                return replace(failed, correct=judged.verdict.correct) if judged else failed
            rollout = await conclude(problem, completion, parts, last, attempts)
        self.on_rollout(place, member, rollout)
        return rollout


def _refuse_broken_operators(executions: Sequence[Execution]) -> None:
    """Raise ``ConfigError`` if one of the user's operators fails in the same way in more than half of its calls.

    Those failures are scored as the workflow's: a bug in the operator would be trained as the policy's mistake.
    """
    calls = Counter(call.name for execution in executions for call in execution.calls)
    crashes = [crash for execution in executions for crash in execution.crashes]
    for (name, place), count in Counter((crash.operator, crash.place) for crash in crashes).items():
        if count >= _LEAST_CRASHES and 2 * count > calls[name]:
            last = next(crash.traceback for crash in crashes if (crash.operator, crash.place) == (name, place))
            cure = "mend it; to refuse arguments, raise ValueError"
            raise ConfigError(f"operator {name} failed in {count} of {calls[name]} calls ({place}); {cure}\n{last}")


def doubling_waits(patience_s: float) -> Iterator[float]:
    """Yield seconds between tries, doubling, ``patience_s`` in total."""
    waited, wait = 0.0, _FIRST_WAIT_S
    while waited < patience_s:
        wait = min(wait, patience_s - waited)
        yield wait
        waited, wait = waited + wait, 2 * wait


def refuse(problem: Problem, completion: Completion, parts: RolloutParts) -> Attempt | None:
    """Return the attempt if it will not run, because the reply was cut off or lint finds a fatal fault; else None."""
    workflow = _workflow(completion)
    if _cut_off(completion, parts):
        error = f"the reply was cut off after {completion.written} tokens; training.response_max_length sets the limit"
        return Attempt(workflow, Execution("invalid", None, error=error))
    execution = parts.runner.refuse(workflow, problem.question)
    return Attempt(workflow, execution) if execution else None


async def run_attempt(
    problem: Problem, completion: Completion, parts: RolloutParts, seed: int | None = None
) -> Attempt:
    """Extract the workflow of ``completion`` and run it."""
    refused = refuse(problem, completion, parts) if _cut_off(completion, parts) else None
    if refused is not None:
        return refused
    workflow = _workflow(completion)
    try:
        return Attempt(workflow, await parts.runner.run(workflow, problem.question, seed))
    except InfrastructureError as error:
        return Attempt(workflow, Execution("fault", None, error=f"{type(error).__name__}: {error}"))


async def to_repair(attempt: Attempt, problem: Problem, parts: RolloutParts) -> Attempt | None:
    """Return ``attempt`` with what the policy is told about it; None if there is nothing to repair."""
    try:
        told = await parts.runner.feedback(attempt.execution, problem.question)
    except InfrastructureError:
        return None
    return replace(attempt, told=told) if told else None


async def conclude(
    problem: Problem, completion: Completion, parts: RolloutParts, last: Attempt, attempts: tuple[Attempt, ...] = ()
) -> Rollout:
    """Judge and reward an episode after its ``last`` attempt. A fault of executor, sandbox or judge gives the verdict
    None (unscored).
    """
    execution = last.execution
    if _cut_off(completion, parts):
        verdict = Verdict(False, "none", reason="truncated")
    elif execution.outcome == "fault":
        verdict = Verdict(None, "none", reason=execution.error)
    elif execution.outcome != "finished":
        verdict = Verdict(False, "none", reason=execution.outcome)
    else:
        try:
            verdict = await verdict_of(parts.judge, problem, execution, last.workflow)
        except InfrastructureError as error:
            verdict = Verdict(None, "none", reason=f"{type(error).__name__}: {error}")
    return _rewarded(Rollout(problem, completion, last.workflow, execution, verdict, Reward(None), attempts), parts)


def _rewarded(rollout: Rollout, parts: RolloutParts) -> Rollout:
    if _cut_off(rollout.completion, parts) and parts.truncated == "mask":
        return rollout
    return replace(rollout, reward=parts.reward(rollout))


async def completed(rollouts: Mapping[Place, Rollout], parts: RolloutParts) -> dict[Place, Rollout]:
    """Complete ``rollouts`` by the verdicts that wait for their group, and by ``parts.extra``."""
    done, waiting = dict(rollouts), dict[int, list[Place]]()
    for key, rollout in rollouts.items():
        if rollout.verdict == LATER:
            waiting.setdefault(key[0], []).append(key)

    async def judge(keys: Sequence[Place]) -> None:
        assert isinstance(parts.judge, OwnJudge)
        answers = [(done[key].execution.answer, done[key].workflow) for key in keys]
        for key, verdict in zip(keys, await parts.judge.verdicts(done[keys[0]].problem, answers), strict=True):
            done[key] = _rewarded(replace(done[key], verdict=verdict), parts)

    await asyncio.gather(*map(judge, waiting.values()))
    return dict(zip(done, await parts.extra.add([*done.values()]), strict=True)) if parts.extra else done


def _workflow(completion: Completion) -> str:
    return completion.text if completion.verbatim else extract_code(completion.text, completion.prefill)


def _cut_off(completion: Completion, parts: RolloutParts) -> bool:
    """Tell whether the reply ends at the length limit, and is therefore not run."""
    return completion.finish_reason == "length" and parts.truncated != "run"
