"""The code in a text with markdown fences: the block of a reply that defines the function, the first block of a
policy's completion.

The last block of a reply may be cut off, so any fence counts. A workflow may hold fences in its own strings and must
not gain from an unclosed one, so only fences on a line of their own count.
"""

import ast
import builtins
import keyword
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent

#: The ``entry_point`` of a whole program, which reads standard input and prints. Its tests call ``__main__(text)``,
#: which runs it with ``text`` as input and returns what it prints.
PROGRAM = "__main__"
#: Characters of the longest text of a model that is parsed as Python: its syntax tree takes 400 times the memory.
LONGEST_PARSED = 15_000
#: Characters of the longest reply whose blocks are compared.
_LONGEST_COMPARED = 60_000
_ANY = re.compile(r"(?:```|~~~)[^`~\n]*\n(.*?)(?:```|~~~|\Z)", re.DOTALL)
#: Blocks whose text may hold fences: they close on a line of their own.
_LINES = re.compile(r"^([ \t]*(?:```|~~~))[^`~\n]*\n(.*?)(?:^\1[ \t]*\r?$|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?:import|from|def|class|async def)\b|@\w")
_SENTENCE = re.compile(r"[A-Z][\w']* [a-z]|[-*>] |#+ [A-Z]")
_OPENING = re.compile(r"^```[ \t]*(?:python3?|py)?[ \t]*\r?\n", re.MULTILINE | re.IGNORECASE)
_CLOSING = re.compile(r"^```[ \t]*\r?$", re.MULTILINE)


def blocks(text: str) -> list[str]:
    """All fenced blocks of a reply; the last one may be open."""
    return [str(block).strip("\r\n").rstrip() for block in _ANY.findall(text)]


def last_block(text: str) -> str:
    """Source of a reply: the last fenced block, closed or not, else the text itself."""
    found = blocks(text)
    return found[-1] if found else text.strip("\r\n").rstrip()


def is_name(text: str) -> bool:
    """Whether ``text`` may be a function's name. Longer ones would make a pattern that takes long to compile."""
    return len(text) <= 200 and text.isidentifier() and not keyword.iskeyword(text)


def defines(source: str, name: str) -> bool:
    """Whether ``source`` has a function, a class or a variable of that name; as a program, whether it prints."""
    if name == PROGRAM:
        return re.search(r"\b(?:print|stdout)\b", source) is not None
    if not is_name(name):
        return False
    return re.search(rf"(?m)^[ \t]*(?:(?:async )?(?:def|class) {name}\b|{name} *=)", source) is not None


def defining_block(text: str, name: str) -> str:
    """Python source of a reply: the last fenced block that defines ``name``, after the blocks with what it uses.

    A block that is Python goes before one that is not. Without a block that defines ``name`` it is the last block;
    without a block, the lines of the text from the first to the last one of code.
    """
    fenced = blocks(text)
    if len(text) > _LONGEST_COMPARED:
        return ([block for block in fenced if defines(block, name)] or fenced or [_unfenced(text)])[-1]
    for found in ([match.group(2).strip("\r\n").rstrip() for match in _LINES.finditer(text)], fenced):
        for chosen in reversed([dedent(block) for block in found if defines(block, name)]):
            if parses(chosen):
                others = [dedent(block) for block in found if not defines(block, name)]
                return "\n\n".join([*_used(chosen, [block for block in others if parses(block)]), chosen])
    return ([block for block in fenced if defines(block, name)] or fenced or [_unfenced(text)])[-1]


def _used(source: str, others: list[str]) -> list[str]:
    """Those of ``others`` that bind a name which ``source``, or one of them, uses and lacks."""
    used = list[str]()
    bound, loaded = names_of(source)
    while missing := loaded - bound - set(dir(builtins)):
        found = next((block for block in others if block not in used and names_of(block)[0] & missing), None)
        if found is None:
            break
        used.append(found)
        bound, loaded = (a | b for a, b in zip((bound, loaded), names_of(found), strict=True))
    return sorted(used, key=others.index)


def names_in(*nodes: ast.AST) -> set[str]:
    """The variables in the nodes."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_of(source: str) -> tuple[set[str], set[str]]:
    """The names that a source gives a value anywhere, and those that it reads. Raises ``SyntaxError``."""
    bound, loaded = set[str](), set[str]()
    for node in ast.walk(quiet_parse(source)):
        match node:
            case ast.Name(id=name):
                (loaded if isinstance(node.ctx, ast.Load) else bound).add(name)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
    return bound, loaded


def _unfenced(text: str) -> str:
    """``text`` without the sentences around its code, if that leaves Python."""
    source = text.strip("\r\n").rstrip()
    if len(source) > LONGEST_PARSED or parses(source):
        return source
    lines = source.splitlines()
    start = next((i for i, line in enumerate(lines) if _CODE.match(line)), 0)
    end = next((i for i in range(start, len(lines)) if _SENTENCE.match(lines[i])), len(lines))
    part = "\n".join(lines[start:end]).rstrip()
    return part if part and parses(part) else source


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
