"""The numbered findings of lint, and the report that collects them."""

import ast
from collections.abc import Mapping
from pathlib import Path

from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.types import Finding

_TEXTS = plain_yaml(Path(__file__).with_name("codes.yaml"))
#: code -> meaning, and whether it is an error (fatal): a statement that fails whenever it is reached.
CODES: Mapping[str, tuple[str, bool]] = {
    code: (text, kind == "errors")
    for code, text, kind in sorted((c, t, k) for k in _TEXTS for c, t in _TEXTS[k].items())
}


def meaning(code: str) -> str:
    """Return ``code`` with its meaning; unknown codes as they are."""
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
