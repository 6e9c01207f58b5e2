"""Starts the embedded server as a process of its own, waits until it answers, starts it anew if it goes, and ends it.

The process ends with its parent: it watches a pipe that only the parent holds open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import aiohttp

from llm_as_judge.embedded.server import MODEL_NAME
from llm_as_judge.errors import ConfigError, ProviderError

_START_SECONDS = 60.0
_WATCH_SECONDS = 1.0
#: A server that goes again this soon after its start is broken: callers then see what its address answers.
_SHORT_LIFE_SECONDS = 20.0
#: Without these glibc returns freed memory to the system after every tensor; decoding is several times slower.
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}

logger = logging.getLogger(__name__)


async def _served_model(base_url: str) -> str | None:
    """Name of the first model an endpoint serves, or None when nobody answers."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
            session.get(f"{base_url}/models") as reply,
        ):
            return str((await reply.json())["data"][0]["id"]) if reply.ok else f"HTTP {reply.status}"
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, TypeError, KeyError, IndexError):
        return None


class EmbeddedServer:
    """Async context manager around ``llm-as-judge embedded serve``.

    A server that already runs at the address is used; it may belong to another run, so that one too is replaced when
    it goes.
    """

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
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EmbeddedServer:
        await self._serve()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def _serve(self) -> None:
        """Return when the address is served, by a new process if need be."""
        running = await _served_model(self.base_url)
        if running == MODEL_NAME:
            return
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

    async def _watch(self) -> None:
        """Serve anew whenever the server is gone, until a new one does not last."""
        clock = asyncio.get_running_loop().time
        since = clock()
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            process = self.process
            if process is None:
                # Another run's. Busy is not gone: only an address where nobody listens is taken over.
                gone, status = not await asyncio.to_thread(self._listening), ""
            else:
                gone, status = process.poll() is not None, f" (status {process.returncode})"
            if not gone:
                continue
            self.stop()
            if process is not None and clock() - since < _SHORT_LIFE_SECONDS:
                logger.error("the embedded server at %s ended%s soon after its start", self.base_url, status)
                return
            logger.warning("the embedded server at %s is gone%s; starting another", self.base_url, status)
            try:
                await self._serve()
            except (ConfigError, ProviderError) as error:
                logger.error("%s", error)
                return
            since = clock()

    def _listening(self) -> bool:
        try:
            with contextlib.suppress(TimeoutError), socket.create_connection((self.host, self.port), timeout=5):
                pass
        except ConnectionRefusedError:
            return False
        return True

    def _start(self) -> None:
        command = [sys.executable, "-m", "llm_as_judge.embedded.supervise", self.host, str(self.port)]
        if self.log_file:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
        log = self.log_file.open("ab") if self.log_file else subprocess.DEVNULL
        env = {**os.environ, **_MALLOC, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, start_new_session=True
        )

    async def _ready(self) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                if await _served_model(self.base_url) == MODEL_NAME:
                    self.stop()  # another run was quicker
                    return
                hint = f"; see {self.log_file}" if self.log_file else ""
                raise ProviderError(f"the embedded server ended with status {self.process.returncode}{hint}")
            if await _served_model(self.base_url) == MODEL_NAME:
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
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
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
