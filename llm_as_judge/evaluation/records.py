"""What is kept of every workflow of an evaluation: a line of a file beside the results, from which it goes on.

    with Ledger(path, resume=True) as ledger:
        ledger.known  # what earlier runs of the same evaluation came to

Figures are summed up from records alone, so that a run that was interrupted gives those of one that was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

from llm_as_judge.data.catalog import metric_of
from llm_as_judge.evaluation.official import answer_scores
from llm_as_judge.files import naming, write_whole
from llm_as_judge.types import Domain, Finding, Outcome, Rollout, Tier

#: Characters that are kept of an answer, an error or a reason.
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class Record:
    """One workflow on one problem. ``scores``: what the official script gives the answer, where it is no share right;
    empty as well where the workflow failed by our fault.
    """

    index: int  # of the problem
    sample: int
    problem: str
    dataset: str
    domain: Domain
    workflow: str
    outcome: Outcome
    error: str
    findings: tuple[Finding, ...]
    answer: str | None
    correct: bool | None
    tier: Tier
    reason: str
    abstained: bool
    scores: Mapping[str, float]
    operators: tuple[str, ...]  # of its calls, in order
    tokens: int  # the executor's
    cost: float
    seconds: float

    @property
    def unscored(self) -> bool:
        return self.correct is None

    @staticmethod
    def of(index: int, sample: int, rollout: Rollout) -> Record:
        question, execution, verdict = rollout.problem.question, rollout.execution, rollout.verdict
        fault = execution.outcome == "fault"
        answer = execution.answer if rollout.valid else None
        metric = metric_of(question.dataset, (question.domain,))
        return Record(
            index=index,
            sample=sample,
            problem=question.id,
            dataset=question.dataset,
            domain=question.domain,
            workflow=_cut(rollout.workflow),
            outcome=execution.outcome,
            error=_cut(execution.error),
            findings=execution.findings,
            answer=None if answer is None else _cut(answer),
            correct=verdict.correct,
            tier=verdict.tier,
            reason=_cut(verdict.reason),
            abstained=verdict.abstained,
            scores={} if fault else answer_scores(metric, answer, rollout.problem.reference),
            operators=tuple(call.name for call in execution.calls),
            tokens=execution.tokens,
            cost=execution.cost,
            seconds=execution.seconds,
        )


_RECORD = TypeAdapter(Record)


def read_records(path: Path) -> Iterator[tuple[str, Record]]:
    """Every record with its line; one that an interruption tore is left out."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            yield line, _RECORD.validate_json(line)
        except ValidationError:
            continue


@dataclass
class Ledger:
    """Records in the file ``path``, one JSON object a line; ``known`` are those that were there already.

    Without ``resume`` the file begins anew. What was not scored by our own fault is not known: it is tried again.
    """

    path: Path
    resume: bool = False
    known: dict[tuple[int, int], Record] = field(default_factory=dict)

    def __enter__(self) -> Ledger:
        whole = ""
        if self.resume and self.path.exists():
            for line, record in read_records(self.path):
                if not record.unscored:
                    self.known[record.index, record.sample] = record
                    whole += line + "\n"
        write_whole(self.path, whole)
        self._file = self.path.open("ab", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, record: Record) -> None:
        """Raises ``OSError`` with the file's name; a record of which a part was written is as good as none."""
        line = _RECORD.dump_json(record) + b"\n"
        with naming(self.path):
            while line:
                line = line[self._file.write(line) :]


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text)} characters)"
