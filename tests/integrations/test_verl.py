"""Our environment for verl: its files, what its agent loop asks, and that loop in verl's own Ray workers.

The workers are tested if ``VERL_PYTHON`` names the Python of an environment with verl (``make test-verl``).
"""

import asyncio
import itertools
import json
import math
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers.finished import EMBEDDED
from helpers.knowing import Knowing, Loads
from helpers.processes import program

from llm_as_judge.config.loading import locate_weights
from llm_as_judge.errors import InfrastructureError
from llm_as_judge.integrations.rows import training_rows
from llm_as_judge.integrations.score import Scorer, problem_of
from llm_as_judge.integrations.verl import Actor, export
from llm_as_judge.types import Attempt
from llm_as_judge.workflow.shapes import SHAPES, workflow

TEXTS = [workflow(SHAPES["program"], "math"), workflow(SHAPES["direct"], "math"), "import os"]


@pytest.fixture
def record(executor: Knowing, config: Loads) -> str:
    """A problem whose answer the executor knows."""
    (row,) = training_rows(config(), 1)
    executor.tell(problem_of(row))
    return str(row["record"])


async def test_turns_are_the_cores(executor: Knowing, config: Loads, overrides: list[str], record: str) -> None:
    scores = Actor(EMBEDDED, [*overrides, "repairs=1"])
    told = await scores.turn(record, TEXTS[2], "stop", ("p", 0))
    assert isinstance(told, Attempt) and "no class Workflow" in told.told
    found: list[Any] = [await scores.turn(record, text, "stop", ("p", i), last=True) for i, text in enumerate(TEXTS)]
    found.append(await scores.turn(record, TEXTS[0], "stop", ("p", 3), (told,)))
    with closing(Scorer(config())) as own:
        expected = [(await own.score({"record": record}, text)).reward.total for text in TEXTS]
    assert [reward for reward, _ in found[:3]] == expected and expected[0] > found[3][0] > 0
    assert [figures["acc"] for _, figures in found] == [1, 0, 0, 1] and found[2][1]["outcome"] == "invalid"
    assert len({tuple(figures) for _, figures in found}) == 1 and {"correctness", "efficiency"} <= set(found[0][1])


async def test_an_outage_is_waited_for_and_never_scored(
    executor: Knowing, overrides: list[str], record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_as_judge.rl.rollout._FIRST_WAIT_S", 0.1)
    scores = Actor(EMBEDDED, [*overrides, "patience_s=1", "mask_truncated_completions=true"])

    places = itertools.count()

    async def ask(text: str = TEXTS[0]) -> tuple[float | None, dict[str, Any]]:
        return await scores.turn(record, text, "stop", ("p", next(places)))  # type: ignore[return-value]

    await ask()
    executor.down = True
    asked = asyncio.ensure_future(ask())
    await asyncio.sleep(0.2)
    assert not asked.done()
    executor.down = False
    assert (await asked)[1]["acc"] == 1
    executor.down = True
    with pytest.raises(InfrastructureError, match=r"could not be scored, nor any other.*500"):
        await asyncio.gather(ask(), ask(TEXTS[2]))
    cut = await scores.turn(record, TEXTS[0], "length", ("p", 0))
    assert cut[0] is None and math.isnan(cut[1]["correctness"]), "unscored without a wait"  # type: ignore[index]


@pytest.mark.verl
@pytest.mark.skipif(not os.environ.get("VERL_PYTHON"), reason="VERL_PYTHON is not set; make test-verl sets it")
def test_verls_own_agent_loop_workers(executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="datasets is not installed; make peers installs it")
    export(EMBEDDED, [*overrides, "repairs=1", "mask_truncated_completions=true"], tmp_path, 2)
    executor.tell(*map(problem_of, training_rows(config(), 2)))
    texts = [*TEXTS, "x = 1\n" * 200]
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a socket's path must be short
        own = {"WORKFLOWS": json.dumps(texts), "RAY_FOLDER": folder, "RAY_USAGE_STATS_ENABLED": 0}
        words = [Path(__file__).with_name("verl_ray.py"), tmp_path, locate_weights(config().base_model.path)]
        done = program(os.environ["VERL_PYTHON"], *words, **own)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    before, eos = found["before"], "<|end|>"
    assert before["acc"] == ["1.0", "0.0", "1.0", "0.0"] * 2
    assert before["outcome"] == ["finished", "finished", "finished", "invalid"] * 2
    assert before["finish_reason"] == ["stop", "stop", "stop", "length"] * 2
    right, wrong, repaired, unscored = before["score"][:4]
    assert right > repaired > 8 > 0 > wrong and unscored == 0 and before["correctness"][3] == "nan"
    assert before["__num_turns__"] == ["2", "2", "4", "2"] * 2
    # What is trained on: every turn of the policy's, and nothing of an unscored rollout.
    trained = [TEXTS[0] + eos, TEXTS[1] + eos, TEXTS[2] + eos + TEXTS[0] + eos, ""]
    assert before["trained"] == trained * 2 and before["logprobs"] == [-1]
    assert "no class Workflow" in before["given"][2] and not any(before["given"][:2])
    assert all(before["advantages"][:3]) and before["advantages"][3] == 0
    assert sum(before["advantages"][:3]) == pytest.approx(0, abs=1e-4), "the unscored rollout is not in the mean"
    assert len(before["actors"]) == 1, "one executor client for both workers"
    assert found["below"] >= 1 and found["left"] == 0, "a killed actor leaves no sandbox behind"
    assert found["after"] == before, "and Ray starts it again"
    assert found["killed"] == "ActorDiedError", "a killed worker is an error, and no reward"
