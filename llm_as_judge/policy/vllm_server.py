"""vLLM server of a run without a configured one: started with the run, and ended with it even if the run is killed.

This module, run as a program, is a keeper process between the run and vLLM. It reads a pipe whose other end only the
run holds. When that end closes, the keeper kills vLLM with all its processes, so that no GPU stays occupied.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.config.endpoints import EngineConfig
from llm_as_judge.config.schema import POLICY, Config
from llm_as_judge.errors import ConfigError

#: LoRA ranks that vLLM supports.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
#: Adapters on the server at the same time: the new one and the one that it replaces.
_ADAPTERS = 2
_ENDING_S = 20.0
_TAIL_CHARS = 2000
#: Variables that a launcher sets for its processes; vLLM would take itself for one of them.
_LAUNCHERS = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


class OwnServer:
    """vLLM on a free local port, started by ``words`` (``command``), until ``stop`` or deletion.

    It uses the policy's ``device`` unless ``engine.gpus`` is set. Raises ``ConfigError`` with the end of ``log`` if it
    does not answer within ``engine.restart_s`` seconds.
    """

    def __init__(self, engine: EngineConfig, words: Sequence[str], device: str, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.config = engine.model_copy(update={"base_url": f"http://127.0.0.1:{port}/v1"})
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        keeper = [sys.executable, "-m", "llm_as_judge.policy.vllm_server"]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*keeper, *words, "--port", str(port)],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=server_environment(engine, device),
                start_new_session=True,
            )
        self.stop = weakref.finalize(self, _end, self._process)
        try:
            self._wait(f"http://127.0.0.1:{port}/health", engine.restart_s)
        except BaseException:
            self.stop()
            raise

    def _wait(self, address: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy says
        while self._process.poll() is None:
            with contextlib.suppress(OSError), direct.open(address, timeout=5):
                return
            if time.monotonic() > end:
                raise ConfigError(self._failed(f"did not answer within engine.restart_s={seconds:g} s; raise it"))
            time.sleep(0.2)
        raise ConfigError(self._failed(f"ended with status {self._process.returncode}"))

    def _failed(self, how: str) -> str:
        tail = self.log.read_text("utf-8", errors="replace")[-_TAIL_CHARS:].strip()
        return (
            f"the policy's own vLLM server {how}. Install vLLM (engine.python names the Python of another "
            "environment), lower engine.gpu_memory_utilization, or give engine.base_url. The end of "
            f"{self.log}:\n{tail}"
        )


def command(config: Config, model: str, name: str, dtype: str) -> list[str]:
    """Build the command line of vLLM for ``model`` (a folder or hub id) as ``name``, without its port.

    Raises ``ConfigError`` for a LoRA rank that vLLM does not support.
    """
    engine, training = config.engine, config.training
    rank = next((rank for rank in _RANKS if rank >= config.model.lora_rank), None)
    if rank is None:
        raise ConfigError(f"model.lora_rank={config.model.lora_rank}: vLLM serves ranks up to {_RANKS[-1]}; lower it")
    options = {
        "host": "127.0.0.1",
        "model": model,
        "served-model-name": name,
        "dtype": dtype,
        "max-model-len": max([config.longest_episode, *[own.context for own in config.local_roles().get(POLICY, ())]]),
        "max-lora-rank": rank,
        "max-loras": _ADAPTERS,
        "gpu-memory-utilization": engine.gpu_memory_utilization,
        "tensor-parallel-size": engine.gpus.count(",") + 1,
        "seed": training.seed,
        "generation-config": "vllm",  # the API's defaults, not those of the model's own file
        "logprobs-mode": "processed_logprobs",  # log-probs of the sampling distribution
    }
    if config.model.quantization == "nf4":
        options |= {"quantization": "bitsandbytes", "load-format": "bitsandbytes"}
    elif config.model.quantization == "int8":
        raise ConfigError("model.quantization=int8: vLLM quantizes to nf4 only; set nf4, or generation.engine=local")
    # Not the console script, which fails in builds whose distribution is not called "vllm".
    start = [engine.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enable-lora"]
    return [*start, *(word for key, value in options.items() for word in (f"--{key}", str(value))), *engine.options]


def server_environment(engine: EngineConfig, device: str) -> dict[str, str]:
    """Build the environment of the server: this process's, without a launcher's variables, with GPUs and API key."""
    kept = {name: value for name, value in os.environ.items() if not _LAUNCHERS.fullmatch(name)}
    number = device.partition("cuda:")[2]
    if engine.gpus:
        kept["CUDA_VISIBLE_DEVICES"] = engine.gpus
    elif number:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        kept["CUDA_VISIBLE_DEVICES"] = visible.split(",")[int(number)] if visible else number
    return {**kept, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_API_KEY": engine.api_key}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the keeper and all processes that it started, by force after some time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def keep(command: Sequence[str]) -> int:
    """Run ``command`` until it ends or standard input is closed."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: None)  # handled by the command, which does not inherit this handler
    other = command[0] != sys.executable  # PYTHONPATH is for this Python's packages only
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or not other}
    try:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=watch, daemon=True).start()
    return running.wait()


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
