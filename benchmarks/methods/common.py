"""Command line and result row that the methods in this folder share."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm_as_judge.config.loading import load_config
from llm_as_judge.evaluation.baselines import row
from llm_as_judge.files import json_text
from llm_as_judge.types import Group


def arguments(description: str, **own: str) -> tuple[Any, ...]:
    """Return the configuration, the executor tokens that the method may use, the number of problems it is measured on.

    After them the values of the method's ``own`` options, which are given with their help.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=Path, default=Path("config/embedded.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="setting, repeatable")
    parser.add_argument("--tokens", type=int, default=200_000, help="executor tokens for the search or the training")
    parser.add_argument("--limit", type=int, default=None, help="number of held-out problems")
    for name, text in own.items():
        parser.add_argument(f"--{name}", default=None, help=text)
    given = parser.parse_args()
    return load_config(given.config, given.set), given.tokens, given.limit, *(getattr(given, name) for name in own)


def report(name: str, groups: Sequence[Group], tokens: int) -> None:
    """Print one line: accuracy in percent with its interval, and tokens used and needed per problem."""
    found = row(name, groups)
    share = found.overall
    right = f"{100 * share.value:.1f} % right [{100 * share.low:.0f}-{100 * share.high:.0f}] of {share.n} problems"
    print(f"{name}: {right}, {found.tokens:.0f} executor tokens per problem, {tokens:,} for the method")
    print(json_text({"method": name, "tokens": tokens, **found.as_json()}))
