"""A user's workflow, read from a file or an AFlow folder."""

from dataclasses import dataclass
from pathlib import Path

from llm_as_judge.errors import DataError
from llm_as_judge.files import read_source


@dataclass(frozen=True, slots=True)
class WorkflowSource:
    """``text`` is the workflow; ``prompt`` the text of the ``prompt.py`` in the same folder, or ``""``."""

    file: Path
    text: str
    prompt: str = ""


def read_workflow(path: Path) -> WorkflowSource:
    """Read the workflow of a file, or of a folder with ``graph.py``. Raises ``DataError`` if it cannot be read."""
    file = path / "graph.py" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise DataError(f"{path}: there is no graph.py in it; name a workflow's file, or a folder with graph.py")
    prompt = file.with_name("prompt.py")
    return WorkflowSource(file, read_source(file), read_source(prompt) if prompt.is_file() and prompt != file else "")
