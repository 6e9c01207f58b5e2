"""What is done with all rollouts of a batch at once: verdicts of whole groups, and the user's own rewards."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llm_as_judge.judging.own import LATER, OwnJudge
from llm_as_judge.types import Rollout

if TYPE_CHECKING:
    from llm_as_judge.rl.rollout import RolloutParts

#: Index of the problem, index in the group.
Key = tuple[int, int]


async def completed(rollouts: Mapping[Key, Rollout], parts: "RolloutParts") -> dict[Key, Rollout]:
    """``rollouts`` with the verdicts that wait for their group, and with ``parts.extra``."""
    groups: dict[int, list[Key]] = {}
    for key, rollout in rollouts.items():
        if rollout.verdict is LATER:
            groups.setdefault(key[0], []).append(key)
    done = dict(rollouts)
    if isinstance(parts.judge, OwnJudge):
        await asyncio.gather(*(_judge(parts.judge, [*keys], done, parts) for keys in groups.values()))
    if parts.extra is not None:
        done = dict(zip(done, await parts.extra.add([*done.values()]), strict=True))
    return done


async def _judge(judge: OwnJudge, keys: list[Key], done: dict[Key, Rollout], parts: "RolloutParts") -> None:
    """Replace the rollouts of one group by judged and rewarded ones."""
    group = [done[key] for key in keys]
    verdicts = await judge.verdicts(group[0].problem, [(r.execution.answer, r.workflow) for r in group])
    for key, rollout, verdict in zip(keys, group, verdicts, strict=True):
        earlier = [attempt.execution for attempt in rollout.attempts]
        reward = parts.reward(rollout.problem, rollout.completion, rollout.execution, verdict, earlier)
        done[key] = replace(rollout, verdict=verdict, reward=reward)
