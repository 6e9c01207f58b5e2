"""Evaluation of workflows on problems nobody was trained on, by the benchmark's own metric.

One workflow or several are written for each problem, run, and judged by tests or rules; the reward plays no part. What
failed for our own reasons is left out of every mean and counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.records import Record
from llm_as_judge.evaluation.summary import Summary, summarise
from llm_as_judge.policy.device import Device
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.rollout import Engine, RolloutParts, collect
from llm_as_judge.types import Completion, Problem, Question, Rollout
from llm_as_judge.workflow.prompt import Layer1

#: Workflows of one call of the engine.
_CHUNK = 64


class Author(Protocol):
    """Writes ``samples`` workflows for each question, of which ``start`` were asked before."""

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]: ...


@dataclass(frozen=True, slots=True)
class PolicyAuthor:
    """The policy as the author, without examples from the buffer; the same seed writes the same workflows.

    ``version`` is that of the policy's weights, to which the engine is brought first.
    """

    policy: Policy
    engine: Engine
    prompt: Layer1
    config: Config
    version: int = 0

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]:
        generation, training = self.config.generation, self.config.training
        asked = [self.prompt(question) for question in questions]
        self.engine.sync(self.policy, self.version)
        groups = self.engine.generate(
            [self.policy.encode(prompt) for prompt in asked],
            samples,
            temperature=generation.eval_temperature,
            top_p=generation.top_p,
            top_k=generation.top_k,
            max_new_tokens=training.response_max_length,
            seed=1_000_003 + training.seed + start,
        )
        return [
            [replace(completion, prefill=prompt.prefill) for completion in group]
            for group, prompt in zip(groups, asked, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Given:
    """A workflow that is known beforehand, as the author."""

    source: Callable[[Question], str]

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]:
        return [
            [Completion(self.source(question), (), (), (), "stop", verbatim=True)] * samples for question in questions
        ]


class Log(Protocol):
    """``records.Ledger``: takes every record at once, and knows those of earlier runs by problem and sample."""

    @property
    def known(self) -> Mapping[tuple[int, int], Record]: ...
    def add(self, record: Record) -> None: ...


@dataclass
class Unwritten:
    """Records that nobody keeps."""

    known: Mapping[tuple[int, int], Record] = field(default_factory=dict)

    def add(self, record: Record) -> None: ...


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A record for each problem and sample, in order, and what they come to; ``rollouts`` are those that ran now."""

    records: Sequence[Record]
    rollouts: Sequence[Rollout]

    @property
    def summary(self) -> Summary:
        return summarise(self.records)


async def evaluate(
    problems: Sequence[Problem],
    author: Author,
    parts: RolloutParts,
    progress: Callable[[int], None] = lambda done: None,
    *,
    samples: int = 1,
    log: Log | None = None,
    device: Device | None = None,
) -> Evaluation:
    """Has ``author`` write workflows for each problem, runs and judges them; ``progress`` gets the number done.

    The author works on ``device``, which it may share with a training run.

    A problem all of whose samples ``log`` knows is not run again.
    """
    log, device = log or Unwritten(), device or Device()
    members = range(samples)
    records = {key: log.known[key] for key in itertools.product(range(len(problems)), members) if key in log.known}
    todo = [i for i in range(len(problems)) if not all((i, k) in records for k in members)]
    records = {key: record for key, record in records.items() if key[0] not in set(todo)}
    if records:
        progress(len(records))
    # The parts are the same whatever is known already, so that the same workflows are drawn.
    size, written = max(1, _CHUNK // samples), dict[int, list[Completion]]()
    for start in range(0, len(problems), size):
        part = range(start, min(start + size, len(problems)))
        if wanted := set(part) & set(todo):
            completions = await device.run(author.write, [problems[i].question for i in part], samples, start)
            written |= {i: completions[i - start] for i in wanted}

    def done(place: int, member: int, rollout: Rollout) -> None:
        record = Record.of(todo[place], member, rollout)
        records[record.index, record.sample] = record
        log.add(record)
        progress(len(records))

    groups = await collect([problems[i] for i in todo], [written[i] for i in todo], parts, done)
    return Evaluation([records[key] for key in sorted(records)], [r for g in groups for r in g.rollouts])
