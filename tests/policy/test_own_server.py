"""A run's own vLLM server: its command line, that it ends with the run, and errors at the start.

A small program replaces vLLM, except in the last test (`make test-vllm`).
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helpers.finished import EMBEDDED, run_settings
from helpers.processes import free_port
from helpers.processes import running as alive
from helpers.run_logs import read_rollouts
from helpers.vllm import PYTHON, QUIET, needs_vllm

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.config.endpoints import EngineConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.llm.transport import Transport
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.policy.vllm_server import OwnServer, command, environment

#: Answers every GET request; starts a child that would outlive it, and writes process ids to the file $NOTES.
STAND_IN = f"""#!{sys.executable}
import http.server, json, os, subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
noted = {{"pids": [os.getpid(), child.pid], "words": sys.argv[1:], "environment": dict(os.environ)}}
open(os.environ["NOTES"], "w").write(json.dumps(noted))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"fine")
print("up", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def program(folder: Path, text: str = STAND_IN) -> str:
    file = folder / "vllm-python"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def gone(pid: int) -> bool:
    """Whether a process ends; a busy machine may need long for it."""
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def start(config: Config, folder: Path) -> OwnServer:
    words = command(config, "weights", "name", "bfloat16")
    return OwnServer(config.engine, words, "cuda:1", folder / "logs/server.log")


def test_command_line_and_environment_follow_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["lora_rank=24", "seed=5", "engine.gpus=2,3", "engine.options=[--enforce-eager]", "engine.python=py"]
    config = load_config("config/training.yaml", ["generation.engine=vllm", *settings])
    assert config.engine.base_url == "", "config/training.yaml starts a server unless VLLM_BASE_URL is set"
    words = command(config, "weights", "name", "bfloat16")
    assert words[:4] == ["py", "-m", "vllm.entrypoints.openai.api_server", "--enable-lora"]
    assert words[-1] == "--enforce-eager"
    longest = config.training.prompt_max_length + config.training.response_max_length
    assert dict(zip(words[4:-1:2], words[5:-1:2], strict=True)) == {
        "--host": "127.0.0.1", "--model": "weights", "--served-model-name": "name",
        "--dtype": "bfloat16", "--max-model-len": str(longest), "--max-lora-rank": "32", "--max-loras": "2",
        "--gpu-memory-utilization": "0.35", "--tensor-parallel-size": "2", "--seed": "5", "--generation-config": "vllm",
        "--logprobs-mode": "processed_logprobs",
    }  # fmt: skip
    both = [*settings, "executor.provider=local", "executor.model=policy", "executor.context=20000"]
    words = command(load_config("config/training.yaml", both), "weights", "name", "bfloat16")
    assert words[words.index("--max-model-len") + 1] == "20000", "it also answers as the executor"
    with pytest.raises(ConfigError, match=r"lora_rank=513: vLLM serves ranks up to 512"):
        command(load_config(None, ["lora_rank=513"]), "weights", "name", "float32")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    own = environment(EngineConfig(api_key="sk-1"), "cuda:1")
    assert (own["CUDA_VISIBLE_DEVICES"], own["VLLM_API_KEY"]) == ("1", "sk-1")
    assert "WORLD_SIZE" not in own, "vLLM would take itself for a rank of torchrun"
    assert environment(EngineConfig(gpus="2,3"), "cuda:1")["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in environment(EngineConfig(), "cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert environment(EngineConfig(), "cuda:1")["CUDA_VISIBLE_DEVICES"] == "6"


async def test_it_ends_with_all_its_processes_past_proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "noted"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = start(load_config(None, [f"engine.python={program(tmp_path)}"]), tmp_path)
    noted, address = json.loads((tmp_path / "noted").read_text()), server.config
    assert "up" in server.log.read_text() and "PYTHONPATH" not in noted["environment"]

    async with aclosing(Transport(address)) as transport:
        assert await transport.ask("/models", None, str) == "fine"
    del server
    assert all(gone(pid) for pid in noted["pids"])


def test_it_ends_if_the_run_is_killed(tmp_path: Path) -> None:
    run = (
        "import sys, time; from pathlib import Path; from llm_as_judge.policy.vllm_server import OwnServer, command;"
        "from llm_as_judge.config.loading import load_config;"
        "config = load_config(None, sys.argv[1:2]); words = command(config, 'w', 'n', 'float32');"
        "s = OwnServer(config.engine, words, 'cpu', Path(sys.argv[2]));"
        "print('up', flush=True); time.sleep(1000)"
    )
    noted = {**os.environ, "NOTES": str(tmp_path / "noted")}
    command = [sys.executable, "-c", run, f"engine.python={program(tmp_path)}", str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=noted) as running:
        assert running.stdout is not None and running.stdout.readline() == b"up\n"
        os.kill(running.pid, signal.SIGKILL)
    assert all(gone(pid) for pid in json.loads((tmp_path / "noted").read_text())["pids"])


def test_a_server_that_does_not_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    for text, seconds, noted in (
        ("#!/bin/sh\necho no kernel image >&2\nexit 3\n", 60, r"(?s)status 3\. Install vLLM.*no kernel image$"),
        ("#!/bin/sh\necho loading\nsleep 100\n", 1, r"(?s)within engine\.restart_s=1 s; raise it"),
        (None, 60, r"(?s)ended with status 127.*/missing: No such file"),
    ):
        python = program(tmp_path, text) if text else str(tmp_path / "missing")
        with pytest.raises(ConfigError, match=noted):
            start(load_config(None, [f"engine.python={python}", f"engine.restart_s={seconds}"]), tmp_path)


@pytest.mark.vllm
@pytest.mark.gpu
@needs_vllm[1]
def test_a_run_starts_uses_and_ends_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    address = f"http://127.0.0.1:{free_port()}/v1"
    engine = {"generation.engine": "vllm", "engine.python": PYTHON, "device": device, "dtype": "float32"}
    # On a CPU, vLLM 0.32 ends when a request with a seed does not fit the first batch as a whole.
    words = "[--enforce-eager, --no-enable-chunked-prefill, --max-num-seqs, '16']"
    options = {"engine.options": words, "rollout_batch_size": 2}
    # The same server answers the operators, with the base weights.
    options |= {"executor.provider": "local", "executor.model": "policy", "executor.context": 1024}
    options |= {"judge.mode": "rules"}
    config = load_config(EMBEDDED, run_settings(tmp_path, address, **engine, **options))
    report = asyncio.run(GRPOTrainer(config=config).train(2))
    assert report is not None and report.step == 2
    log = (tmp_path / "logs/nano/policy_server.log").read_text(errors="replace")
    assert "/v1/load_lora_adapter" in log and "/v1/chat/completions" in log
    rollouts = read_rollouts(tmp_path / "logs/nano/grpo_mixed.jsonl")
    assert all(event.rollout.tokens for event in rollouts) and report.unscored == 0
    author = load_author(config)
    assert isinstance(author.engine, VLLMEngine)
    own = author.engine._own
    assert own is not None
    port = f"--port {urlsplit(own.config.base_url).port}$"  # the last word; without $ 5000 is also in 50001
    pids = [int(pid) for pid in subprocess.check_output(["pgrep", "-f", "--", port], text=True).split()]
    del author, own
    assert pids and all(gone(pid) for pid in pids)
