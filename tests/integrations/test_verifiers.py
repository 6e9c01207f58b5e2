"""Our environment under verifiers' own environment server, its client and its commands.

The policy is an endpoint that replies with given workflows; executor, sandbox and rules are real.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.finished import EMBEDDED
from helpers.knowing import Knowing, Loads, knowing
from helpers.processes import ROOT, processes

from llm_as_judge.errors import DataError
from llm_as_judge.integrations.rows import heldout_rows, training_rows
from llm_as_judge.integrations.score import Scorer, problem_of
from llm_as_judge.types import Completion, Execution, Problem, Question, Reference, Reward, Rollout, Verdict
from llm_as_judge.workflow.shapes import SHAPES, workflow

verifiers = pytest.importorskip("verifiers", reason="verifiers is not installed; make test-verifiers installs it")

import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.cli.eval.main import main as evaluate  # noqa: E402
from verifiers.v1.cli.gepa import main as optimise  # noqa: E402
from verifiers.v1.serve import EnvClient, EnvServer  # noqa: E402

from llm_as_judge_env.taskset import WorkflowData, WorkflowTask, facts  # noqa: E402

TEXTS = [workflow(SHAPES["program"], "math"), workflow(SHAPES["direct"], "math"), "import os"]
Run = Callable[[vf.Task], Any]


@dataclass
class Writing(Knowing):
    """The endpoint of a policy that writes ``texts`` in turn."""

    texts: list[str] = field(default_factory=lambda: list(TEXTS))
    prompts: list[str] = field(default_factory=list)

    def reply(self, prompt: str, seed: int | None = None) -> str:
        self.prompts.append(prompt)
        return self.texts[(len(self.prompts) - 1) % len(self.texts)]


@pytest.fixture
def policy() -> Iterator[Writing]:
    served = Writing()
    with knowing(served):
        yield served


@asynccontextmanager
async def served(policy: Writing, overrides: list[str], **taskset: object) -> AsyncIterator[tuple[list[vf.Task], Run]]:
    """The tasks, and a function that runs one of them on verifiers' server."""
    task = {"config": EMBEDDED, "overrides": overrides}
    environment = vf.resolve_env_config({"taskset": {"id": "llm-as-judge-env", "task": task, **taskset}})
    server = EnvServer(environment, "tcp://127.0.0.1:0")
    running, client = asyncio.create_task(server.run()), EnvClient(server.address)
    endpoint = vf.EvalClientConfig(base_url=policy.url, api_key_var="KEY_OF_NOBODY")

    async def run(task: vf.Task) -> vf.Trace:
        reply = await client.run(endpoint, "policy", vf.SamplingConfig(), task.data.model_dump(mode="json"))
        (trace,) = reply.traces
        return trace

    try:
        await client.wait_for_server_startup(interval=0.1)
        yield list(server.env.taskset), run
    finally:
        await client.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_scores_are_the_cores(policy: Writing, executor: Knowing, config: Loads, overrides: list[str]) -> None:
    settings = config()
    rows, own = training_rows(settings, 2), Scorer(settings)
    executor.tell(*map(problem_of, rows))
    async with served(policy, overrides, count=2) as (tasks, run):
        traces = await asyncio.gather(*(run(tasks[1]) for _ in TEXTS))
    assert sorted(trace.last_reply for trace in traces) == sorted(text.strip() for text in TEXTS)
    for trace in traces:
        shown = [{"role": message.role, "content": message.content} for message in trace.messages[:-1]]
        assert shown == rows[1]["prompt"] and trace.ok and trace.num_turns == 1
        expected = await own.score(rows[1], trace.last_reply)
        assert trace.reward == expected.reward.total and trace.info == facts(expected)
        assert trace.metrics == {
            **expected.reward.terms,
            "accuracy": float(expected.verdict.correct is True),
            "executor_tokens": expected.execution.tokens,
        }
    own.close()
    assert policy.prompts == [rows[1]["prompt"][-1]["content"]] * 3
    assert sorted(trace.metrics["accuracy"] for trace in traces) == [0, 0, 1]
    right, wrong, invalid = (trace.info for trace in sorted(traces, key=lambda trace: -trace.reward))
    assert (right["operators"], wrong["operators"]) == (["Programmer"], ["Custom"])
    assert right["answer"] == problem_of(rows[1]).reference.first and right["reason"] == "equivalent to a reference"
    assert wrong["findings"] == [] and invalid["findings"][0]["fatal"] and invalid["error"]


