"""The budget of a run over all its sessions: cost, tokens and hours."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from llm_as_judge.config.schema import BudgetConfig
from llm_as_judge.llm.client import Usage
from llm_as_judge.runlog import LogReader


def logged_usage(log: LogReader) -> dict[str, Usage]:
    """Sum the usage of each model in all sessions of a run."""
    return {role: Usage(**counts) for role, counts in log.usage.items()}  # type: ignore[arg-type]


def budget(config: BudgetConfig, log: Path, usage: Callable[[], Mapping[str, Usage]]) -> Callable[[], str]:
    """Return a function that names the limit that is reached, with the cure; empty if none is.

    ``log`` is read once for earlier sessions, ``usage`` counts this one; hours between sessions do not count.
    """
    earlier = LogReader.read(log)
    began = time.monotonic() - earlier.seconds

    def spent() -> str:
        models = [*logged_usage(earlier).values(), *usage().values()]
        limits = {
            "max_cost": (config.max_cost, sum(model.cost for model in models)),
            "max_tokens": (config.max_tokens, sum(model.prompt_tokens + model.completion_tokens for model in models)),
            "max_hours": (config.max_hours, (time.monotonic() - began) / 3600),
        }
        for name, (limit, value) in limits.items():
            if limit is not None and value >= limit:
                cure = f"continue with --resume --set budget.{name}=MORE"
                return f"budget.{name}={limit:g} is spent ({value:.4g}); {cure}"
        return ""

    return spent
