"""Readers of a model's reply: tags, labels, letters (code: ``answers.code``). Nothing is guessed.

Replies and arguments of a workflow may be megabytes of anything, and are read in the host's event loop: every pattern
takes linear time.
"""

import re

_TAG = re.compile(r"</?[a-z_]+>", re.IGNORECASE)
_EMPHASIS = ("**", "__", "`", "*")


def field(text: str, name: str, *, cut: bool = False) -> str | None:
    """Read the last ``<name>...</name>`` of a reply. If no tag is closed, the text after an open one up to the next
    tag, or after the label ``Name:``, on its line or below; None if there is neither.

    ``cut``: the reply was cut off, so only what is closed counts.
    """
    start, closed, opened = None, None, None
    for tag in re.finditer(rf"<(/?){name}>", text, re.IGNORECASE):
        if not tag.group(1):
            opened = tag.end()
            start = tag.end() if start is None else start
        elif start is not None:
            closed, start = text[start : tag.start()], None
    if closed is not None:
        return unemphasised(closed)
    if cut:
        return None
    return unemphasised(_TAG.split(text[opened:], maxsplit=1)[0]) if opened is not None else _labelled(text, name)


def _labelled(text: str, name: str) -> str | None:
    """Read what follows the last label: on its line, else below it (one paragraph; for a solution, everything)."""
    label = rf"^(?:[^\w\n]|_){{0,20}}(?:final |corrected |the ){{0,3}}{name.replace('_', '[ _]')}[ *_]*:[ *_]*"
    ends = [found.end() for found in re.finditer(label, text, re.IGNORECASE | re.MULTILINE)]
    if not ends:
        return None
    here, _, below = text[ends[-1] :].partition("\n")
    paragraph = below if name == "solution" else below.strip().partition("\n\n")[0]
    return unemphasised(here.lstrip(" *_")) or unemphasised(paragraph) or None


def unemphasised(text: str) -> str:
    """Strip ``text`` of spaces, and of Markdown emphasis around the whole."""
    text = text.strip()
    for mark in _EMPHASIS:
        inner = text.removeprefix(mark).removesuffix(mark)
        if len(text) - len(inner) == 2 * len(mark) and mark not in inner:
            return inner.strip()
    return text


def truth(text: str | None) -> bool | None:
    """Read True or False if ``text`` begins with that word and does not go on with an alternative or a condition."""
    found = re.match(r"\W*(true|false)(?=$|[\s.,;:!)\]*_-])(?! or\b| if\b)", text or "", re.IGNORECASE)
    return None if found is None else found.group(1).lower() == "true"


def chosen_index(text: str, count: int) -> int | None:
    """Find the index of the option that a reply names in its tag, after its label, or as all it says.

    That is the option named alone or first (``B``, ``B.``, ``(B)``, ``Option B: ...``), else the only one named at all.
    """
    said = field(text, "solution_letter") or field(text, "answer")
    said = (text if said is None and len(text.split()) <= 3 else said) or ""
    first = re.match(r"(?i)\W*(?:(?:option|solution|answer|letter)\W+)?([A-Za-z])(?=$|[^\w\s]|\s*$|\s*\n)", said)
    named = [first.group(1).upper()] if first else re.findall(r"(?<![A-Za-z])([A-Z])(?![A-Za-z'])", said)
    indices = {index for found in named if (index := ord(found) - ord("A")) < count}
    return indices.pop() if len(indices) == 1 else None
