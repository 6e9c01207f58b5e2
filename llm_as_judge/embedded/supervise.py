"""Runs the embedded server as a process shared by all runs that use the same address.

A run holds a shared lock on the *lease file* of the address, which the kernel releases however the run ends. The first
run starts the server. The server keeps trying for the exclusive lock; it gets it when no run is left, and exits.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import aiohttp

from llm_as_judge.embedded.server import MODEL_NAME, serve
from llm_as_judge.errors import ConfigError, ProviderError

_START_SECONDS = 60.0


async def served_model(base_url: str) -> str | None:
    """Name of the first model that an endpoint serves; None if there is no answer."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
            session.get(f"{base_url}/models") as reply,
        ):
            return str((await reply.json())["data"][0]["id"]) if reply.ok else f"HTTP {reply.status}"
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError, TypeError, KeyError, IndexError):
        return None


class EmbeddedServer:
    """Async context manager that keeps the embedded server running at ``base_url``.

    An existing server there (of ``llm-as-judge embedded serve`` or another run) is used. Raises ``ConfigError`` for an
    address elsewhere or a port in use, ``ProviderError`` if the server does not start.
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
        self.process: subprocess.Popen[bytes] | None = None  # if started by this run
        self._lease: TextIO | None = None

    async def __aenter__(self) -> "EmbeddedServer":
        self._lease = _lease_file(self.port).open("a+")
        try:
            # Waits while a server without leases is exiting.
            await asyncio.to_thread(fcntl.flock, self._lease, fcntl.LOCK_SH)
            await self._serve()
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Give up the lease; the server exits when no other run holds one."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    async def _serve(self) -> None:
        """Return when the address is served, by a new process if necessary."""
        running = await served_model(self.base_url)
        if running not in (None, MODEL_NAME):
            other = f"http://127.0.0.1:{self.port + 1}/v1"
            raise ConfigError(
                f"port {self.port} is in use by another server ({running}); stop it or choose another port: "
                f"--set executor.base_url={other} --set judge.base_url={other}"
            )
        if running is None:
            self.process = self._start()
        deadline = time.monotonic() + _START_SECONDS
        while await served_model(self.base_url) != MODEL_NAME:
            status = self.process.poll() if self.process else None
            # A process that finds the port taken by another run's server ends: then that one is waited for.
            if status is not None and not await asyncio.to_thread(self._listening):
                hint = f"; see {self.log_file}" if self.log_file else ""
                raise ProviderError(f"the embedded server ended with status {status}{hint}")
            if time.monotonic() > deadline:
                raise ProviderError(
                    f"the embedded server did not answer at {self.base_url} within {_START_SECONDS:.0f} s"
                )
            await asyncio.sleep(0.1)

    def _start(self) -> subprocess.Popen[bytes]:
        if self.log_file:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "llm_as_judge.embedded.supervise", self.host, str(self.port)]
        with self.log_file.open("ab") if self.log_file else open(os.devnull, "wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )

    def _listening(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(5)
            return probe.connect_ex((self.host, self.port)) == 0


def _lease_file(port: int) -> Path:
    return Path(tempfile.gettempdir()) / f"llm-as-judge-embedded-{os.getuid()}-{port}.lock"


def _exit_without_leases(lease_file: Path) -> None:
    with lease_file.open("a+") as lease:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os._exit(0)
            time.sleep(0.3)


if __name__ == "__main__":  # the server process: python -m llm_as_judge.embedded.supervise HOST PORT
    threading.Thread(target=_exit_without_leases, args=(_lease_file(int(sys.argv[2])),), daemon=True).start()
    serve(sys.argv[1], int(sys.argv[2]))