def test_info_has_nothing_of_the_reference_or_of_hidden_tests() -> None:
    def told(reference: Reference, *verdict: Any) -> dict[str, Any]:
        problem, ran = Problem(Question("p", "Who?", "qa"), reference), Execution("finished", "Bob", error="late")
        completion = Completion("x", (), (), (), "stop")
        return facts(Rollout(problem, completion, "x", ran, Verdict(False, *verdict), Reward(0.0)))

    tested = told(Reference(tests="assert f(2) == 4711, 'not 4711'"), "tests", "tests failed: raised: not 4711")
    assert tested["reason"] == "tests failed" and "4711" not in str(tested) and tested["answer"] == "Bob"
    for quoted in ("Ada King-Noel 1,815", "ADA KING-NOEL 1,815", "Ada King Noel, 1815"):
        judged = told(Reference(("Ada King-Noel 1,815",)), "llm", f"Bob is not {quoted}.")
        assert judged["reason"] == "Bob is not [reference]." and not re.search("noel|815", str(judged), re.IGNORECASE)


async def test_failures_are_repaired(policy: Writing, executor: Knowing, config: Loads, overrides: list[str]) -> None:
    settings = config("repairs=1")
    (row,) = training_rows(settings, 1)
    executor.tell(problem_of(row))
    policy.texts = [TEXTS[2], TEXTS[0]]
    async with served(policy, [*overrides, "repairs=1"], count=1) as ((task,), run):
        trace = await run(task)
    (attempt,) = trace.info["attempts"]
    assert trace.ok and trace.num_turns == 2 and trace.last_reply == TEXTS[0].strip()
    assert attempt["execution"]["outcome"] == "invalid" and trace.messages[-2].content == attempt["told"]
    own = Scorer(settings)
    clean = await own.score(row, TEXTS[0])
    own.close()
    assert clean.reward.total is not None
    assert trace.reward == pytest.approx(clean.reward.total - settings.reward.repair_cost - 0.05 * 5)


async def test_a_function_of_ones_own_decides(
    policy: Writing, executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path
) -> None:
    (row,) = training_rows(config(), 1)
    executor.tell(problem_of(row))
    own = tmp_path / "own.py"
    own.write_text("def half(completions, **more):\n    return [0.5] * len(completions)\n")
    policy.texts = TEXTS[:1]
    async with served(policy, [*overrides, f"judge.function={own}:half"], count=1) as ((task,), run):
        trace = await run(task)
    assert trace.ok and trace.metrics["correctness"] == 2.5 and trace.metrics["accuracy"] == 0


async def test_unscored_has_no_reward(policy: Writing, executor: Knowing, config: Loads, overrides: list[str]) -> None:
    (row,) = training_rows(config(), 1)
    executor.tell(problem_of(row))
    policy.texts = TEXTS[:1]
    async with served(policy, overrides, count=1) as ((task,), run):
        found = await run(task)
        executor.down = True
        lost = await run(task)
        executor.down, policy.down = False, True
        unheard = await run(task)
        policy.down = False
        policy.finish_reason = "length"
        cut = await run(task)
    # prime-rl leaves traces that are not ``ok`` out of training and of the group's mean.
    for trace, kind, words in ((lost, "TaskError", "HTTP 500"), (unheard, "ProviderError", "500")):
        assert not trace.ok and trace.has_error and not any(trace.rewards.values())
        assert trace.last_error.type == kind and words in trace.last_error.message
    assert lost.rewards == {"workflow_reward": None} and "could not be scored" in lost.last_error.message
    assert found.ok and found.reward > 8 > 0 > cut.reward and cut.ok


