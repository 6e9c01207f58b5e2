"""Finding the log of a run."""

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
    names = [f"{path.parent.name}/{path.stem}" for path in known]
    file = run is not None and Path(run).is_file()
    if run is not None and file and is_log(Path(run)):
        return Path(run)
    found = known[:1]
    if run is not None or not newest:
        run = run or f"{config.base_model.key}/{config.output.run_name}"
        found = [path for path, name in zip(known, names, strict=True) if f"/{name}".endswith(f"/{run}")]
    if len(found) != 1:
        missing = "the file is not the log of a run" if file else f"no such log and no such run in {folder}"
        problem = "several models have such a run" if found else missing
        raise ConfigError(f"run {run or 'newest'!r}: {problem}; runs: {', '.join(names[:10]) or 'none'}")
    return found[0]
