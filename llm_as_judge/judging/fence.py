"""Data made harmless before a judge reads it: what a candidate says can be read, but it cannot speak to the judge.

``fence`` keeps a text inside one line of the prompt. ``says_nothing`` tells the candidates that hold no answer at all
and yet are known to make model judges say True: a lone colon, ``Thought process:``, a bare heading ("One Token to Fool
LLM-as-a-Judge", Zhao et al. 2025).
"""

from __future__ import annotations

import re
import unicodedata

LONGEST_FIELD = 2000
_LABEL = re.compile(r"\b(Question|Reference|Candidate|Reply|System|User|Assistant)\s*[:：]", re.IGNORECASE)
_SQUARE_TAG = re.compile(r"\[(/?(?:INST|SYS))\]")
_ANGLES = str.maketrans({"<": "\u2039", "＜": "\u2039", "﹤": "\u2039", ">": "\u203a", "＞": "\u203a", "﹥": "\u203a"})
# Openers that announce an answer without giving one, in the languages in which they are known to work.
_OPENERS = (
    "thought process", "thought", "thoughts", "thinking", "reasoning", "explanation", "analysis", "key context",
    "context", "solution", "the solution", "the solution is", "answer", "the answer", "the answer is", "final answer",
    "the final answer is", "conclusion", "result", "summary", "step by step", "step 1", "step one", "first",
    "let us solve this problem step by step", "let's solve this problem step by step", "let's solve this step by step",
    "let's think step by step", "let me think", "here is the solution", "here is the answer", "sure", "okay",
    "解", "解答", "答案", "答", "かいせつ", "解説", "respuesta", "solución", "réponse", "antwort", "lösung",
)  # fmt: skip


def fence(text: str, longest: int = LONGEST_FIELD) -> str:
    """``text`` as one harmless line: no line breaks, tags, labels or invisible signs; head and tail when it is long."""
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    line = " ".join(visible.split()).translate(_ANGLES)
    line = _SQUARE_TAG.sub(r"\1", _LABEL.sub(r"\1 -", line))
    if len(line) <= longest:
        return line
    gap = " ... "
    head = (longest - len(gap)) // 2
    return line[:head] + gap + line[-(longest - len(gap) - head) :]


def says_nothing(candidate: str) -> bool:
    """Whether ``candidate`` is only marks, headings and announcements, with no answer among them."""
    lines = [" ".join(re.findall(r"[^\W_]+(?:['\u2019][^\W_]+)?", line)) for line in candidate.split("\n")]
    words = [line.lower().replace("\u2019", "'") for line in lines if line]
    return all(line in _OPENERS for line in words)
