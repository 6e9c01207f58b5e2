"""Experiment tracking of a training run with trackio, wandb or tensorboard.

Metrics have TRL's names where TRL has them, with the prefix ``train/`` of its trainers. The groups are ``train``,
``eval`` (validations, and ``eval/heldout`` before the first step and after the last) and ``rollout``.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol

import yaml

from llm_as_judge.assembly.run_folder import Started
from llm_as_judge.config.schema import TrackingConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.events import StepReport

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class _Client:
    """A run of trackio or wandb, which have the same interface."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._run.finish()


class _TensorBoard:
    def __init__(self, run: Started) -> None:
        from tensorboard.summary import Writer

        self._writer = Writer(str(run.folder.log_file.parent / "tensorboard" / _name(run)))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _open_tracker(tool: str, project: str, run: Started) -> Tracker:
    """Open the run in ``tool``, or continue it there if it is resumed."""
    if tool == "tensorboard":
        return _TensorBoard(run)
    about: dict[str, Any] = {"project": project, "name": _name(run), "config": yaml.safe_load(run.folder.config_text)}
    if tool == "wandb":
        import wandb

        quiet = wandb.Settings(console="off", silent=True)
        return _Client(
            wandb.init(**about, id=run.id, resume="allow", dir=str(run.folder.log_file.parent), settings=quiet)
        )
    import trackio

    resume = "allow" if run.folder.resumed_from else "never"
    with redirect_stdout(sys.stderr):  # standard output belongs to the command
        return _Client(trackio.init(**about, resume=resume, embed=False, auto_log_gpu=False, auto_log_cpu=False))


@dataclass
class Tracking:
    """All trackers of a run; one that fails is dropped with a warning."""

    tools: Sequence[str]
    project: str
    _open: dict[str, Tracker] = field(default_factory=dict)

    def begin(self, run: Started) -> None:
        for name in self.tools:
            self._open[name] = _open_tracker(name, self.project, run)

    def step(self, report: StepReport) -> None:
        self._log(step_metrics(report), report.step)

    def evaluation(self, step: int, summary: Summary, problems: str = "") -> None:
        """A validation, or with ``problems`` (``heldout/``) an evaluation of other problems."""
        shares = {"accuracy": summary.overall.value, "valid_rate": summary.valid_rate.value}
        shares |= {f"accuracy/{d}": e.value for d, e in summary.domains.items()}
        self._log({f"eval/{problems}{name}": value for name, value in shares.items()}, step)

    def close(self) -> None:
        for name in list(self._open):
            self._safely(name, self._open[name].close)
        self._open.clear()

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        known = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for name in list(self._open):
            self._safely(name, lambda tracker=self._open[name]: tracker.log(known, step))

    def _safely(self, name: str, act: Any) -> None:
        try:
            act()
        except Exception as error:  # tracking must not stop the training
            logger.warning("%s failed and gets no more metrics of this run: %s: %s", name, type(error).__name__, error)
            self._open.pop(name, None)


@contextmanager
def tracking(settings: TrackingConfig) -> Iterator[Tracking]:
    """Raises ``ConfigError`` at once for a missing library."""
    for name in settings.report_to:
        if find_spec(name) is None:
            raise ConfigError(
                f"tracking.report_to names {name}, which is not installed: python -m pip install "
                f"'llm-as-judge[{name}]', or train without it: --set tracking.report_to=none"
            )
    found = Tracking(settings.report_to, settings.project)
    try:
        yield found
    finally:
        found.close()


def step_metrics(report: StepReport) -> dict[str, float]:
    """Metrics of a step by name; NaN if not measured."""
    groups = report.groups or math.nan
    trl = {
        "reward": report.reward_mean,
        "reward_std": report.reward_std,
        "frac_reward_zero_std": report.skipped_groups / groups,
        "completions/mean_length": report.completion_tokens,
        "completions/clipped_ratio": report.truncated,
        "clip_ratio/region_mean": report.clip_fraction,
        "loss": report.loss,
        "kl": report.kl,
        "entropy": report.entropy,
        "grad_norm": report.grad_norm,
        "learning_rate": report.learning_rate,
        "step_time": sum(report.seconds.values()),
        **{f"rewards/{term}/mean": mean for term, mean in report.terms.items()},
    }
    own = {
        "accuracy": report.accuracy,
        "valid_rate": report.valid_rate,
        **{f"accuracy/{domain}": share for domain, share in report.domain_accuracy.items()},
    }
    rollout = {
        "executor_tokens": report.executor_tokens,
        "unscored": report.unscored,
        "abstained": report.abstained,
        "temperature": report.temperature,
        **{f"seconds/{phase}": seconds for phase, seconds in report.seconds.items()},
    }
    groups_of = {"train": {**trl, **own}, "rollout": rollout}
    return {f"{group}/{name}": float(value) for group, own in groups_of.items() for name, value in own.items()}


def _name(run: Started) -> str:
    config = run.folder.config
    return f"{config.base_model.key}-{config.output.run_name}-{run.id}"
