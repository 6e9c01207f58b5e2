"""The contract of a workflow, written for any instruct model: the part of the full prompt that all problems share.

Lint and the sandbox enforce the rules: a workflow that follows them passes lint and runs, and every lint finding
violates one of them (``tests/workflow/test_contract.py`` checks both).
"""

import sys
from typing import Any

from llm_as_judge.operators import catalog
from llm_as_judge.operators.catalog import Operators
from llm_as_judge.workflow import text

FULL_SYSTEM = """\
Write a workflow: a Python class that solves a problem by calling operators, which ask a language model or run code.
The class is run on the problem, and the string it returns is judged as the answer. Do not solve the problem yourself.

Operators, each with the dict that its call returns:
{docs}

Form:
```python
{skeleton}
```
For a problem with an entry_point: `async def __call__(self, problem: str, entry_point: str)`; the answer is then the \
source of that function.

Rules:
{rules}
"""
RULES = (
    "Reply with one ```python block that holds the whole class Workflow, valid Python {python}, and nothing else.",
    "`operator` and `create_llm_instance` are defined already. Import from Python's standard library only, and nothing "
    "for files, processes or the network.",
    "Build operators of the list only, in `__init__`, as `self.name = operator.Name(self.llm)`, and call each of them.",
    "Await every call of an operator; `asyncio.gather` awaits several at once. There are at most {max_calls} calls.",
    "Give a call every argument that has no default, and none that it does not have.",
    'Read a result by its keys, `result["key"]`: those of the list, `parse_ok` (False where a reply could not be read) '
    "and `error` (why).",
    "`self.llm` is for building operators: never call it.",
    "`__init__` gets name, llm_config and dataset; it may instead take self alone, `llm`, some of these, or `*args, "
    "**kwargs`, and nothing else without a default.",
    "`__call__` is async and takes the problem, and the entry_point of a problem that has one.",
    "Set every variable, function and attribute on every path before it is used, even if a loop never runs.",
    "Return on every path the answer as a string, alone or as `answer, 0.0`: never None, a bool, a list, a dict or a "
    "whole result. Nothing comes after a return.",
    "Constants, helper functions, methods and classes of your own may stand beside these.",
)
#: The fixed beginning of every workflow, with which a prompt may end.
CLASS_HEAD = text.CLASS_HEAD + "        self."
#: The same for the short prompt. The policy first says what is asked, so that its choice of operators can depend on the
#: sentence before. SmolLM2 otherwise chose by domain alone (docs/reports/pretrained.md).
ASKED_HEAD = CLASS_HEAD.removesuffix("self.") + "# Asked: "
#: The same for replies in a fenced block.
HEAD = f"```python\n{CLASS_HEAD}"
#: The version that the sandbox runs.
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def contract(operators: Operators, max_calls: int, python: str = _PYTHON) -> str:
    """The system prompt, for the configured ``operators`` and ``max_calls``."""
    rules = "\n".join(f"- {rule}" for rule in RULES).replace("{python}", python).replace("{max_calls}", str(max_calls))
    docs = "\n".join(f"- {_doc(operator)}" for operator in operators.values())
    return FULL_SYSTEM.format(docs=docs, skeleton=skeleton(operators), rules=rules)


def _doc(operator: Any) -> str:
    """The operator's call with types, its result and its summary."""
    parameters = []
    for p in catalog.signature(operator).parameters.values():
        typed = ": ".join(filter(None, (p.name, catalog.type_word(p))))
        parameters.append(typed if p.default is p.empty else f"{typed} = {p.default!r}")
    keys = ", ".join(f'"{key}": {kind.__name__}' for key, kind in operator.RESULT.items())
    options = ", ".join(f"{p.name}={p.default!r}" for p in catalog.init_signature(operator).parameters.values())
    call = f"{operator.NAME}({', '.join(parameters)}) -> {{{keys}}}: {operator.SUMMARY}"
    return f"{call}; built as operator.{operator.NAME}(self.llm, {options})" if options else call


def skeleton(operators: Operators) -> str:
    """A whole workflow of one call: AnswerGenerate or Custom if they are allowed, else the first operator."""
    preferred = [name for name in ("AnswerGenerate", "Custom") if name in operators]
    operator = operators[preferred[0]] if preferred else next(iter(operators.values()))
    attribute = text.attribute_of(operator.NAME)
    values, problem = dict[str, str](), "problem"
    for parameter in catalog.signature(operator).parameters.values():
        if parameter.default is parameter.empty:
            kind = catalog.type_word(parameter)
            usual = {"int": "1", "float": "1.0", "bool": "True", "list": "[problem]"}.get(kind.partition("[")[0])
            values[parameter.name] = usual or problem
            problem = problem if usual else "''"  # only the first text is the problem
    texts = [key for key, kind in operator.RESULT.items() if kind is str]
    answer = f'result["{texts[-1]}"]' if texts else f'str(result["{next(iter(operator.RESULT))}"])'
    called = text.called(attribute, operator, values)
    return text.class_text([text.built(attribute, operator.NAME)], f"result = await {called}\nreturn {answer}, 0.0")
