"""``llm-as-judge view``: a run's rollouts and its model's evaluations as Inspect logs, and ``inspect view`` on them.

Logs stand beside the event log, one for each step, and are written as the run grows. What is there already is not
written again; what a resumed run does again takes the place of what it did before.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from llm_as_judge.commands.watch_run import find_log
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, InfrastructureError
from llm_as_judge.evaluation.logged import Begun, StepReader
from llm_as_judge.evaluation.records import read_records
from llm_as_judge.views.inspect_logs import STAMP, announce, log_name, records_log, step_log, step_name, write_log

_START_S = 60.0  # that Inspect's server may take to begin


@dataclass
class InspectLogs:
    """The Inspect logs of the event log ``path`` and of the evaluations in ``records``; ``update`` writes new ones."""

    path: Path
    records: Path
    _reader: StepReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = StepReader(self.path)

    @property
    def folder(self) -> Path:
        return self.path.with_suffix(".inspect")

    def update(self) -> list[Path]:
        """Writes the logs of the steps and evaluations that are new; raises ``OSError``."""
        written = [*self._steps(), *self._evaluations()]
        if written:
            announce(written[-1])
        return written

    def _steps(self) -> Iterator[Path]:
        for found in self._reader.new():
            if isinstance(found, Begun):
                for step, file in self._there():
                    if step > found.kept and _written(file) < int(found.time):
                        file.unlink()
            elif found.rollouts:
                file = self.folder / log_name(min(r.time for r in found.rollouts), step_name(found.step))
                others = [other for step, other in self._there() if step == found.step and other != file]
                if not file.exists():
                    write_log(step_log(found), file)
                    yield file
                for other in others:
                    other.unlink()

    def _there(self) -> Iterator[tuple[int, Path]]:
        for file in self.folder.glob("*_step-*_*.json"):
            yield int(file.name.split("_")[1].removeprefix("step-")), file

    def _evaluations(self) -> Iterator[Path]:
        for source in sorted(self.records.glob(f"{self.path.parent.name}_*.jsonl")):
            moment, name = source.stat().st_mtime, f"evaluation-{source.stem.replace('_', '-')}"
            file = self.folder / log_name(moment, name)
            records = [] if file.exists() else [record for _, record in read_records(source)]
            if not records:
                continue
            for other in self.folder.glob(f"*_{name}_*.json"):
                other.unlink()
            write_log(records_log(records, name, self.path.parent.name, moment), file)
            yield file


def inspect_logs(config: Config, run: str | None = None) -> InspectLogs:
    """Of ``run``, by default the one that wrote last; raises ``ConfigError`` where there is none."""
    return InspectLogs(find_log(config, run, newest=True), config.output.results_dir / "evaluation")


@contextmanager
def inspect_server(folder: Path, port: int) -> Iterator[str]:
    """``inspect view`` on ``folder``; gives its address. Raises ``ConfigError`` where the port is taken."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(f"--port {port} is in use ({error.strerror}); name another one, or 0 for any") from error
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "inspect_ai", "view", "start", "--log-dir", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _await_server(server, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _await_server(server: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if server.poll() is not None:
            told = (server.stderr.read() if server.stderr else "").strip().splitlines()
            raise InfrastructureError(f"inspect view ended with status {server.returncode}: {' '.join(told[-3:])}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise InfrastructureError(f"inspect view did not answer on port {port} within {_START_S:.0f} s")


def _written(file: Path) -> float:
    """The time in a log's name."""
    return datetime.strptime(file.name.split("_")[0], STAMP).replace(tzinfo=timezone.utc).timestamp()
