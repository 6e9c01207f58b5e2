"""Text of workflows: the class around a body, and calls of its operators with named arguments."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from llm_as_judge.operators.catalog import signature

#: The fixed beginning of every workflow, and of replies (``contract.PREFILL``). The nano models were trained on it.
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


def built(attribute: str, operator: str, executor: str = "") -> str:
    """Return the line of ``__init__`` that builds an operator, which asks the default executor or a named one."""
    model = f", model={executor!r}" if executor else ""
    return f"self.{attribute} = operator.{operator}(self.llm{model})"


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
