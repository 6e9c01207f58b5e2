"""``llm-as-judge view``: a run's rollouts and its model's evaluations in Inspect's viewer.

The Inspect logs are next to the event log, one for each step, and are written as the run grows. Existing ones are not
written again; of a run that resumes, those of later steps are deleted.
"""

import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import DataError, InfrastructureError


class InspectLogs:
    """The Inspect logs of the event log ``path`` and of the evaluations in the folder ``records``."""

    def __init__(self, path: Path, records: Path) -> None:
        from llm_as_judge.runlog import LogReader

        self.path, self.records, self.folder = path, records, path.with_suffix(".inspect")
        self._reader = LogReader(path)

    def update(self) -> list[Path]:
        """Write the logs of new steps and evaluations; raises ``OSError``."""
        return [*self._steps(), *self._evaluations()]

    def _steps(self) -> Iterator[Path]:
        from llm_as_judge.events import RunEvent
        from llm_as_judge.views.inspect_logs import log_name, step_log, step_name, time_of, write_log

        for found in self._reader.finished():
            if isinstance(found, RunEvent):
                for step, file in self._existing():
                    if step > found.kept and time_of(file) < int(found.time):
                        file.unlink()
            elif found.rollouts:
                step = found.report.step
                file = self.folder / log_name(min(r.time for r in found.rollouts), step_name(step))
                others = [other for number, other in self._existing() if number == step and other != file]
                if not file.exists():
                    write_log(step_log(found), file)
                    yield file
                for other in others:
                    other.unlink()

    def _existing(self) -> Iterator[tuple[int, Path]]:
        for file in self.folder.glob("*_step-*_*.json"):
            yield int(file.name.split("_")[1].removeprefix("step-")), file

    def _evaluations(self) -> Iterator[Path]:
        from llm_as_judge.evaluation.records import read_records
        from llm_as_judge.views.inspect_logs import log_name, records_log, write_log

        for source in sorted(self.records.glob(f"{self.path.parent.name}_*.jsonl")):
            moment, name = source.stat().st_mtime, f"evaluation-{source.stem.replace('_', '-')}"
            file = self.folder / log_name(moment, name)
            try:
                records = [] if file.exists() else sorted(read_records(source), key=lambda r: (r.index, r.sample))
            except DataError as error:
                cli.echo(f"skipped {error}", err=True)
                continue
            if records:
                for other in self.folder.glob(f"*_{name}_*.json"):
                    other.unlink()
                write_log(records_log(records, name, self.path.parent.name, moment), file)
                yield file


@cli.grouped
def view(
    options: cli.ConfigOptions,
    run: cli.RunName = None,
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="Port to listen on.")] = 7575,
    write_only: Annotated[bool, typer.Option("--write-only", help="Write the Inspect logs and exit.")] = False,
) -> None:
    """Browse rollouts: operator calls, prompts, replies, verdicts, rewards. Follows the run until Ctrl-C.

    In a terminal, a browser is opened.
    """
    from llm_as_judge.runlog import find_log

    config = options.load()
    logs = InspectLogs(find_log(config, run, newest=True), config.output.results_dir / "evaluation")
    written = len(logs.update())
    if write_only:
        cli.echo(f"{written} new Inspect logs in {logs.folder}")
        return
    logs.folder.mkdir(parents=True, exist_ok=True)
    words = ["view", "start", "--log-dir", str(logs.folder), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen([sys.executable, "-m", "inspect_ai", *words]) as server:
        try:
            cli.echo(f"{logs.path} at http://127.0.0.1:{port}; stop with Ctrl-C")
            time.sleep(cli.EVERY_S)  # the server starts
            if sys.stdout.isatty():
                webbrowser.open(f"http://127.0.0.1:{port}")
            while server.poll() is None:
                logs.update()
                time.sleep(cli.EVERY_S)
            raise InfrastructureError(f"inspect view ended with status {server.returncode}; choose another --port?")
        except KeyboardInterrupt:
            server.terminate()
