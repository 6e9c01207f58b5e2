"""The problems of a file that the user names."""

from __future__ import annotations

from pathlib import Path

from llm_as_judge.data.files import check_whole
from llm_as_judge.data.settings import field_spellings
from llm_as_judge.datasets.load import load_file
from llm_as_judge.types import Problem


def read_problems(path: Path, limit: int | None = None) -> list[Problem]:
    """Problems of ``path``, its fields spelt as config/dataset.yaml allows.

    Raises ``DataError``, also where the file is of a ``data process`` that broke off.
    """
    check_whole(path)
    return load_file(path, limit, field_spellings())
