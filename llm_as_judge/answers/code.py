"""The code in a text: the fenced block or lines of a reply that define the function, with what they use; the first
block of a policy's completion.

The last block of a reply may be cut off, so any fence counts. A workflow may hold fences in its own strings and must
not gain from an unclosed one, so only fences on a line of their own count.
"""

import ast
import builtins
import html
import keyword
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from textwrap import dedent, indent

#: The ``entry_point`` of a whole program, which reads standard input and prints. Its tests call ``__main__(text)``,
#: which runs it with ``text`` as input and returns what it prints.
PROGRAM = "__main__"
#: Characters of the longest text of a model that is parsed as Python: its syntax tree takes 400 times the memory.
LONGEST_PARSED = 15_000
BUILTINS = frozenset(dir(builtins))
#: Characters of the longest reply whose blocks are compared.
_LONGEST_COMPARED = 60_000
_ANY = re.compile(r"(?:```|~~~)[^`~\n]*\n(.*?)(?:```|~~~|\Z)", re.DOTALL)
#: Blocks whose text may hold fences: they close on a line of their own.
_LINES = re.compile(r"^([ \t]*(?:```|~~~))[^`~\n]*\n(.*?)(?:^\1[ \t]*\r?$|\Z)", re.DOTALL | re.MULTILINE)
#: Parts of a reply that are compared, and lines of one without fences that begin a statement: the last ones.
_MOST_PARTS, _MOST_STATEMENTS = 60, 200
_LONGEST_OPEN = 6  # lines of a statement that begin without indentation
_STATEMENT = re.compile(r"\n(?=[^\s)\]}])(?!(?:else|elif|except|finally)\b)")
#: Tags, special tokens and backticks at the edges of a line.
_EDGE = r"(?:</?\w[^<>\n]*>|<\|[^<>\n]*\|>|`(?:python3? )?)+"
_EDGES = re.compile(rf"(?m)^{_EDGE}|(?<![>`]){_EDGE}\r?$")
_PRINTS, _READS = re.compile(r"\b(?:print|stdout)\b"), re.compile(r"\b(?:input|stdin|open)\b")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Invisible characters at the start of a line, which Python does not read; its spaces of another kind.
_INVISIBLE = re.compile(r"(?m)^[ \t]*[\xa0\u200b\u2060\ufeff][ \t\xa0\u200b\u2060\ufeff]*")
_AS_SPACES = str.maketrans({"\xa0": " ", "\u200b": None, "\u2060": None, "\ufeff": None})
#: A string of JSON or Python, which may be cut off.
_STRING, _ESCAPED = re.compile(r"""(?m)(?<!\w)(["'])((?:(?!\1)[^\\\n]|\\.)*)(?:\1|\\?$)"""), {"n": "\n", "t": "\t"}
#: What stands before the lines of a session or quotation, of a numbered listing, of a changed file; its removed lines.
_PREFIXES = {  # by what a text with them has
    "": r"(?m)^(?:>>>|\.\.\.|>) ?",
    r"(?m)^ *(?:\d|In \[)": r"(?m)^ *(?:\d+(?: ?[.:|)])?|In \[\d+\]:|\.\.\.:) ?",
    r"(?m)^\+": r"(?m)^(?:(?:-|@@|\+\+\+).*\n|[+ ])",
}
_OPENING = re.compile(r"^```[ \t]*(?:python3?|py)?[ \t]*\r?\n", re.MULTILINE | re.IGNORECASE)
_CLOSING = re.compile(r"^```[ \t]*\r?$", re.MULTILINE)
#: A block in another language, whose last line would look like an opening one.
_OTHER = re.compile(r"^```[ \t]*(?!py(?:thon3?)?\s)[^\s`]+[ \t]*\r?\n(?:(?!```).*\n)*```[ \t]*\r?$", re.M | re.I)


def blocks(text: str) -> list[str]:
    """Return all fenced blocks of a reply; the last one may be open."""
    return [str(block).strip("\r\n").rstrip() for block in _ANY.findall(text)]


def last_block(text: str) -> str:
    """Return the source of a reply: the last fenced block, closed or not, else the text itself."""
    return (blocks(text) or [text.strip("\r\n").rstrip()])[-1]


