"""Foreign code: executed as a module, and in a line what went wrong in it."""

from __future__ import annotations

import sys
import traceback
import types
from typing import Any

FILENAME = "<snippet>"
_MESSAGE_LIMIT = 500

#: What a module has before its source is executed: a workflow's names.
NAMESPACE: dict[str, Any] = {}


def execute(source: str, name: str, prelude: str = "") -> dict[str, Any]:
    """Execute ``source``, after ``prelude``, as a module of that name and return its namespace.

    Each is compiled by itself: what must come first in a file (``from __future__ import ...``) does so in both.
    """
    module = types.ModuleType(name)
    module.__dict__.update(NAMESPACE)
    if "." in name:
        module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    if prelude:
        exec(compile(prelude, "<prelude>", "exec", dont_inherit=True), module.__dict__)
    exec(compile(source, FILENAME, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def describe(error: BaseException) -> str:
    """``Type: message (line N)``, N being the last line of the snippet on the way to the error."""
    text = type(error).__name__
    if message := message_of(error):
        text += f": {message}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == FILENAME]
    if lines and not isinstance(error, SyntaxError):
        text += f" (line {lines[-1]})"
    return text


def message_of(error: BaseException) -> str:
    """The start of its ``str()``, whatever that does."""
    try:
        return str(error)[:_MESSAGE_LIMIT]
    except BaseException as second:
        return f"<str() raised {type(second).__name__}>"