async def test_no_process_is_left(policy: Writing, executor: Knowing, config: Loads, overrides: list[str]) -> None:
    settings, before = config(), processes(os.getpid())
    executor.tell(problem_of(training_rows(settings, 1)[0]))
    policy.texts = TEXTS[:1]
    async with served(policy, overrides, count=1) as ((task,), run):
        traces = await asyncio.gather(*(run(task) for _ in range(8)))
        assert processes(os.getpid()) - before
    assert all(trace.metrics["accuracy"] == 1 for trace in traces)
    assert not processes(os.getpid()) - before


def test_the_evaluation_command(
    policy: Writing, executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path
) -> None:
    rows = heldout_rows(config(), 3)
    executor.tell(*map(problem_of, rows))
    policy.texts = TEXTS[:1]
    evaluate(
        [
            "llm-as-judge-env", "--env.taskset.task.config", EMBEDDED,
            "--env.taskset.task.overrides", json.dumps(overrides), "--env.taskset.split", "heldout",
            "--env.taskset.count", "3", "-r", "2", "-m", "policy", "--client.base-url", policy.url,
            "--no-push", "--no-rich", "--run.name", "held-out",
        ]
    )  # fmt: skip
    episodes = [json.loads(line) for line in (tmp_path / "outputs/held-out/traces.jsonl").read_text().splitlines()]
    named = sorted(episode["task"]["data"]["name"] for episode in episodes)
    assert named == sorted(row["id"] for row in rows for _ in range(2))
    assert all(episode["traces"][0]["metrics"]["accuracy"] == 1 for episode in episodes)


def test_the_prompt_is_optimised(
    policy: Writing, executor: Knowing, config: Loads, overrides: list[str], tmp_path: Path
) -> None:
    executor.tell(*map(problem_of, training_rows(config(), 2)))
    policy.texts = [TEXTS[1], TEXTS[1], "```\nWrite it well.\n```", TEXTS[0], TEXTS[0]]
    command = [
        "llm-as-judge-env", "--env.taskset.task.config", EMBEDDED,
        "--env.taskset.task.overrides", json.dumps(overrides), "--env.taskset.count", "2",
        "--num-train", "1", "--num-val", "1", "--max-total-rollouts", "4", "--reflection-minibatch-size", "1",
        "-m", "policy", "--client.base-url", policy.url, "--reflection-columns", json.dumps(["operators", "reason"]),
        "--run.name", "prompt",
    ]  # fmt: skip
    optimise([*command, "--dry-run"])
    resolved = json.loads((tmp_path / "outputs/prompt/configs/resolved/gepa.json").read_text())["env"]
    assert resolved["agent"]["runtime"]["type"] == "subprocess", "the configuration of WorkflowEnv"
    assert not policy.prompts, "a dry run asks nobody"
    optimise(command)
    assert (tmp_path / "outputs/prompt/best_system_prompt.txt").read_text() == "Write it well."
    assert "no answer but ignorance" in policy.prompts[2], "the model that rewrites sees the info of a trace"


def test_the_folder_is_a_package_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed; make test-verifiers installs it")
    folder = ROOT / "llm_as_judge_env"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=folder, check=True)
    with zipfile.ZipFile(*tmp_path.glob("llm_as_judge_env-*.whl")) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == {f"llm_as_judge_env/{file.name}" for file in [*folder.glob("*.py"), folder / "py.typed"]}


def test_a_missing_reply_is_not_scored() -> None:
    task = WorkflowTask(WorkflowData(record="{}", domain="math", dataset=""))
    with pytest.raises(DataError, match="longer context"):
        asyncio.run(task.workflow_reward(vf.Trace.model_construct(nodes=[])))
