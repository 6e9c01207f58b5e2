"""``llm-as-judge evaluate``: how good the policy is on a file of problems, or on the configured held-out ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from llm_as_judge.assembly.policy import adapter_digest, load_author
from llm_as_judge.assembly.problems import heldout_problems
from llm_as_judge.assembly.progress import Progress, Silent
from llm_as_judge.assembly.recording import policy_records, recording
from llm_as_judge.assembly.services import open_services
from llm_as_judge.config.schema import Config
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.problems import read_problems
from llm_as_judge.errors import DataError
from llm_as_judge.evaluation.evaluate import Author, Given, evaluate
from llm_as_judge.evaluation.metrics import number
from llm_as_judge.evaluation.summary import Summary, summarise
from llm_as_judge.events import RolloutEvent
from llm_as_judge.files import locked, write_json
from llm_as_judge.llm.client import Usage
from llm_as_judge.workflow.source import WorkflowSource


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """``as_json`` has the form of ``results/evaluation/<model>_results.json``, with this evaluation's rows."""

    model: str
    checkpoint: Path | None
    workflow: Path | None  # that was given, instead of the policy's
    executor: str
    rows: Mapping[str, Summary]  # by dataset
    samples: int
    known: int  # workflows that an earlier run had done
    usage: Mapping[str, Usage]  # of each model asked now
    sandbox: str
    records: Path
    file: Path

    @property
    def scored(self) -> int:
        """Problems that could be scored."""
        return sum(summary.overall.n for summary in self.rows.values())

    def as_json(self) -> dict[str, Any]:
        own: dict[str, Any] = {
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "adapter": adapter_digest(self.checkpoint),
            "executor": self.executor,
            "samples": self.samples,
        }
        if self.workflow:
            own["workflow"] = str(self.workflow)
        rest = {"records": str(self.records), "sandbox": self.sandbox}
        return {
            "model": self.model,
            "datasets": [
                {"dataset": name, **own, "metrics": {"accuracy": number(row.overall.value), **row.as_json()}, **rest}
                for name, row in self.rows.items()
            ],
            "usage": {role: asdict(usage) for role, usage in self.usage.items()},
        }


async def run_evaluation(
    config: Config,
    *,
    data: Path | None = None,
    checkpoint: Path | None = None,
    workflow: WorkflowSource | None = None,
    limit: int | None = None,
    samples: int = 1,
    resume: bool = False,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Workflows for each problem, judged by tests and rules; a record of each and a row for each dataset are kept.

    A given ``workflow`` runs on every problem, and no policy is loaded.

    With ``resume`` what an interrupted run of the same evaluation has recorded is not done again. The row of a dataset
    takes the place of an earlier one of the same checkpoint or workflow, unless nothing could be scored.
    """
    watch = progress or Silent()
    problems = read_problems(data, limit) if data else heldout_problems(config.data, limit)
    folder, model = config.output.results_dir / "evaluation", config.base_model.key
    source = data.name.partition(".")[0] if data else "heldout"
    given = (workflow.text, workflow.prompt) if workflow else ()
    records = policy_records(config, source, problems, checkpoint, samples, given)
    count = len(problems) * samples
    async with open_services(config, watch, judging=False) as services:
        parts, author = services.official, _given(workflow) if workflow else load_author(config, checkpoint)
        if workflow:
            parts = replace(parts, runner=services.runner.beside(workflow.prompt))
        with recording(records, resume) as ledger:
            known = recorded = len(ledger.known)
            if resume:
                watch.say(f"{known} of {count} workflows are recorded in {records}")

            def advance(done: int) -> None:
                nonlocal recorded
                recorded = done
                watch.advance("workflows", done, count)

            try:
                evaluation = await evaluate(problems, author, parts, advance, samples=samples, log=ledger)
            except (KeyboardInterrupt, asyncio.CancelledError):
                watch.say(f"{recorded} of {count} workflows are recorded in {records}")
                raise
        sandbox, usage = str(services.sandbox.describe()), services.usage()
    rows = _rows(evaluation.records, "embedded" if not data and config.data.source == "embedded" else source)
    file = folder / f"{model}_results.json"
    named = workflow.file if workflow else None
    result = EvaluationResult(
        model, checkpoint, named, config.executor.model, rows, samples, known, usage, sandbox, records, file
    )
    merge(file, result)
    return result


def _given(workflow: WorkflowSource) -> Author:
    return Given(lambda question: workflow.text)


def _rows(records: Sequence[RolloutEvent], unnamed: str) -> dict[str, Summary]:
    """A summary for each dataset; problems of none that has a name are those of their file."""
    own = "custom" if unnamed in DATASETS else unnamed
    named = [r if r.dataset not in ("", "custom") else msgspec.structs.replace(r, dataset=own) for r in records]
    return {
        name: summarise([r for r in named if r.dataset == name]) for name in dict.fromkeys(r.dataset for r in named)
    }


def merge(file: Path, result: EvaluationResult) -> None:
    """Puts the rows that say something into the file, each in the place of the one it renews.

    Evaluations that end at once wait for each other. Raises ``DataError`` for a file of something else.
    """
    with locked(file.with_name(f".{file.name}.lock")):
        try:
            told = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"datasets": []}
            known: dict[Any, dict[str, Any]] = {_place(row): row for row in told["datasets"]}
        except (ValueError, KeyError, TypeError) as error:
            cure = "move it away to have it made anew"
            raise DataError(f"{file}: no results of evaluations: {error!r}; {cure}") from error
        for row in result.as_json()["datasets"]:
            if row["metrics"]["problems"]:
                known[_place(row)] = row
        if known:
            write_json(file, {"model": result.model, "datasets": list(known.values())})


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["dataset"], row.get("checkpoint"), row.get("workflow")


def recorded_since(config: Config, moment: float) -> bool:
    """Whether an evaluation of the configured policy has written records since ``moment`` (Unix seconds)."""
    files = (config.output.results_dir / "evaluation").glob(f"{config.base_model.key}_*.jsonl")
    return any(file.stat().st_size and file.stat().st_mtime >= moment for file in files)
