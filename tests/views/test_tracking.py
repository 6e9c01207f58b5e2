"""A run's curves in trackio, wandb and tensorboard, as each of them reads them back."""

import json
import logging
import math
import re
import sqlite3
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.finished import as_options, run_settings
from helpers.processes import program
from helpers.run_logs import read_rollouts

from llm_as_judge.assembly import tracking as module
from llm_as_judge.assembly.tracking import Tracking, step_metrics, tracking
from llm_as_judge.config.schema import TrackingConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rl.report import StepReport

REPORT = StepReport(
    step=3, reward_mean=4.5, accuracy=0.5, valid_rate=0.75, domain_accuracy={"math": 0.5}, executor_tokens=100.0,
    completion_tokens=40.0, loss=0.1, kl=math.nan, entropy=0.02, clip_fraction=0.25, corrected=0.0, grad_norm=1.5,
    learning_rate=1e-3, groups=4, rollouts=16, skipped_groups=1, refilled_groups=0, unscored=2,
    seconds={"generate": 1.0, "update": 2.0}, truncated=0.125, reward_std=2.0, terms={"format": 7.5},
)  # fmt: skip
#: Metrics without a name in TRL.
OWN = r"train/(accuracy(/\w+)?|valid_rate)|rollout/.*"


class Kept:
    def __init__(self, fails: bool = False) -> None:
        self.fails, self.told, self.closed = fails, list[tuple[int, Mapping[str, float]]](), False

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if self.fails:
            raise ConnectionError("no such server")
        self.told.append((step, metrics))

    def finish(self) -> None:
        self.closed = True


def test_metrics_are_the_steps_figures_and_a_failing_tool_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    found = step_metrics(REPORT)
    assert found["train/reward"] == 4.5 and found["train/reward_std"] == 2.0 and found["train/step_time"] == 3.0
    assert found["train/frac_reward_zero_std"] == 0.25 and found["train/completions/clipped_ratio"] == 0.125
    assert found["train/rewards/format/mean"] == 7.5 and found["train/accuracy/math"] == 0.5
    assert found["rollout/executor_tokens"] == 100 and found["rollout/seconds/update"] == 2.0
    assert {name.partition("/")[0] for name in found} == {"train", "rollout"}
    assert found["train/clip_ratio/region_mean"] == 0.25 and math.isnan(found["train/kl"])
    good, bad = Kept(), Kept(fails=True)
    found = Tracking(TrackingConfig(), 0, {"bad": bad, "good": good})
    with caplog.at_level(logging.WARNING):
        found.step(REPORT)
        found.step(REPORT)
    assert [step for step, _ in good.told] == [3, 3] and "train/kl" not in good.told[0][1]
    assert caplog.text.count("bad failed and gets no more metrics of this run: ConnectionError: no such server") == 1
    found.each(lambda _, run: run.finish())
    assert good.closed


@pytest.mark.skipif(not find_spec("trl"), reason="TRL is a peer: make peers installs it")
def test_names_are_trls_where_trl_has_them() -> None:
    spec = find_spec("trl")
    assert spec is not None and spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    source = (folder / "trainer/grpo_trainer.py").read_text() + (folder / "trainer/base_trainer.py").read_text()
    source += "".join(path.read_text() for path in (folder.parent / "transformers").glob("trainer*.py"))
    source = source.replace('f"rewards/{reward_func_name}/mean"', '"rewards/format/mean"')
    ours = [name for name in step_metrics(REPORT) if not re.fullmatch(OWN, name)]
    assert len(ours) == 14
    assert not [name for name in ours if f'"{name.removeprefix("train/")}"' not in source]


def test_a_missing_library_is_reported_at_once(here: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "pip install 'llm-as-judge[wandb]'" in cli.refused("train", "--set", "tracking.report_to=[wandb]")
    assert not list(here.iterdir())
    with pytest.raises(ConfigError, match=r"report_to=none"), tracking(TrackingConfig(report_to=("trackio",))):
        pass


@pytest.mark.slow
def test_real_trackers_get_a_real_run(here: Path, address: str) -> None:
    tools = [name for name in ("trackio", "wandb", "tensorboard") if find_spec(name)]
    if not tools:
        pytest.skip("none of trackio, wandb, tensorboard is there; make peers installs two of them")
    changes = run_settings(
        here, address, rollout_batch_size=1, num_return_sequences_in_group=2, eval_problems=2,
        baselines="none", save_every=2, **{"tracking.report_to": f"[{', '.join(tools)}]"},
    )  # fmt: skip
    own = {"TRACKIO_DIR": here / "trackio", "WANDB_MODE": "offline"}
    done = program(sys.executable, "-m", "llm_as_judge", "train", *as_options(changes), **own)
    assert done.returncode == 0, done.stderr
    log = [json.loads(line) for line in (here / "logs/nano/grpo_mixed.jsonl").read_text().splitlines()]
    rewards = {event["step"]: event["reward_mean"] for event in log if event["kind"] == "step"}
    (validated,) = (event["scores"]["overall"] for event in log if event["kind"] == "eval")
    if "trackio" in tools:
        (database,) = (here / "trackio").glob("*.db")
        rows = sqlite3.connect(database).execute("select step, metrics from metrics").fetchall()
        told = [(step, json.loads(metrics)) for step, metrics in rows]
        assert {step: m["train/reward"] for step, m in told if "train/reward" in m} == pytest.approx(rewards)
        assert [m["eval/accuracy"] for _, m in told if "eval/accuracy" in m] == [validated]
        assert [step for step, m in told if "eval/heldout/accuracy" in m] == [0, 2]
        (table,) = (m["completions"]["_value"] for _, m in told if "completions" in m)
        written = [(e.rollout, e.advantage) for e in read_rollouts("logs/nano/grpo_mixed.jsonl") if e.step == 2]
        shown = [(row["problem"], row["completion"], row["correct"], row["advantage"]) for row in table]
        assert len(table) == 2 and {row["step"] for row in table} == {2}
        assert shown == [(r.problem.question.id, r.workflow, r.verdict.correct, a) for r, a in written]
