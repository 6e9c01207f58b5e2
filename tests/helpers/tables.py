"""Tables of cases: data, in a YAML file beside the test module."""

from pathlib import Path
from typing import Any

import yaml


def tables(file: str | Path) -> Any:
    """The tables of the test module ``__file__`` by name."""
    return yaml.safe_load(Path(file).with_suffix(".yaml").read_text(encoding="utf-8"))
