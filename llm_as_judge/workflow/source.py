"""A workflow as a user has it on disk: one file, or a folder of AFlow's with ``graph.py`` and ``prompt.py``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.errors import DataError
from llm_as_judge.files import read_source

GRAPH, PROMPT = "graph.py", "prompt.py"


@dataclass(frozen=True, slots=True)
class WorkflowSource:
    """``text`` is the workflow; ``prompt`` the text of the ``prompt.py`` beside it, ``""`` where there is none."""

    file: Path
    text: str
    prompt: str = ""


def read_workflow(path: Path) -> WorkflowSource:
    """The workflow of a file, or of a folder with ``graph.py``. Raises ``DataError`` for what cannot be read."""
    file = path / GRAPH if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"{path}: there is no {file.name} in it; name a workflow's file, or a folder with {GRAPH}")
    prompt = file.with_name(PROMPT)
    beside = prompt.is_file() and prompt != file
    return WorkflowSource(file, read_source(file), read_source(prompt) if beside else "")
