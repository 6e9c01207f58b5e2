"""Data made harmless before a judge reads it: what a candidate says can be read, but it cannot speak to the judge.

``fence`` keeps a text inside one line of the prompt.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_FIELD = 2000
_LABEL = re.compile(r"\b(Question|Reference|Candidate|Reply|System|User|Assistant)\s*[:：]", re.IGNORECASE)
_SQUARE_TAG = re.compile(r"\[(/?(?:INST|SYS))\]")
_ANGLES = str.maketrans({"<": "\u2039", "＜": "\u2039", "﹤": "\u2039", ">": "\u203a", "＞": "\u203a", "﹥": "\u203a"})


def fence(text: str, longest: int = LONGEST_FIELD) -> str:
    """``text`` as one harmless line: no line breaks, tags, labels or invisible signs; head and tail when it is long."""
    if len(text) > 8 * longest:  # whatever stands between would be left out in the end
        text = f"{text[: 4 * longest]} ... {text[-4 * longest :]}"
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    line = " ".join(visible.split()).translate(_ANGLES)
    line = _SQUARE_TAG.sub(r"\1", _LABEL.sub(r"\1 -", line))
    if len(line) <= longest:
        return line
    gap = " ... "
    head = (longest - len(gap)) // 2
    return line[:head] + gap + line[-(longest - len(gap) - head) :]
