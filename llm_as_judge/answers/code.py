"""The code in a text with markdown fences: of a reply the last block, of a policy's completion the first.

A model's reply ends with its answer and may be cut off in it, so any fence counts. A workflow may hold fences in its
own strings, and must not gain by what is never closed: only fences that have a line of their own count.
"""

from __future__ import annotations

import ast
import re
import warnings

_ANY = re.compile(r"```[\w+-]*[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_OWN_LINE = re.compile(
    r"^```[ \t]*(?:python3?|py)?[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.DOTALL | re.MULTILINE | re.IGNORECASE
)


def blocks(text: str) -> list[str]:
    """All fenced blocks of a reply; the last one may be open."""
    return [str(block).strip("\r\n").rstrip() for block in _ANY.findall(text)]


def last_block(text: str) -> str:
    """Source of a reply: the last fenced block if there is one, closed or not, else the text itself."""
    found = blocks(text)
    return found[-1] if found else text.strip("\r\n").rstrip()


def first_block(text: str) -> str:
    """Source of a completion: its first closed Python block, or the text as it is."""
    found = _OWN_LINE.search(text)
    return found.group(1) if found else text


def quiet_parse(source: str) -> ast.Module:
    """``source`` as a syntax tree; what Python finds odd in somebody else's text is no news on a terminal.

    Raises what ``ast.parse`` does: ``SyntaxError``, ``ValueError``, ``RecursionError`` or ``MemoryError``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)
