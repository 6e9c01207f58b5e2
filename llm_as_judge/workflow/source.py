"""A workflow as a user has it on disk: one file, or a folder of AFlow's with ``graph.py`` and ``prompt.py``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.errors import DataError

GRAPH, PROMPT = "graph.py", "prompt.py"
LONGEST = 1_000_000  # bytes; a workflow of a megabyte is a mistake


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
    return WorkflowSource(file, _read(file), _read(prompt) if beside else "")


def _read(file: Path) -> str:
    try:
        if (size := file.stat().st_size) > LONGEST:
            raise DataError(f"{file}: {size:,} bytes; a workflow or its prompts have at most {LONGEST:,}")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
