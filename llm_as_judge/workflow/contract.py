"""The contract of a workflow, written for any instruct model: the part of the full prompt that all problems share.

The text is in ``contract.md``. Lint and the sandbox enforce its rules: a workflow that follows them passes lint and
runs, and every lint finding violates one of them (``tests/workflow/test_contract.py`` checks both).
"""

import re
import sys
from importlib.resources import files
from typing import Any

from llm_as_judge.operators import catalog
from llm_as_judge.operators.catalog import Operators
from llm_as_judge.workflow import writing

_TEXT = files(__package__).joinpath("contract.md").read_text(encoding="utf-8")
RULES = tuple(line.removeprefix("- ") for line in _TEXT.partition("\nRules:\n")[2].splitlines())
#: The fixed beginning of every workflow and of its next line, with which a prompt may end.
PREFILL = writing.CLASS_HEAD + "        self."
#: The same for the short prompt. The policy first says what is asked, so that its choice of operators can depend on the
#: sentence before. SmolLM2 otherwise chose by domain alone (docs/reports/pretrained.md).
ASKED_PREFILL = PREFILL.removesuffix("self.") + "# Asked: "
#: The same for replies in a fenced block.
FENCED_PREFILL = f"```python\n{PREFILL}"
#: The version that the sandbox runs.
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def contract(operators: Operators, max_calls: int, python: str = _PYTHON) -> str:
    """Write the system prompt, for the configured ``operators`` and ``max_calls``."""
    docs = "\n".join(f"- {_doc(operator)}" for operator in operators.values())
    filled = {"docs": docs, "skeleton": skeleton(operators), "python": python, "max_calls": str(max_calls)}
    return re.sub(r"\{(docs|skeleton|python|max_calls)\}", lambda name: filled[name[1]], _TEXT)


def _doc(operator: Any) -> str:
    """Write the operator's call with types, its result and its summary."""
    parameters = []
    for p in catalog.signature(operator).parameters.values():
        typed = ": ".join(filter(None, (p.name, catalog.type_word(p))))
        parameters.append(typed if p.default is p.empty else f"{typed} = {p.default!r}")
    keys = ", ".join(f'"{key}": {kind.__name__}' for key, kind in operator.RESULT.items())
    options = ", ".join(f"{p.name}={p.default!r}" for p in catalog.init_signature(operator).parameters.values())
    call = f"{operator.NAME}({', '.join(parameters)}) -> {{{keys}}}: {operator.SUMMARY}"
    return f"{call}; built as operator.{operator.NAME}(self.llm, {options})" if options else call


def skeleton(operators: Operators) -> str:
    """Write a whole workflow of one call: AnswerGenerate or Custom if they are allowed, else the first operator."""
    preferred = [name for name in ("AnswerGenerate", "Custom") if name in operators]
    operator = operators[preferred[0]] if preferred else next(iter(operators.values()))
    attribute = writing.attribute_of(operator.NAME)
    values, problem = dict[str, str](), "problem"
    for parameter in catalog.signature(operator).parameters.values():
        if parameter.default is parameter.empty:
            kind = catalog.type_word(parameter)
            usual = {"int": "1", "float": "1.0", "bool": "True", "list": "[problem]"}.get(kind.partition("[")[0])
            values[parameter.name] = usual or problem
            problem = problem if usual else "''"  # only the first text is the problem
    texts = [key for key, kind in operator.RESULT.items() if kind is str]
    answer = f'result["{texts[-1]}"]' if texts else f'str(result["{next(iter(operator.RESULT))}"])'
    called = writing.called(attribute, operator, values)
    return writing.class_text(
        [writing.built(attribute, operator.NAME)], f"result = await {called}\nreturn {answer}, 0.0"
    )
