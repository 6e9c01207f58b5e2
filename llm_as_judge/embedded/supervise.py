"""Starts the embedded server as a process of its own, waits until it answers, and ends it.

The process ends with its parent: it watches a pipe that only the parent holds open.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from llm_as_judge.embedded.server import MODEL_NAME
from llm_as_judge.errors import ConfigError, ProviderError

_START_SECONDS = 60.0
#: Without these glibc returns freed memory to the system after every tensor; decoding is several times slower.
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def _served_model(base_url: str) -> str | None:
    """Name of the first model an endpoint serves, or None when nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base_url}/models", timeout=2) as reply:
            return str(json.load(reply)["data"][0]["id"])
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, ValueError, KeyError, IndexError):
        return None


class EmbeddedServer:
    """Async context manager around ``llm-as-judge embedded serve``; uses a server that already runs at the address."""

    def __init__(self, base_url: str, log_file: Path | None = None) -> None:
        parts = urlsplit(base_url)
        if parts.hostname not in ("127.0.0.1", "localhost") or parts.port is None:
            raise ConfigError(
                f"base_url {base_url!r}: provider 'embedded' is served on this machine; "
                "use http://127.0.0.1:PORT/v1, or provider 'openai' for an endpoint elsewhere"
            )
        self.base_url, self.host, self.port = base_url.rstrip("/"), parts.hostname, parts.port
        self.log_file = log_file
        self.process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> EmbeddedServer:
        running = await asyncio.to_thread(_served_model, self.base_url)
        if running == MODEL_NAME:
            return self
        if running is not None:
            raise ConfigError(
                f"port {self.port} is taken by another server ({running}); "
                f"stop it or choose another port: --set executor.base_url=http://127.0.0.1:{self.port + 1}/v1 "
                f"--set judge.base_url=http://127.0.0.1:{self.port + 1}/v1"
            )
        self._start()
        try:
            await self._ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        command = [sys.executable, "-m", "llm_as_judge.embedded.supervise", self.host, str(self.port)]
        log = self.log_file.open("ab") if self.log_file else subprocess.DEVNULL
        env = {**os.environ, **_MALLOC, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, start_new_session=True
        )

    async def _ready(self) -> None:
        assert self.process is not None
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if self.process.poll() is not None:
                hint = f"; see {self.log_file}" if self.log_file else ""
                raise ProviderError(f"the embedded server ended with status {self.process.returncode}{hint}")
            if await asyncio.to_thread(_served_model, self.base_url) == MODEL_NAME:
                return
            await asyncio.sleep(0.1)
        raise ProviderError(f"the embedded server did not answer at {self.base_url} within {_START_SECONDS:.0f} s")

    def stop(self) -> None:
        """End the process this object started, if any."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    from llm_as_judge.embedded.server import serve

    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    main()
