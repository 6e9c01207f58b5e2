"""``--repair`` at inference: give a value to variables that lint finds unbound. Never used in training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from llm_as_judge.answers.code import quiet_parse
from llm_as_judge.types import Finding

_UNBOUND = ("W301", "W302")


def initialise_unbound(source: str, findings: Iterable[Finding]) -> str:
    """``source`` with ``name = ""`` put first in ``__call__`` for every variable that may be unbound."""
    names = [m.group(1) for f in findings if f.code in _UNBOUND and (m := re.search(r"\b([A-Za-z_]\w*)\b", f.message))]
    if not names:
        return source
    for node in ast.walk(quiet_parse(source)):
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "__call__":
            lines = source.splitlines()
            at = node.body[0].lineno - 1
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines[at:at] = [f'{indent}{name} = ""' for name in dict.fromkeys(names)]
            return "\n".join(lines)
    return source
