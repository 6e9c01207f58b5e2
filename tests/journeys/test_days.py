"""Whole days of users, through the command line alone: what is printed, how it ends, which files are there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_as_judge.commands.app import main

HELPERS = Path(__file__).parents[1] / "helpers"
WORKFLOW = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        result = await self.answer_generate(input=problem)
        return result['answer'], 0.0
"""
APPLES = "Tom has 3 apples. He buys 4 more. How many apples does Tom have now?"


class Terminal:
    """Types commands in a folder; every one is in ``told`` with what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def types(self, *words: object, expect: int = 0) -> str:
        status = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        assert status == expect, f"exit {status}\n{out}\n{err}"
        assert "Traceback" not in err
        return out + err


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """In a folder of its own, with nothing in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)
    return Terminal(capsys)


@pytest.fixture(scope="module")
def here() -> list[str]:
    """The embedded executor and judge at a port of this test's own, and as little work as there can be."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{s.getsockname()[1]}/v1"
    chosen = {
        "executor.base_url": address, "judge.base_url": address, "rollout_batch_size": 2, "max_problems": 4,
        "num_return_sequences_in_group": 2, "eval_problems": 3,
    }  # fmt: skip
    return [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]


def test_a_newcomers_day(terminal: Terminal, here: list[str]) -> None:
    """Looks around, trains, measures, asks, and is told what a nano model cannot do."""
    assert "train" in terminal.types("--help")
    assert terminal.types("--version").startswith("llm-as-judge")
    told = terminal.types("train", "--max-steps", 1, *here)
    for words in ("untrained policy", "trained policy", "single call everywhere", "adapter"):
        assert words in told
    assert list(Path("checkpoints").rglob("step_1/adapter_model.safetensors"))
    assert list(Path("results").rglob("*.png")) and list(Path("logs").rglob("*.jsonl"))
    assert "policy with the adapter" in terminal.types("evaluate", *here)
    printed = terminal.types("solve", APPLES, "--json", *here)
    solved = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert solved["outcome"] == "finished" and "class Workflow" in solved["workflow"] and solved["trace"]
    assert "caveat" in terminal.types("solve", "Prove the spectral theorem for compact operators.", "--fallback", *here)
    terminal.types("train", "--max-steps", 2, "--resume", *here)
    assert list(Path("checkpoints").rglob("step_2/adapter_model.safetensors"))
    Path("w.py").write_text(WORKFLOW.replace("await ", ""), encoding="utf-8")
    assert "w.py:8: W204 error" in terminal.types("workflow", "lint", "w.py", expect=1)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An endpoint that fails in the way that the model's name says."""
    script = HELPERS / "misbehaving_server.py"
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        ("closed", "127.0.0.1:9"), ("unknown host", "no.such.host.invalid"), ("busy", "429"), ("broken", "500"),
        ("unauthorised", "401"), ("silent", ""), ("drip", ""), ("truncated_body", ""), ("hang_up", ""),
        ("key", "characters that a key cannot have"),
    ],
)  # fmt: skip
def test_a_researchers_endpoint_fails_before_any_work(
    failure: str, word: str, terminal: Terminal, endpoint: str
) -> None:
    address = {"closed": "http://127.0.0.1:9/v1", "unknown host": "http://no.such.host.invalid/v1"}.get(
        failure, endpoint
    )
    settings = {
        "executor.provider": "openai", "executor.base_url": address, "executor.model": f"m/{failure}",
        "executor.timeout_s": 1, "executor.max_retries": 0, "judge.mode": "rules",
    }  # fmt: skip
    if failure == "key":
        settings |= {"executor.model": "m/true", "executor.api_key": "schlüssel"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    told = terminal.types("train", "--max-steps", 1, *options, expect=2)
    assert told.count("error: ") == 1 and word in told
    assert address.removesuffix("/v1").partition("//")[2] in told or failure == "key"
    assert not list(Path().rglob("adapter_model.safetensors"))


def test_an_own_data_users_day(terminal: Terminal, here: list[str]) -> None:
    """A file with a bad row, mended, looked at, trained on and measured on, from a configuration beside it."""
    Path("mine").mkdir()
    rows = [{"problem": f"Tom has {i} apples. He buys 4 more. How many apples does Tom have now?",
             "answer": str(i + 4), "type": "math"} for i in range(3, 13)]  # fmt: skip
    lines, held = [json.dumps(row) for row in rows[:6]], [json.dumps(row) for row in rows[6:]]
    data = Path("mine/problems.jsonl")
    data.write_text("\n".join(['{"problem": "no answer", "type": "math"}', *lines]), encoding="utf-8")
    Path("mine/run.yaml").write_text(
        "train_dataset: problems.jsonl\ntest_dataset: held.jsonl\nguidance: guide.yaml\nworkflow.prompt: short\n"
        "domain_ratios: {math: 1, code: 0, qa: 0}\nprompt_max_length: 1024\nresponse_max_length: 230\n"
        "executor.max_tokens: 160\n",
        encoding="utf-8",
    )
    Path("mine/held.jsonl").write_text("\n".join(held), encoding="utf-8")
    Path("mine/guide.yaml").write_text("math: Return the number.\ncode: x\nqa: x\n", encoding="utf-8")
    run = ["--config", "mine/run.yaml", *here]
    told = terminal.types("train", "--max-steps", 1, *run, expect=2)
    assert "problems.jsonl:1" in told and "answer" in told
    data.write_text("\n".join(lines), encoding="utf-8")
    assert "6 answers of 6 records, 0 faults" in terminal.types("data", "check", "--file", data)
    assert "custom" in terminal.types("data", "inspect", "--file", data)
    terminal.types("train", "--max-steps", 1, *run)
    terminal.types("evaluate", "--data", data, "--limit", 3, *run)
    (results,) = Path("results/evaluation").glob("*.json")
    assert json.loads(results.read_text("utf-8"))
