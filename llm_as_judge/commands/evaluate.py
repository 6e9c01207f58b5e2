"""``llm-as-judge evaluate``: official metrics (``data.catalog.metric_of``) on files or held-out problems."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError, DataError, refusing
from llm_as_judge.files import locked, write_json
from llm_as_judge.workflow.user_file import WorkflowSource, read_workflow

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.llm.client import Usage


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """``as_json`` has the form of ``results/evaluation/<model>_results.json``, with the rows of this evaluation."""

    model: str
    rows: "Mapping[str, Summary]"  # by dataset
    measured: Mapping[str, Any]  # what all rows say of policy or workflow, executor, sandbox and records
    known: int  # workflows recorded by an earlier run
    usage: "Mapping[str, Usage]"  # by role, of this run up to this file
    records: Path
    file: Path

    @property
    def scored(self) -> int:
        return sum(summary.overall.n for summary in self.rows.values())

    def as_json(self) -> dict[str, Any]:
        rows = [
            {"dataset": name, "metrics": {"accuracy": row.overall.value, **row.as_json()}, **self.measured}
            for name, row in self.rows.items()
        ]
        return {"model": self.model, "datasets": rows, "usage": self.usage}


async def run_evaluation(
    config: "Config", *, data: Sequence[Path] = (), checkpoint: Path | None = None,
    workflow: WorkflowSource | None = None, limit: int | None = None, samples: int = 1, resume: bool = False,
    progress: Progress = SILENT,
) -> list[EvaluationResult]:  # fmt: skip
    """Run and judge ``samples`` workflows for each problem of each file in ``data`` (default: the held-out problems).

    They are written by the policy with the adapter in ``checkpoint``, or all are the given ``workflow``. Each is
    recorded; with ``resume`` the records of an interrupted run of the same evaluation are reused. The row of each
    dataset replaces an earlier one of the same checkpoint or workflow, unless nothing could be scored.
    """
    from llm_as_judge.assembly.check import check_before
    from llm_as_judge.assembly.policy import adapter_digest, load_author
    from llm_as_judge.assembly.problems import heldout_problems
    from llm_as_judge.assembly.recording import policy_records, recording, tell_untrained
    from llm_as_judge.assembly.services import open_services
    from llm_as_judge.data.problems import file_name, measured_problems
    from llm_as_judge.evaluation.evaluate import Author, Given, evaluate
    from llm_as_judge.evaluation.summary import by_benchmark
    from llm_as_judge.policy.device import on_device

    sets = [(file_name(path), measured_problems(path, limit, config.data)) for path in data]
    sets = sets or [("heldout", heldout_problems(config.data, limit))]
    model, results = config.base_model.key, []
    given = (workflow.text, workflow.prompt) if workflow else ()
    async with open_services(config, progress, judging=bool(config.judge.own)) as services:
        every = [problem for _, problems in sets for problem in problems]
        await check_before(every, services.sandbox, services.official.judge)
        await tell_untrained(config, [problems for _, problems in sets], services, progress)
        author: Author
        parts = services.official
        if workflow:
            text, parts = workflow.text, replace(parts, runner=services.runner.beside(workflow.prompt))
            author = Given(lambda question: text)
        else:
            author = policy = await on_device(load_author, config, checkpoint, progress=progress)
            await services.hosted.share(policy)
        for source, problems in sets:
            file = policy_records(config, source, problems, checkpoint, samples, given)
            with recording(file, resume) as ledger:
                known, count = len(ledger.known), len(problems) * samples
                advance = partial(progress.advance, "workflows")
                try:
                    groups = await evaluate(problems, author, parts, advance, samples=samples, log=ledger)
                finally:
                    if resume or len(ledger.known) < count:
                        progress.say(f"{len(ledger.known)} of {count} workflows are recorded in {file}")
            measured = {
                "checkpoint": str(checkpoint) if checkpoint else None,
                "adapter": adapter_digest(checkpoint),
                "workflow": str(workflow.file) if workflow else None,
                "executor": config.executor_models,
                "samples": samples,
                "records": str(file),
                "sandbox": str(services.sandbox.describe()),
            }
            rows = by_benchmark(groups, "embedded" if not data and config.data.generated else source)
            merged = config.output.results_dir / "evaluation" / f"{model}_results.json"
            result = EvaluationResult(model, rows, measured, known, services.usage(), file, merged)
            merge(result.file, result)
            results.append(result)
    return results


def merge(file: Path, result: EvaluationResult) -> None:
    """Write the scored rows of ``result`` to the file, each in place of the row it renews.

    Locked against other evaluations. Raises ``DataError`` for a file with other content.
    """

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["dataset"], row.get("checkpoint"), row.get("workflow")

    with locked(file):
        with refusing(DataError, f"{file}: not a file of evaluation results", "move it away to start a new one"):
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"datasets": []}
            rows: dict[Any, dict[str, Any]] = {key(row): row for row in found["datasets"]}
        rows |= {key(row): row for row in result.as_json()["datasets"] if row["metrics"]["problems"]}
        if rows:
            write_json(file, {"model": result.model, "datasets": list(rows.values())})


@cli.grouped
def evaluate(
    options: cli.ConfigOptions,
    adapter: cli.AdapterOptions,
    workflow: Annotated[
        Path | None,
        typer.Option(exists=True, metavar="PATH", help="Workflow file or AFlow graph folder instead of the policy."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Files, folders or hub:owner/name (default: configured); repeatable."),
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(metavar="NAME,...", help="Test sets of the --data folder (default: data/test).")
    ] = None,
    limit: cli.Limit = None,
    samples: Annotated[int, typer.Option(min=1, max=4096, help="Workflows per problem, for pass@K.")] = 1,
    resume: cli.Resume = False,
    as_json: cli.AsJson = False,
) -> None:
    """Evaluate the policy or a given workflow."""
    from llm_as_judge.data.problems import TEST_SETS, each_set, sets_named
    from llm_as_judge.workflow.lint.check import lint

    if workflow and (adapter.checkpoint or adapter.untrained or adapter.repairs):
        raise ConfigError("--workflow replaces the policy: give it without --checkpoint, --untrained and --repairs")
    settings = options.load(repairs=adapter.repairs)
    drawn, greedy = settings.generation, {"executor.temperature=0": not settings.executor.temperature}
    if not workflow:
        greedy = {"generation.eval_temperature=0": not drawn.eval_temperature, "generation.top_k=1": drawn.top_k == 1}
    if samples > 1 and (why := next((name for name, alike in greedy.items() if alike), "")):
        raise ConfigError(f"--samples {samples} with {why} would be {samples} equal samples; change it, or take one")
    given = read_workflow(workflow) if workflow else None
    if given and (wrong := [found for found in lint(given.text, prompt=given.prompt).findings if found.code == "W101"]):
        raise ConfigError(f"--workflow {workflow}: line {wrong[0].line}: {wrong[0].message}; give a workflow in Python")
    if datasets is not None:
        data = sets_named(data or [TEST_SETS], cli.split_names(datasets))
    data = each_set(data or ())
    checkpoint = None if given else adapter.choose(settings)

    from llm_as_judge.views.terminal import TerminalProgress, summary_tables, troubles, usage_table

    console = cli.make_console(as_json)
    if data:
        cli.show_caveat(console, settings)
    try:
        with TerminalProgress(console) as progress:
            results = cli.run(
                run_evaluation(
                    settings, data=data, checkpoint=checkpoint, workflow=given, limit=limit, samples=samples,
                    resume=resume, progress=progress,
                )
            )  # fmt: skip
    except KeyboardInterrupt as error:
        raise cli.Interrupted(resumable=True) from error
    cli.show(console, f"workflow {given.file}" if given else cli.policy_name(checkpoint, settings))
    for result in results:
        for part in troubles(result.rows):
            cli.show(console, part)
        cli.show(console, f"records  {result.records}", *([f"results  {result.file}"] if result.scored else []))
    for table in (usage_table(results[-1].usage), *summary_tables([row for r in results for row in r.rows.items()])):
        console.print(table, highlight=False)
    if as_json:
        rows = [row for result in results for row in result.as_json()["datasets"]]
        cli.print_json({**results[-1].as_json(), "datasets": rows})
    if not all(result.scored for result in results):
        cli.echo("error: no problem could be scored, see the reasons above; results are unchanged", err=True)
        raise typer.Exit(1)
