"""Runs the embedded server as a child process of a run, on a free port of this machine.

It ends with its standard input, which the kernel closes however the run ends.
"""

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from llm_as_judge.embedded.server import application
from llm_as_judge.errors import ProviderError

_START_SECONDS = 120.0


@contextmanager
def own_server(log: Path) -> Iterator[str]:
    """Serves the nano executor for the block, and gives the address. Raises ``ProviderError`` if it does not start."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("ab") as file,
        subprocess.Popen(
            [sys.executable, "-m", "llm_as_judge.embedded.supervise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the run alone
        ) as process,
    ):
        assert process.stdout is not None
        try:
            said, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
            if not said:
                raise ProviderError(f"the embedded server did not start within {_START_SECONDS:.0f} s; see {log}")
            if not (address := process.stdout.readline().decode().strip()):
                raise ProviderError(f"the embedded server ended with status {process.wait()}; see {log}")
            yield address
        finally:
            process.kill()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    place = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{place.getsockname()[1]}/v1"
    web.run_app(application(), sock=place, print=lambda _: print(url, flush=True), access_log=None)