def is_name(text: str) -> bool:
    """Tell whether ``text`` may be a function's name. Longer ones would make a pattern that takes long to compile."""
    return len(text) <= 200 and text.isidentifier() and not keyword.iskeyword(text)


def defines(source: str, name: str) -> bool:
    """Tell whether ``source`` has a function, a class or a variable of that name; as a program, whether it prints."""
    if name == PROGRAM:
        return _PRINTS.search(source) is not None
    if not is_name(name):
        return False
    return re.search(rf"(?m)^[ \t]*(?:(?:async )?(?:def|class) {name}\b|{name} *=)", source) is not None


def defining_block(text: str, name: str, prompt: str = "") -> str:
    """Find the Python source of a reply: its last part that defines ``name``, with the parts that bind what it lacks.

    Parts are fenced blocks, else runs of lines that are Python, indented blocks, all these in a quotation, an
    interactive session, HTML or a JSON string, or the function that begins in ``prompt`` and ends in the reply; else
    the last block or the text.
    """
    text = _INVISIBLE.sub(lambda found: found.group().translate(_AS_SPACES), re.sub("\r\n?", "\n", text))
    fenced = blocks(text)
    given = ([block for block in fenced if defines(block, name)] or fenced or [text.strip("\r\n").rstrip()])[-1]
    if len(text) + len(prompt) > _LONGEST_COMPARED:
        return given
    prefixes = [prefix for mark, prefix in _PREFIXES.items() if re.search(mark, text)]
    bare = (html.unescape(re.sub(prefix, "", text)).translate(_AS_SPACES) for prefix in prefixes)
    strings = "\n\n".join(lines for _, lines in _STRING.findall(text) if "\\n" in lines) or text
    said = dict.fromkeys((text, *bare, re.sub(r"\\(.)", lambda sign: _ESCAPED.get(sign[1], sign[1]), strings)))
    chosen = next(filter(None, (_chosen(parts, name) for each in said for parts in _parts(each))), "")
    if not chosen and prompt and not _chosen(_runs(prompt), name):
        moved = indent(given, "    ") if parses(given) else f"    {_STATEMENT.split(given, maxsplit=1)[0]}"
        bodies = [given if given[:1].isspace() else moved]
        bodies += (indent(dedent(part), "    ") for part in _indented(f"{text}\n\n{given}")[-1:])
        chosen = next(filter(None, (_chosen(_runs(f"{prompt.rstrip()}\n{body}"), name) for body in bodies)), "")
    return chosen or given


def _parts(text: str) -> Iterator[list[str]]:
    """Find the code in a text in three ways: in fences, in runs of its lines, in indented ones."""
    yield [match.group(2).rstrip() for match in _LINES.finditer(text)]
    yield blocks(text)
    yield _runs(text)
    yield _indented(text)


def _indented(text: str) -> list[str]:
    """Find indented lines after an empty one."""
    lines = groupby(f"\n{text}".split("\n"), lambda line: not line.strip() or line[0].isspace())
    runs = ([*part] for inside, part in lines if inside)
    return ["\n".join(run).strip("\n").rstrip() for run in runs if not run[0].strip()]


def _chosen(found: Sequence[str], name: str) -> str:
    """Choose the last of the parts that are Python and define ``name``, after those with what it uses; empty for none.

    Of programs it is the last one that reads input, if any does. A part that needs a program only shows its use; lines
    of an earlier part, if not a program without its last lines, only explain it.
    """
    parts = [part for block in found[-_MOST_PARTS:] if parses(part := dedent(block))]
    names, programs = [*map(names_of, parts)], list[str]()
    flat = [re.sub(r"\s*\n\s*", "\n", f"\n{part}\n") for part in parts]
    for place in reversed(range(len(parts))):
        if name != PROGRAM and not _binds(parts[place], name):
            continue
        used = [parts[i] for i in _used(place, names)]
        whole = [part for part in flat[:place] if flat[place] in part]
        if whole and (used or name != PROGRAM or not whole[-1].startswith(flat[place])):
            continue
        source = "\n\n".join([*used, parts[place]])
        if name != PROGRAM:
            return source
        if _prints(source) and not any(map(_prints, used)):
            programs.append(source)
    return next(filter(_READS.search, programs), programs[0] if programs else "")


