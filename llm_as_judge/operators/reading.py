"""Reading a model's reply: tags, labels, letters, code. What is not there is not guessed."""

from __future__ import annotations

import re

from llm_as_judge.answers.code import blocks, quiet_parse

_CODE = re.compile(r"(?:import|from|def|class|async def)\b|@\w")
_SENTENCE = re.compile(r"[A-Z][\w']* [a-z]|[-*>] |#+ [A-Z]")
_EMPHASIS = ("**", "__", "`", "*")


def field(text: str, name: str, *, cut: bool = False) -> str | None:
    """The last ``<name>...</name>`` of a reply, an unclosed one up to the next tag or the end, or what stands after
    the label ``Name:`` on its line or the lines below; None where there is neither.

    ``cut``: the reply was cut off, so that only what is closed is there as it was meant.
    """
    closed = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL | re.IGNORECASE)
    if closed:
        return plain(closed[-1])
    if cut:
        return None
    unclosed = re.findall(rf"<{name}>(.*?)(?=</?[a-z_]+>|\Z)", text, re.DOTALL | re.IGNORECASE)
    return plain(unclosed[-1]) if unclosed else _labelled(text, name)


def _labelled(text: str, name: str) -> str | None:
    """What stands after the last label: on its line, else below it (one paragraph, for a solution all)."""
    label = rf"^[\W_]*(?:final |corrected |the )*{name.replace('_', '[ _]')}[ *_]*:[ *_]*"
    found = list(re.finditer(label, text, re.IGNORECASE | re.MULTILINE))
    if not found:
        return None
    here, _, below = text[found[-1].end() :].partition("\n")
    return (
        plain(here.lstrip(" *_")) or plain(below if name == "solution" else below.strip().partition("\n\n")[0]) or None
    )


def plain(text: str) -> str:
    """Stripped, and without Markdown's emphasis around the whole."""
    text = text.strip()
    for mark in _EMPHASIS:
        inner = text.removeprefix(mark).removesuffix(mark)
        if len(text) - len(inner) == 2 * len(mark) and mark not in inner:
            return inner.strip()
    return text


def truth(text: str | None) -> bool | None:
    """True or False where ``text`` begins with that word and nothing else is meant by it."""
    found = re.match(r"\W*(true|false)(?=$|[\s.,;:!)\]*_-])(?! or\b| if\b)", text or "", re.IGNORECASE)
    return None if found is None else found.group(1).lower() == "true"


def letter(text: str | None, count: int) -> int | None:
    """Index of the option that ``text`` names: alone or first (``B``, ``B.``, ``(B)``, ``Option B: ...``), else the
    only one that it names at all.
    """
    text = text or ""
    first = re.match(
        r"\W*(?:(?:option|solution|answer|letter)\W+)?([A-Za-z])(?=$|[^\w\s]|\s*$|\s*\n)", text, re.IGNORECASE
    )
    named = [first.group(1).upper()] if first else re.findall(r"(?<![A-Za-z])([A-Z])(?![A-Za-z'])", text)
    indices = {ord(found) - ord("A") for found in named}
    indices = {index for index in indices if index < count}
    return indices.pop() if len(indices) == 1 else None


def chosen_letter(text: str, count: int) -> int | None:
    """The option that a reply names in its tag or by its label, or as all it says."""
    said = field(text, "solution_letter") or field(text, "answer")
    if said is None and len(text.split()) <= 3:
        said = text
    return letter(said, count)


def code(text: str, name: str) -> str:
    """Python source of a reply: the last block that defines ``name``, else the last one, else the text itself from its
    first line of code to its last.
    """
    fenced = blocks(text)
    if defining := [block for block in fenced if defines(block, name)]:
        return defining[-1]
    return fenced[-1] if fenced else _unfenced(text)


def defines(source: str, name: str) -> bool:
    """``source`` has a function (or another thing) of that name."""
    return (
        re.search(rf"^\s*(?:(?:async )?(?:def|class) {re.escape(name)}\b|{re.escape(name)} *=)", source, re.M)
        is not None
    )


def _unfenced(text: str) -> str:
    """``text`` without the sentences around its code, where that leaves Python."""
    source = text.strip("\r\n").rstrip()
    if _parses(source):
        return source
    lines = source.splitlines()
    start = next((i for i, line in enumerate(lines) if _CODE.match(line)), 0)
    end = next((i for i in range(start, len(lines)) if _SENTENCE.match(lines[i])), len(lines))
    part = "\n".join(lines[start:end]).rstrip()
    return part if part and _parses(part) else source


def _parses(source: str) -> bool:
    try:
        quiet_parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
