"""A real vLLM server for tests, run by the Python interpreter named in VLLM_PYTHON."""

import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from helpers.processes import free_port
from llm_as_judge.config.loading import load_config
from llm_as_judge.policy.vllm_server import command, server_environment

PYTHON = os.environ.get("VLLM_PYTHON", "")
START_S = 300
#: Its environment on this CPU, without a network.
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
OPTIONS = "engine.options=[--enforce-eager, --max-num-seqs, '32']"

needs_vllm = [pytest.mark.vllm, pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON is not set; make test-vllm sets it")]


class Server:
    """vLLM on a free port, in its own process group, started as a run starts it."""

    def __init__(self, model: str, log: Path, name: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.model, self.log, self.name = model, log, name
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = load_config("config/embedded.yaml", [f"engine.python={PYTHON}", "lora_rank=64", OPTIONS])
        words = [*command(config, self.model, self.name, "float32"), "--port", str(self.port)]
        kept = {name: value for name, value in server_environment(config.engine, "cpu").items() if name != "PYTHONPATH"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, env={**kept, **QUIET}, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        assert self.process is not None
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
        raise AssertionError(f"no vLLM server within {START_S} s")

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
