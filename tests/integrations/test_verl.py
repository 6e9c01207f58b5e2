"""Our environment as verl's reward function: scores, parquet files, and verl's own Ray workers.

The workers are tested if ``VERL_PYTHON`` names the Python of an environment with verl (``make test-verl``).
"""

import asyncio
import json
import os
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from helpers.finished import EMBEDDED
from helpers.knowing import Knowing, Loads
from helpers.processes import program

from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError, InfrastructureError
from llm_as_judge.integrations import verl
from llm_as_judge.integrations.score import Scorer, problem_of
from llm_as_judge.workflow.shapes import SHAPES, workflow

TEXTS = [workflow(SHAPES["program"], "math"), workflow(SHAPES["direct"], "math"), "import os"]


def files(config: Config, folder: Path, executor: Knowing) -> list[dict[str, object]]:
    """Training rows of an export; the executor knows their answers."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed; make peers installs it")
    train, test = verl.export(config, folder, count=2, heldout=2)
    rows = list(datasets.Dataset.from_parquet(str(train)))
    executor.tell(*(problem_of(row["extra_info"]) for row in rows))
    assert len(datasets.Dataset.from_parquet(str(test))) == 2
    return rows


async def test_scores_are_the_cores(executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path) -> None:
    rows = files(config(), tmp_path / "files", executor)
    assert rows[0]["prompt"][-1]["role"] == "user" and rows[0]["reward_model"]["ground_truth"] == ""  # type: ignore[index]
    arguments = {"config": EMBEDDED, "overrides": overrides}

    row, own = rows[0], Scorer(config())
    found = [await verl.compute_score("x", text, "", row["extra_info"], **arguments) for text in TEXTS]  # type: ignore[arg-type]
    with closing(own):
        expected = [(await own.score(row["extra_info"], text)).reward.total for text in TEXTS]  # type: ignore[arg-type]
    assert [f["score"] for f in found] == expected
    assert [f["acc"] for f in found] == [1.0, 0.0, 0.0] and [f["outcome"] for f in found][-1] == "invalid"
    assert len({tuple(f) for f in found}) == 1 and {"correctness", "efficiency"} <= set(found[0])
    with pytest.raises(DataError):
        await verl.compute_score("x", TEXTS[0], "", {}, **arguments)  # type: ignore[arg-type]


async def test_an_outage_is_waited_for_and_never_scored(
    executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row, _) = files(config(), tmp_path / "files", executor)
    monkeypatch.setattr("llm_as_judge.rl.rollout._FIRST_WAIT_S", 0.5)
    arguments = {"config": EMBEDDED, "overrides": [*overrides, "patience_s=3"]}

    async def ask() -> dict[str, object]:
        return await verl.compute_score("x", TEXTS[0], "", row["extra_info"], **arguments)  # type: ignore[arg-type]

    await ask()
    executor.down = True
    asked = asyncio.ensure_future(ask())
    await asyncio.sleep(0.7)
    assert not asked.done()
    executor.down = False
    assert (await asked)["acc"] == 1.0
    executor.down = True
    with pytest.raises(InfrastructureError, match=r"could not be scored for 3 s.*500"):
        await ask()


@pytest.mark.verl
@pytest.mark.skipif(not os.environ.get("VERL_PYTHON"), reason="VERL_PYTHON is not set; make test-verl sets it")
def test_verls_own_ray_workers_one_of_which_is_killed(
    executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path
) -> None:
    settings = config()
    files(settings, tmp_path / "files", executor)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a socket's path must be short
        words = [Path(__file__).with_name("verl_ray.py"), tmp_path / "files/train.parquet", EMBEDDED]
        words += [locate_weights(settings.base_model.path), *overrides]
        own = {"WORKFLOWS": json.dumps(TEXTS), "RAY_FOLDER": folder, "RAY_USAGE_STATS_ENABLED": 0}
        done = program(os.environ["VERL_PYTHON"], *words, **own)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["before"]["acc"] == ["1.0", "0.0", "0.0"] * 2
    assert found["before"]["outcome"] == ["finished", "finished", "invalid"] * 2
    right, wrong, invalid = found["before"]["score"][:3]
    assert right > 8 > 0 > wrong > invalid
    assert found["killed"] in ("ActorDiedError", "RayActorError", "ActorUnavailableError"), "an error, and no reward"
    assert found["below"] >= 1 and found["left"] == 0, "a killed worker leaves no sandbox behind"
    assert found["after"] == found["before"], "the other worker goes on"
