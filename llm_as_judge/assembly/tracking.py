"""Experiment tracking of a training run with trackio, wandb or tensorboard.

Metrics have TRL's names where TRL has them, with the prefix ``train/`` of its trainers. The groups are ``train``,
``eval`` (validations, and ``eval/heldout`` before the first step and after the last) and ``rollout``. So has the table
``completions``.
"""

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import yaml

from llm_as_judge.assembly.run_folder import Started
from llm_as_judge.config.schema import TrackingConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.events import RolloutEvent, StepReport
from llm_as_judge.files import picked

logger = logging.getLogger(__name__)

#: Columns of the table of completions, and the trackers that have tables.
COLUMNS = ("step", "problem", "completion", "answer", "correct", "reason", "reward", "advantage")
TABLES = ("trackio", "wandb")


@dataclass(frozen=True)
class _TensorBoard:
    writer: Any

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


def _open_tracker(tool: str, project: str, run: Started) -> Any:
    """Open the run in ``tool``, or continue it there if it is resumed: a run with ``log`` and ``finish``."""
    config, folder = run.folder.config, run.folder.log_file.parent
    name = f"{config.base_model.key}-{config.output.run_name}-{run.id}"
    about: dict[str, Any] = {"project": project, "name": name, "config": yaml.safe_load(run.folder.config_text)}
    if tool == "tensorboard":
        from tensorboard.summary import Writer

        return _TensorBoard(Writer(str(folder / "tensorboard" / name)))
    if tool == "wandb":
        import wandb

        quiet = wandb.Settings(console="off", silent=True)
        return wandb.init(**about, id=run.id, resume="allow", dir=str(folder), settings=quiet)
    import trackio

    resume = "allow" if run.folder.resumed_from else "never"
    return trackio.init(**about, resume=resume, embed=False, auto_log_gpu=False, auto_log_cpu=False)


@dataclass
class Tracking:
    """All trackers of a run; one that fails is dropped with a warning."""

    settings: TrackingConfig
    table_every: int = 0  # steps; 0: no table of completions
    _open: dict[str, Any] = field(default_factory=dict)
    _rows: list[list[Any]] = field(default_factory=list)  # of the step that is being logged

    def begin(self, run: Started) -> None:
        tools, project = self.settings.report_to, self.settings.project
        with redirect_stdout(sys.stderr):  # standard output belongs to the command
            for name in tools:
                self._open[name] = _open_tracker(name, project, run)

    def rollout(self, event: RolloutEvent) -> None:
        """Track a rollout of the step that ``step`` reports next."""
        if self._open and self.table_every and event.step % self.table_every == 0:
            rollout, verdict = event.rollout, event.rollout.verdict
            judged = rollout.execution.answer, verdict.correct, verdict.reason, rollout.reward.total, event.advantage
            self._rows.append([event.step, rollout.problem.question.id, rollout.workflow, *judged])

    def step(self, report: StepReport) -> None:
        self._log(step_metrics(report), report.step)
        rows, self._rows = self._rows, []

        def table(name: str, run: Any) -> None:
            if rows and name in TABLES:
                columns = sys.modules[name].Table(columns=list(COLUMNS), data=rows)
                run.log({"completions": columns}, step=report.step)

        self.each(table)

    def evaluation(self, step: int, summary: Summary, problems: str = "") -> None:
        """Track a validation, or with ``problems`` (``heldout/``) an evaluation of other problems."""
        shares = {"accuracy": summary.overall.value, "valid_rate": summary.valid_rate.value}
        shares |= {f"accuracy/{d}": e.value for d, e in summary.domains.items()}
        self._log({f"eval/{problems}{name}": value for name, value in shares.items()}, step)

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        known = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self.each(lambda _, run: run.log(known, step=step))

    def each(self, tell: Callable[[str, Any], object]) -> None:
        """Call ``tell`` with name and run of every open tracker; one that fails is dropped."""
        for name, run in list(self._open.items()):
            try:
                with redirect_stdout(sys.stderr):
                    tell(name, run)
            except Exception as error:  # tracking must not stop the training
                what = f"{type(error).__name__}: {error}"
                logger.warning("%s failed and gets no more metrics of this run: %s", name, what)
                del self._open[name]


@contextmanager
def tracking(settings: TrackingConfig, table_every: int = 0) -> Iterator[Tracking]:
    """Open the configured trackers, with a table of completions every ``table_every`` steps (0: none).

    Raises ``ConfigError`` at once for a missing library.
    """
    for name in settings.report_to:
        if find_spec(name) is None:
            raise ConfigError(
                f"tracking.report_to names {name}, which is not installed: python -m pip install "
                f"'llm-as-judge[{name}]', or train without it: --set tracking.report_to=none"
            )
    found = Tracking(settings, table_every)
    try:
        yield found
    finally:
        found.each(lambda _, run: run.finish())


def step_metrics(report: StepReport) -> dict[str, float]:
    """Return the metrics of a step by name; NaN if not measured."""
    train = {
        "reward": report.reward_mean,
        "frac_reward_zero_std": report.skipped_groups / (report.groups or math.nan),
        "completions/mean_length": report.completion_tokens,
        "completions/clipped_ratio": report.truncated,
        "clip_ratio/region_mean": report.clip_fraction,
        "sampling/sampling_logp_difference/mean": report.sampling_logp_difference,
        **picked(report, "reward_std loss kl entropy grad_norm learning_rate"),
        "step_time": sum(report.seconds.values()),
        **{f"rewards/{term}/mean": mean for term, mean in report.terms.items()},
        # Without a name in TRL:
        **picked(report, "accuracy valid_rate"),
        **{f"accuracy/{domain}": share for domain, share in report.domain_accuracy.items()},
        **({} if math.isnan(report.score) else {"score": report.score}),
    }
    rollout = {
        **picked(report, "executor_tokens unscored abstained temperature first_valid_rate repairs"),
        **{f"seconds/{phase}": seconds for phase, seconds in report.seconds.items()},
    }
    return {f"train/{name}": float(value) for name, value in train.items()} | {
        f"rollout/{name}": float(value) for name, value in rollout.items()
    }
