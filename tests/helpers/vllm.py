"""A real vLLM server for tests, run by the Python interpreter named in VLLM_PYTHON."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from helpers.processes import free_port

PYTHON = os.environ.get("VLLM_PYTHON", "")
START_S = 300

needs_vllm = [pytest.mark.vllm, pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON is not set; make test-vllm sets it")]


class Server:
    """vLLM on a free port, in its own process group."""

    def __init__(
        self, model: str, log: Path, name: str, *, dtype: str = "float32", length: int = 2048, rank: int = 64
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.model, self.log = model, log
        self.name, self.dtype, self.length, self.rank = name, dtype, length, rank
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = (
            f"--host 127.0.0.1 --port {self.port} --served-model-name {self.name} --enable-lora "
            f"--max-lora-rank {self.rank} --max-loras 2 --dtype {self.dtype} --max-model-len {self.length} "
            "--max-num-seqs 32 --enforce-eager --logprobs-mode processed_logprobs"
        )
        quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        # The console script needs a distribution called "vllm". PYTHONPATH is for this interpreter only.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, *options.split()],
                env={**environment, **quiet, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
                stdout=log,
                stderr=log,
                start_new_session=True,
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

    def models(self) -> set[str]:
        with urllib.request.urlopen(self.url + "/v1/models", timeout=30) as reply:
            return {m["id"] for m in json.load(reply)["data"]}
