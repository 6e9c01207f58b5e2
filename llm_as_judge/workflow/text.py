"""Text of workflows: a user's own, read from files; the class around a body; calls of operators by named arguments."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.files import read_source
from llm_as_judge.operators.catalog import signature

#: The fixed beginning of every workflow.
CLASS_HEAD = """\
class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
"""


def class_text(setup: Iterable[str], body: str, code: bool = False) -> str:
    """Return a workflow of ``setup`` in ``__init__`` and ``body`` in ``__call__``; ``code``: it gets an entry_point."""
    lines = [f"        {line}" for line in setup]
    lines += ["", f"    async def __call__(self, problem: str{', entry_point: str' if code else ''}):"]
    return CLASS_HEAD + "\n".join([*lines, *(f"        {line}" for line in body.splitlines())])


def built(attribute: str, operator: str) -> str:
    """Return the line of ``__init__`` that builds an operator."""
    return f"self.{attribute} = operator.{operator}(self.llm)"


def called(attribute: str, operator: Any, values: Mapping[str, str]) -> str:
    """Return the call of an operator with ``values`` by parameter; others without a default get the problem."""
    parameters = signature(operator).parameters.values()
    given = {p.name: values.get(p.name, "problem") for p in parameters if p.name in values or p.default is p.empty}
    return f"self.{attribute}({', '.join(f'{name}={value}' for name, value in given.items())})"


def attribute_of(operator: str) -> str:
    """Return an operator's name as that of an attribute."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower()


def answer_key(operator: Any) -> str:
    """Return the key of the answer in an operator's result, which is its last."""
    return str(list(operator.RESULT)[-1])


@dataclass(frozen=True, slots=True)
class WorkflowSource:
    """``text`` is the workflow; ``prompt`` the text of the ``prompt.py`` in the same folder, or ``""``."""

    file: Path
    text: str
    prompt: str = ""


def read_workflow(path: Path) -> WorkflowSource:
    """The workflow of a file, or of a folder with ``graph.py``. Raises ``DataError`` if it cannot be read."""
    file = path / "graph.py" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise DataError(f"{path}: there is no graph.py in it; name a workflow's file, or a folder with graph.py")
    prompt = file.with_name("prompt.py")
    has_prompt = prompt.is_file() and prompt != file
    return WorkflowSource(file, read_source(file), read_source(prompt) if has_prompt else "")
