"""Whether an executor's replies can be read: every hand-written workflow on a few problems, counted by operator.

What an operator cannot read it hands on as it is, marked ``parse_ok`` False, so that a workflow goes on; but it is then
no vote, no verdict and no program. An executor that keeps to no form leaves little for workflows to be good at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.baselines import measure
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import OperatorCall, Rollout
from llm_as_judge.workflow.shapes import shapes_of


@dataclass(frozen=True, slots=True)
class Readable:
    """The calls of one operator."""

    operator: str
    calls: int
    read: int  # with ``parse_ok``
    cut_off: int  # whose last reply ended at ``max_tokens``
    reasons: Mapping[str, int]  # of those that were not read, most frequent first

    @property
    def rate(self) -> float:
        return self.read / self.calls

    def __str__(self) -> str:
        reason = next(iter(self.reasons), "")
        cut = f", {self.cut_off} cut off" if self.cut_off else ""
        return f"{self.operator}: {self.read} of {self.calls} read{cut}{f'; {reason}' if reason else ''}"


async def probe_operators(config: Config, problems: int) -> list[Readable]:
    """Runs every hand-written workflow on ``problems`` training problems of each domain; one entry for each operator
    that was called, in alphabetical order.

    Raises ``ConfigError``, ``DataError``, ``ProviderError``.
    """
    plans = shapes_of(load_operators(config.workflow.operators))
    asked = open_problems(config, measured=False).sampler.peek(problems)
    async with open_services(config, judging=False) as services:
        matrix = await measure(asked, services.official, plans=plans)
    return readable(matrix.rollouts)


def readable(rollouts: Iterable[Rollout]) -> list[Readable]:
    """What ``rollouts`` tell of each operator that they called."""
    calls: dict[str, list[OperatorCall]] = {}
    for rollout in rollouts:
        for call in rollout.execution.calls:
            calls.setdefault(call.name, []).append(call)
    return [_of(name, made) for name, made in sorted(calls.items())]


def _of(operator: str, calls: Sequence[OperatorCall]) -> Readable:
    unread = Counter(call.error or "an empty reply" for call in calls if not call.parse_ok)
    cut_off = sum(bool(call.exchanges) and call.exchanges[-1].finish_reason == "length" for call in calls)
    return Readable(operator, len(calls), sum(call.parse_ok for call in calls), cut_off, dict(unread.most_common()))
