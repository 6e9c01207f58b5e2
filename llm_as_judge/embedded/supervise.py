"""Runs the embedded server as a process shared by all runs that use the same address.

Each run holds a *lease*: an open connection to the server, which the kernel closes however the run ends. So whoever
reaches the server counts as its user, whatever its user id, container or temporary folder. The first run starts the
server, which ends with its last lease. A run that loses the server all the same, such as with the job of the run that
started it, starts another.
"""

import asyncio
import contextlib
import http.client
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from llm_as_judge.embedded.server import MODEL_NAME, serve
from llm_as_judge.errors import ConfigError, ProviderError

logger = logging.getLogger(__name__)
_START_SECONDS = 60.0
_ATTEMPTS = 3  # to start it: the port may belong to a server that is just ending


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
        self._lease: socket.socket | None = None
        self._stopped = threading.Event()

    async def __aenter__(self) -> "EmbeddedServer":
        try:
            await asyncio.to_thread(self._take_lease)
        except BaseException:
            self.stop()
            raise
        threading.Thread(target=self._keep_lease, daemon=True, name="lease").start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Give up the lease; the server ends when no other run holds one."""
        self._stopped.set()
        if self._lease is not None:
            _close(self._lease)

    def _keep_lease(self) -> None:
        """Wait for the end of the server, and start it again until this run ends."""
        while not self._stopped.is_set():
            with contextlib.suppress(OSError):
                if self._lease is not None and self._lease.recv(1):
                    continue
            if not self._stopped.is_set():
                logger.warning("the embedded server at %s has ended; it is started again", self.base_url)
                try:
                    self._take_lease()
                except (ConfigError, ProviderError) as error:  # the run's own requests fail and say so
                    logger.warning("%s", error)
                    return

    def _take_lease(self) -> None:
        """Return with a lease, of a new process if necessary, or when stopped."""
        self.process, attempts = None, 0
        deadline = time.monotonic() + _START_SECONDS
        while not self._stopped.is_set() and not self._leased():
            status: int | None = self.process.poll() if self.process else None
            # A process that finds the port taken by another run's server ends: then that one is waited for.
            if self.process is None or (status is not None and not self._listening()):
                if attempts == _ATTEMPTS:
                    hint = f"; see {self.log_file}" if self.log_file else ""
                    raise ProviderError(f"the embedded server ended with status {status}{hint}")
                self.process, attempts = self._start(), attempts + 1
            if time.monotonic() > deadline:
                raise ProviderError(
                    f"the embedded server did not answer at {self.base_url} within {_START_SECONDS:.0f} s"
                )
            self._stopped.wait(0.1)

    def _leased(self) -> bool:
        """Ask for a lease; False if nothing answers. Raises ``ConfigError`` if something else does."""
        asked = http.client.HTTPConnection(self.host, self.port, timeout=2)
        try:
            asked.request("GET", "/lease")
            reply = asked.getresponse()
            found = (
                reply.readline(100).decode(errors="replace").strip() if reply.status == 200 else f"HTTP {reply.status}"
            )
        except http.client.HTTPException as error:
            found = type(error).__name__
        except OSError:
            return False
        if found != MODEL_NAME or asked.sock is None:
            other = f"http://127.0.0.1:{self.port + 1}/v1"
            raise ConfigError(
                f"port {self.port} is in use by another server or version (GET /lease: {found!r}); stop it or choose "
                f"another port: --set executor.base_url={other} --set judge.base_url={other}"
            )
        asked.sock.settimeout(None)
        self._lease = asked.sock
        if self._stopped.is_set():  # stopped meanwhile, by a thread that could not see this lease
            _close(self._lease)
        return True

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


def _close(lease: socket.socket) -> None:
    """Close a connection that another thread may be reading, which wakes it."""
    with contextlib.suppress(OSError):  # the server has closed it
        lease.shutdown(socket.SHUT_RDWR)
    lease.close()


if __name__ == "__main__":  # the server process: python -m llm_as_judge.embedded.supervise HOST PORT
    serve(sys.argv[1], int(sys.argv[2]), unused_s=_START_SECONDS)
