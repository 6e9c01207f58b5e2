"""``llm-as-judge analyze`` and ``monitor``: a run's event log, summed up or followed."""

from __future__ import annotations

from pathlib import Path

from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation.analysis import Analysis, analyze_log
from llm_as_judge.evaluation.watching import Watched


def analyze(config: Config, run: str | None = None) -> Analysis:
    """What the log of ``run`` comes to; raises ``ConfigError`` where there is no such run or no rollout in its log."""
    log = find_log(config, run)
    found = analyze_log(log)
    if not found.total.rollouts:
        raise ConfigError(f"{log} tells of no rollout yet; watch the run with llm-as-judge monitor")
    return found


def watch(config: Config, run: str | None = None) -> Watched:
    """Follows the log of ``run``, by default of the one that wrote last; raises ``ConfigError``."""
    return Watched(find_log(config, run, newest=True))


def find_log(config: Config, run: str | None, *, newest: bool = False) -> Path:
    """The event log of ``run``: a file, a run's name, or ``MODEL/NAME``; by default that of the configured run, or with
    ``newest`` the one written last. Raises ``ConfigError`` that names those there are.
    """
    folder = config.output.log_dir
    there = sorted(folder.glob("*/*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    names = ", ".join(f"{path.parent.name}/{path.stem}" for path in there[:10]) or "none"
    if run is None:
        own = folder / config.base_model.key / f"{config.output.run_name}.jsonl"
        chosen = [*there, own][0] if newest else own
        if not chosen.is_file():
            raise ConfigError(f"{chosen}: no such log; name a run: there are {names}")
        return chosen
    if Path(run).is_file():
        return Path(run)
    model, _, name = run.rpartition("/")
    found = [path for path in there if path.stem == name and model in ("", path.parent.name)]
    if len(found) != 1:
        many = ", ".join(f"{path.parent.name}/{path.stem}" for path in found)
        why = f"is of several models: {many}" if found else f"is no log and no run in {folder}; there are {names}"
        raise ConfigError(f"run {run!r} {why}")
    return found[0]
