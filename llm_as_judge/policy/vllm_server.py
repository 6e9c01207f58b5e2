"""The policy's own vLLM server: started for a run that names none, ended with it, whatever ends it.

A keeper process of this module stands between the run and vLLM. It holds a pipe of which only the run has the other
end: where the run is gone, even killed, the keeper ends vLLM with all its processes, so that no GPU stays taken.
"""

from __future__ import annotations

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

from llm_as_judge.config.schema import Config, EngineConfig
from llm_as_judge.errors import ConfigError

#: Ranks that vLLM has kernels for.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
#: The adapter that is loaded, and the one that it takes the place of.
_ADAPTERS = 2
_ENDING_S = 20.0
_TAIL_CHARS = 2000
#: What a launcher tells its own processes: vLLM would take itself for one of them.
_LAUNCHERS = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


class OwnServer:
    """vLLM on a free port of this machine, with ``model`` (a folder or hub id) served as ``name``.

    ``dtype`` is the policy's; ``device`` is where it is, and the server's GPU is the same one unless ``engine.gpus``
    says otherwise. Raises ``ConfigError`` with the end of ``log`` where it does not come up within
    ``engine.restart_s``. It lives until ``stop``, or as long as this object.
    """

    def __init__(self, config: Config, model: str, name: str, dtype: str, device: str, log: Path) -> None:
        engine = config.engine
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.config = engine.model_copy(update={"base_url": f"http://127.0.0.1:{port}/v1"})
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        keeper = [sys.executable, "-m", "llm_as_judge.policy.vllm_server"]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [*keeper, *command(config, model, name, dtype, port)],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=environment(engine, device),
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
        while self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
                return
            if time.monotonic() > end:
                raise ConfigError(self._failed(f"did not answer within engine.restart_s={seconds:g} s; raise that"))
            time.sleep(0.2)
        raise ConfigError(self._failed(f"ended with status {self._process.returncode}"))

    def _failed(self, how: str) -> str:
        tail = self.log.read_text("utf-8", errors="replace")[-_TAIL_CHARS:].strip()
        return (
            f"the policy's own vLLM server {how}. Install vLLM (engine.python names the Python of another "
            "environment), lower engine.gpu_memory_utilization, or give engine.base_url. The end of "
            f"{self.log}:\n{tail}"
        )


def command(config: Config, model: str, name: str, dtype: str, port: int) -> list[str]:
    """vLLM's command line for the policy of ``config``. Raises ``ConfigError`` for a rank it does not serve."""
    engine, training = config.engine, config.training
    rank = next((rank for rank in _RANKS if rank >= config.model.lora_rank), None)
    if rank is None:
        raise ConfigError(f"model.lora_rank={config.model.lora_rank}: vLLM serves ranks up to {_RANKS[-1]}; lower it")
    options = {
        "host": "127.0.0.1",
        "port": port,
        "model": model,
        "served-model-name": name,
        "dtype": dtype,
        "max-model-len": training.prompt_max_length + training.response_max_length,
        "max-lora-rank": rank,
        "max-loras": _ADAPTERS,
        "gpu-memory-utilization": engine.gpu_memory_utilization,
        "tensor-parallel-size": max(1, len(_gpus(engine))),
        "seed": training.seed,
        "logprobs-mode": "processed_logprobs",  # of the distribution sampled from
    }
    # The module: the console script fails in builds whose distribution is not called "vllm".
    start = [engine.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enable-lora"]
    return [*start, *(word for key, value in options.items() for word in (f"--{key}", str(value))), *engine.options]


def environment(engine: EngineConfig, device: str) -> dict[str, str]:
    """The server's environment: our own, without what a launcher told us, with its GPUs and its key."""
    kept = {name: value for name, value in os.environ.items() if not _LAUNCHERS.fullmatch(name)}
    number = device.partition("cuda:")[2]
    if gpus := _gpus(engine):
        kept["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    elif number:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        kept["CUDA_VISIBLE_DEVICES"] = visible.split(",")[int(number)] if visible else number
    return {**kept, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_API_KEY": engine.api_key}


def _gpus(engine: EngineConfig) -> list[str]:
    return [gpu.strip() for gpu in engine.gpus.split(",") if gpu.strip()]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the keeper and all that it started: asked first, then killed."""
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
    """Runs ``command`` until it ends, or until nobody holds the other end of standard input any more."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: None)  # the command's to answer; a handler is not handed down to it
    other = command[0] != sys.executable  # whose packages are not to be found where ours are
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
