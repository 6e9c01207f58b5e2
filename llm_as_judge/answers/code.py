"""The code in a text with markdown fences: the last block of a reply, the first of a policy's completion.

The last block of a reply may be cut off, so any fence counts. A workflow may hold fences in its own strings and must
not gain from an unclosed one, so only fences on a line of their own count.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

#: Characters of the longest text of a model that is parsed as Python: its syntax tree takes 400 times the memory.
LONGEST_PARSED = 15_000
_ANY = re.compile(r"```[\w+-]*[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_OPENING = re.compile(r"^```[ \t]*(?:python3?|py)?[ \t]*\r?\n", re.MULTILINE | re.IGNORECASE)
_CLOSING = re.compile(r"^```[ \t]*\r?$", re.MULTILINE)


def blocks(text: str) -> list[str]:
    """All fenced blocks of a reply; the last one may be open."""
    return [str(block).strip("\r\n").rstrip() for block in _ANY.findall(text)]


def last_block(text: str) -> str:
    """Source of a reply: the last fenced block, closed or not, else the text itself."""
    found = blocks(text)
    return found[-1] if found else text.strip("\r\n").rstrip()


def first_block(text: str) -> str:
    """Source of a completion: its first closed Python block, else the text as it is."""
    opening = _OPENING.search(text)
    closing = _CLOSING.search(text, opening.end()) if opening else None
    return text[opening.end() : closing.start()] if opening and closing else text


def quiet_parse(source: str, longest: int | None = None) -> ast.Module:
    """``ast.parse`` without the warnings that Python gives about a foreign text.

    Raises ``SyntaxError``, also for NUL bytes, half surrogate pairs and texts that are nested too deeply or have more
    than ``longest`` characters.
    """
    if longest is not None and len(source) > longest:
        raise SyntaxError(f"{len(source):,} characters, more than {longest:,}")
    with warnings.catch_warnings(), one_error():
        warnings.simplefilter("ignore")
        return ast.parse(source)


@contextmanager
def one_error() -> Iterator[None]:
    """Whatever Python raises about a text, as ``SyntaxError`` with ``msg`` and ``lineno``."""
    try:
        yield
    except (ValueError, RecursionError, MemoryError) as error:
        deep = not isinstance(error, ValueError)
        raise SyntaxError("nested too deeply" if deep else str(error), ("<unknown>", 1, None, None)) from None


def parses(source: str) -> bool:
    """Whether ``source`` is Python of at most ``LONGEST_PARSED`` characters."""
    try:
        quiet_parse(source, LONGEST_PARSED)
    except SyntaxError:
        return False
    return True
