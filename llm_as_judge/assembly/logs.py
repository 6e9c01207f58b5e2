"""Finding the log of a run."""

from __future__ import annotations

from pathlib import Path

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.runlog import is_log


def find_log(config: Config, run: str | None, *, newest: bool = False) -> Path:
    """The log of ``run``: a file, a run's name or ``MODEL/NAME``. The default is the configured run, or with ``newest``
    the log written last.

    Raises ``ConfigError``, with the names of existing runs.
    """
    folder = config.output.log_dir
    known = sorted(folder.glob("*/*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    names = ", ".join(f"{path.parent.name}/{path.stem}" for path in known[:10]) or "none"
    if run is None:
        own = folder / config.base_model.key / f"{config.output.run_name}.jsonl"
        chosen = [*known, own][0] if newest else own
        if not chosen.is_file():
            raise ConfigError(f"{chosen}: no such log; runs in {folder}: {names}")
        return chosen
    if Path(run).is_file():
        if not is_log(Path(run)):
            raise ConfigError(f"{run} is not the log of a run; runs in {folder}: {names}")
        return Path(run)
    model, _, name = run.rpartition("/")
    found = [path for path in known if path.stem == name and model in ("", path.parent.name)]
    if len(found) > 1:
        many = ", ".join(f"{path.parent.name}/{path.stem}" for path in found)
        raise ConfigError(f"several models have a run {run!r}: {many}")
    if not found:
        raise ConfigError(f"run {run!r}: no such log and no such run in {folder}; runs: {names}")
    return found[0]
