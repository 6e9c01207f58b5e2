"""``llm-as-judge train``: held-out evaluation, GRPO on the policy's adapter, held-out evaluation again, results."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins

from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.commands import cli
from llm_as_judge.evaluation.intervals import Estimate, paired_difference
from llm_as_judge.files import picked, write_json
from llm_as_judge.types import Domain

if TYPE_CHECKING:
    from llm_as_judge.assembly.run_folder import Started
    from llm_as_judge.config.schema import Config
    from llm_as_judge.evaluation.baselines import Method
    from llm_as_judge.evaluation.summary import Summary
    from llm_as_judge.events import Contrast
    from llm_as_judge.judging.calibration import Counts
    from llm_as_judge.llm.client import Usage


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Results of a training run; ``as_json`` is the content of its results file."""

    run: "Started"
    before: "Summary"
    after: "Summary"
    baselines: "Sequence[Method]"
    workflows: Mapping[str, Mapping[Domain, float]]  # accuracy of each workflow of the catalogue alone
    learned: Mapping[Domain, str]  # the named shape that the policy writes most; '' for another
    judge: "Counts | None"
    problems: int
    steps: int
    sandbox: str
    usage: "Mapping[str, Usage]"  # by role, over all sessions
    seconds: Mapping[str, float]
    contrast: "Contrast"

    @property
    def gain(self) -> Estimate:
        """Trained minus untrained on the same problems, paired."""
        return paired_difference(self.after.by_problem, self.before.by_problem)

    def as_json(self) -> dict[str, Any]:
        config, gain = self.run.folder.config, self.gain
        return {
            "run": config.output.run_name,
            "run_id": self.run.id,
            "model": config.base_model.key,
            "seed": config.training.seed,
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "gain": {"value": gain.value, "interval": [gain.low, gain.high], "problems": gain.n},
            "baselines": {row.name: row.as_json() for row in self.baselines},
            "judge": self.judge.as_json() if self.judge else {},
            **picked(self, "workflows learned problems steps sandbox usage seconds contrast"),
        }


async def run_training(config: "Config", *, resume: bool = False, progress: Progress = SILENT) -> TrainResult:
    """Train up to ``training.max_steps``, measure before and after, and write results and learning curve.

    If a launcher started several processes, this is rank 0; ``assembly.follow`` is the others.
    """
    from llm_as_judge.assembly.budget import logged_usage
    from llm_as_judge.assembly.training import open_training
    from llm_as_judge.evaluation import baselines
    from llm_as_judge.evaluation.summary import summarise
    from llm_as_judge.events import Contrast, UsageEvent
    from llm_as_judge.judging.calibration import agreement
    from llm_as_judge.rl.ranks import join
    from llm_as_judge.runlog import LogReader
    from llm_as_judge.views.charts import learning_curve
    from llm_as_judge.workflow.shapes import SHAPES

    begun = time.monotonic()
    with join() as ranks:
        async with open_training(config, resume=resume, measured=True, progress=progress, ranks=ranks) as training:
            run, services, heldout = training.run, training.services, training.problems.heldout
            folder = run.folder
            shapes = {"none": (), "single": (baselines.DIRECT,), "all": tuple(SHAPES)}[config.evaluation.baselines]
            shorter = f", then {len(shapes)} baselines on them (none: --set baselines=none)" if shapes else ""
            progress.say(f"{len(heldout)} held-out problems are solved before and after training{shorter}")
            before = await training.measure_untrained()
            training_began = time.monotonic()
            await training.train()
            seconds = {"training": time.monotonic() - training_began}
            groups = await training.measure("trained policy", training.trained)
            after = summarise(groups)
            advance = partial(progress.advance, "single workflows")
            matrix = await baselines.measure(heldout, services.official, advance, shapes)
            judged = [group for own in matrix.evaluations.values() for group in own] or groups
            agreed = await agreement(services.alone, judged) if services.alone else None
            tops = {domain: next(iter(shapes)) for domain, shapes in after.shapes.items()}
            step = training.trainer.step
            run.log.log(UsageEvent(step=step, models=to_builtins(training.usage())))
            logged = LogReader.read(folder.log_file)
            result = TrainResult(
                run=run,
                before=before,
                after=after,
                baselines=baselines.rows(matrix),
                workflows=matrix.accuracies() if len(shapes) > 1 else {},
                learned={domain: top if top in SHAPES else "" for domain, top in tops.items()},
                judge=agreed,
                problems=len(heldout),
                steps=step,
                sandbox=str(services.sandbox.describe()),
                usage=logged_usage(logged),
                seconds={**seconds, "all": time.monotonic() - begun},
                contrast=Contrast.of(logged.steps),
            )
            write_json(folder.results, result.as_json())
            oracles = (baselines.ORACLE, baselines.DATASET_ORACLE)
            bounds = {row.name: row.overall.value for row in result.baselines if row.name in oracles}
            learning_curve(logged.steps, folder.curve, before.overall, result.after.overall, logged.evals, bounds)
    return result


@cli.grouped
def train(
    options: cli.ConfigOptions,
    max_steps: Annotated[int | None, typer.Option(metavar="N", help="Total number of optimiser steps.")] = None,
    resume: cli.Resume = False,
    as_json: cli.AsJson = False,
) -> None:
    """Train the policy with GRPO."""
    if cli.followed():
        return
    settings = options.load(max_steps=max_steps)

    from llm_as_judge.views import terminal

    console, begun = cli.make_console(as_json), time.time()
    try:
        with terminal.TerminalProgress(console) as progress:
            result = cli.run(run_training(settings, resume=resume, progress=progress))
    except (KeyboardInterrupt, OSError) as error:
        from llm_as_judge.assembly.policy import newest_checkpoint

        newest = newest_checkpoint(settings)
        # A file system's clock may lag behind by a tick.
        resumable = newest is not None and (resume or newest.stat().st_mtime >= begun - 1)
        if isinstance(error, KeyboardInterrupt):
            raise cli.Interrupted(resumable) from error
        if resumable:
            cli.echo(f"last checkpoint: {newest}; correct the error, then continue with --resume", err=True)
        raise
    if as_json:
        cli.print_json(result.as_json())
    rows: dict[str, Summary | Method] = {"untrained policy": result.before, "trained policy": result.after}
    console.print(terminal.result_table(rows | {row.name: row for row in result.baselines}, result.after.overall.n))
    console.print(terminal.gain_line(result.gain), highlight=False)
    console.print(f"Contrast: {result.contrast}", highlight=False)
    console.print(terminal.shapes_table(result.before.shapes, result.after.shapes))
    if result.workflows:
        console.print(terminal.single_shapes_table(result.workflows, result.learned))
    if result.judge and (line := terminal.judge_line(result.judge.as_json())):
        console.print(line)
    console.print(terminal.usage_table(result.usage))
    seconds, folder = result.seconds, result.run.folder
    console.print(f"steps {result.steps}, training {seconds['training']:.0f} s, total {seconds['all']:.0f} s")
    adapter = folder.checkpoints / f"step_{result.steps}"
    cli.show(console, f"adapter {adapter}", f"results {folder.results}", f"curve   {folder.curve}")
