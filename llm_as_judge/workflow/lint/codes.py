"""What lint can find: the numbered codes, and the report that collects them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from llm_as_judge.types import Finding

#: code -> what it means, and whether it is fatal
CODES: Mapping[str, tuple[str, bool]] = {
    "W101": ("the text is not Python", True),
    "W102": ("there is no class Workflow", True),
    "W104": ("Workflow has no async __call__", True),
    "W105": ("__call__ cannot be called with (problem) or (problem, entry_point)", True),
    "W106": ("__init__ asks for something that is not given", True),
    "W107": ("a code problem's __call__ does not take entry_point", False),
    "W108": ("an import that has no place in a workflow", False),
    "W109": ("an import of what the sandbox does not have", True),
    "W201": ("there is no such operator", True),
    "W202": ("an attribute is used that self, or an operator, does not have", True),
    "W203": ("an operator is given the wrong arguments", True),
    "W204": ("an operator's call is not awaited", True),
    "W205": ("an operator is built but never used", False),
    "W206": ("an operator's call cannot be reached", False),
    "W207": ("an operator's result, or a string, has no such key", True),
    "W208": ("get() of a key that an operator's result never has", False),
    "W209": ("the model is called directly, and not through an operator", True),
    "W210": ("a prompt is used that the prompt.py beside the workflow does not have", True),
    "W211": ("an operator's whole result is added to text", True),
    "W301": ("a variable may be unbound", True),
    "W302": ("a variable is unbound if a loop does not run", False),
    "W303": ("a name is not defined", True),
    "W304": ("a path of __call__ ends without a return", True),
    "W305": ("__call__ ends without a return if a loop comes to its end", False),
    "W401": ("the answer is not a string", True),
}


class Report:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._seen: set[tuple[str, str, int]] = set()

    def __call__(self, code: str, message: str, node: ast.AST) -> None:
        line = getattr(node, "lineno", 1)
        if (code, message, line) not in self._seen:
            self._seen.add((code, message, line))
            self.findings.append(Finding(code, message, line, CODES[code][1]))