def _used(place: int, names: Sequence[tuple[set[str], set[str]]]) -> list[int]:
    """Find the nearest parts before ``place`` that bind a name which the part there, or one of them, uses and lacks."""
    used, (bound, loaded) = list[int](), names[place]
    others = [*reversed(range(place)), *range(place + 1, len(names))]
    while missing := loaded - bound - BUILTINS:
        found = next((i for each in (missing, {"*"}) for i in others if names[i][0] & each), None)
        if found is None:
            break
        used.append(found)
        others.remove(found)
        bound, loaded = (a | b for a, b in zip((bound, loaded), names[found], strict=True))
    return sorted(used)


def _binds(source: str, name: str) -> bool:
    """Tell whether code gives ``name`` a value that does not need it. A function that does nothing is a signature."""
    for node in ast.walk(quiet_parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                if not all(map(_is_idle, node.body)):
                    return True
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                if isinstance(value, ast.Lambda) or name not in names_in(value):
                    return True
    return False


def _prints(source: str) -> bool:
    """Tell whether what runs outside functions prints, or uses a function or class of a source that prints."""
    try:
        body = quiet_parse(source, LONGEST_PARSED).body
        own = [node.name for node in body if isinstance(node, _DEFINITIONS)]
        with one_error():
            does = [node for node in body if not (isinstance(node, (*_DEFINITIONS, ast.ImportFrom)) or _is_idle(node))]
            said = [ast.unparse(node) for node in does]
    except SyntaxError:
        return False
    words = "|".join(["print", "stdout", *own])
    return defines(source, PROGRAM) and re.search(rf"\b(?:{words})\b", "\n".join(said)) is not None


def _is_idle(node: ast.stmt) -> bool:
    """Tell whether a statement only reads, ``[DONE]`` or ``Note: x``, or raises."""
    idle = isinstance(node, (ast.Expr, ast.Pass)) or (isinstance(node, ast.AnnAssign) and node.value is None)
    quiet = idle and not any(isinstance(part, (ast.Call, ast.Yield)) for part in ast.walk(node))
    return quiet or isinstance(node, ast.Raise)


def _runs(text: str) -> list[str]:
    """Find the code in a text, whatever is around it: runs of statements that are Python and do something."""
    lines = _STATEMENT.split(text if parses(text) else _EDGES.sub("", text))[-_MOST_STATEMENTS:]
    runs, place = [list[str]()], 0
    while place < len(lines):
        ends = range(place + 1, min(place + _LONGEST_OPEN, len(lines)) + 1)
        end = next((end for end in ends if parses("\n".join(lines[place:end]))), None)
        code = "\n".join(lines[place:end]) if end else ""
        if not code:
            runs.append([])
        elif not all(map(_is_idle, body := quiet_parse(code).body)) or not names_in(*body):
            runs[-1].append(code)
        place = end or place + 1
    return ["\n".join(run).strip("\r\n").rstrip() for run in runs if run]


def names_in(*nodes: ast.AST) -> set[str]:
    """Return the variables in the nodes."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_of(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a source gives a value anywhere, and those that it reads. Raises ``SyntaxError``."""
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


def first_block(text: str) -> str:
    """Return source of a completion: its first closed Python block, else the text as it is."""
    rest = _OTHER.sub("", text)
    opening = _OPENING.search(rest)
    closing = _CLOSING.search(rest, opening.end()) if opening else None
    return rest[opening.end() : closing.start()] if opening and closing else text


def quiet_parse(source: str, longest: int | None = None) -> ast.Module:
    """Call ``ast.parse`` without the warnings that Python gives about a foreign text.

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
    """Raise whatever Python raises about a text as ``SyntaxError`` with ``msg`` and ``lineno``."""
    try:
        yield
    except (ValueError, RecursionError, MemoryError) as error:
        deep = not isinstance(error, ValueError)
        raise SyntaxError("nested too deeply" if deep else str(error), ("<unknown>", 1, None, None)) from None


def parses(source: str) -> bool:
    """Tell whether ``source`` is Python of at most ``LONGEST_PARSED`` characters."""
    try:
        quiet_parse(source, LONGEST_PARSED)
    except SyntaxError:
        return False
    return True
