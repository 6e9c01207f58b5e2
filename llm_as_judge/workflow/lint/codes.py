"""The numbered findings of lint, and the report that collects them."""

import ast
from collections.abc import Mapping

from llm_as_judge.types import Finding

#: code -> meaning, and whether it is an error (fatal): a statement that fails whenever it is reached.
CODES: Mapping[str, tuple[str, bool]] = {
    "W101": ("the text is not Python, or longer than 15,000 characters", True),
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
    "W209": ("the model is called directly instead of through an operator", True),
    "W210": ("a prompt is used that the workflow's prompt.py does not have", True),
    "W211": ("an operator's whole result is added to text", True),
    "W301": ("a variable may be unbound", False),
    "W303": ("a name is not defined", True),
    "W304": ("a path of __call__ ends without an answer", False),
    "W401": ("the answer is not a string", True),
}


def meaning(code: str) -> str:
    """``code`` with its meaning; unknown codes as they are."""
    return f"{code} {CODES[code][0]}" if code in CODES else code


class Report:
    """Findings of one workflow, each code, message and line once."""

    def __init__(self) -> None:
        self._found: set[Finding] = set()

    def __call__(self, code: str, message: str, node: ast.AST) -> None:
        self._found.add(Finding(code, message, getattr(node, "lineno", 1), CODES[code][1]))

    @property
    def findings(self) -> list[Finding]:
        """All findings by line."""
        return sorted(self._found, key=lambda finding: (finding.line, finding.code, finding.message))
