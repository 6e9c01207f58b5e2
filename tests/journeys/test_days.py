"""Whole days of users, through the command line alone: what is printed, how it ends, which files exist afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_as_judge.commands.app import main

pytestmark = pytest.mark.slow
HELPERS = Path(__file__).parents[1] / "helpers"
APPLES = "Tom has {} apples. He buys 4 more. How many apples does Tom have now?"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in an empty folder and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)

    def typed(*words: object, expect: int = 0) -> str:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert status == expect and "Traceback" not in err, f"exit {status}\n{out}\n{err}"
        return out + err

    return typed


@pytest.fixture
def small(address: str) -> list[str]:
    """The embedded executor and judge, and as little work as possible."""
    chosen = {
        "executor.base_url": address, "judge.base_url": address, "rollout_batch_size": 2, "max_problems": 4,
        "num_return_sequences_in_group": 2, "eval_problems": 3,
    }  # fmt: skip
    return [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An endpoint that fails as the model's name says."""
    script = HELPERS / "misbehaving_server.py"
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


def test_a_researchers_endpoint_fails_before_any_work(run: Callable[..., str], endpoint: str) -> None:
    failures = {
        "closed": "127.0.0.1:9", "unknown host": "no.such.host.invalid", "busy": "429", "broken": "500",
        "unauthorised": "401", "silent": "", "drip": "", "truncated_body": "", "hang_up": "", "key": "key",
    }  # fmt: skip
    elsewhere = {"closed": "http://127.0.0.1:9/v1", "unknown host": "http://no.such.host.invalid/v1"}
    for failure, word in failures.items():
        settings = {
            "executor.provider": "openai", "executor.base_url": elsewhere.get(failure, endpoint),
            "executor.model": f"m/{failure}", "executor.timeout_s": 1, "executor.max_retries": 0, "judge.mode": "rules",
        }  # fmt: skip
        if failure == "key":
            settings |= {"executor.model": "m/true", "executor.api_key": "schlüssel"}
        options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        printed = run("train", "--max-steps", 1, *options, expect=2)
        assert printed.count("error: ") == 1 and word in printed, failure
        assert not list(Path().rglob("adapter_model.safetensors"))


def test_an_own_data_users_day(run: Callable[..., str], small: list[str]) -> None:
    """A file with a bad row, corrected, checked, trained on and evaluated, with a configuration of its own."""
    Path("mine").mkdir()
    lines = [json.dumps({"problem": APPLES.format(i), "answer": str(i + 4), "type": "math"}) for i in range(3, 13)]
    data = Path("mine/problems.jsonl")
    data.write_text("\n".join(['{"problem": "no answer", "type": "math"}', *lines[:6]]), encoding="utf-8")
    Path("mine/held.jsonl").write_text("\n".join(lines[6:]), encoding="utf-8")
    Path("mine/guide.yaml").write_text("math: Return the number.\ncode: x\nqa: x\n", encoding="utf-8")
    Path("mine/run.yaml").write_text(
        "train_dataset: problems.jsonl\ntest_dataset: held.jsonl\nguidance: guide.yaml\nworkflow.prompt: short\n"
        "domain_ratios: {math: 1, code: 0, qa: 0}\nprompt_max_length: 1024\nresponse_max_length: 230\n"
        "executor.max_tokens: 160\n",
        encoding="utf-8",
    )
    own = ["--config", "mine/run.yaml", *small]
    printed = run("train", "--max-steps", 1, *own, expect=2)
    assert "problems.jsonl:1" in printed and "answer" in printed
    data.write_text("\n".join(lines[:6]), encoding="utf-8")
    assert "6 answers of 6 records, 0 faults" in run("data", "check", "--file", data)
    assert "custom" in run("data", "inspect", "--file", data)
    run("train", "--max-steps", 1, *own)
    run("evaluate", "--data", data, "--limit", 3, *own)
    (results,) = Path("results/evaluation").glob("*.json")
    assert json.loads(results.read_text("utf-8"))
