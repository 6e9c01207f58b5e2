"""The multiple-choice option stated in a reply: ``(B) library``, ``the correct option is C``, ``B``."""

from __future__ import annotations

import re

from llm_as_judge.answers.extraction import LONGEST_REPLY, conclusion, last_boxed, last_sentence, visible
from llm_as_judge.answers.notation import clean, number

_REFERENCE = re.compile(r"\(?([A-J])\)?\.?")
_MARKUP = re.compile(r"\\(?:boxed|fbox|text\w*|mathrm|mathbf|mbox)(?![A-Za-z])\s?|\\[()\[\] ,;:!]|[${}*`~]|\\q?quad")
_LEAD = (
    r"(?i:(?:so|thus|therefore|hence|final|correct|best|and)[,:]? |the |my )*"
    r"(?:(?i:answer|option|choice)(?i:(?: is| must be| would be)?(?: the)?(?: option| choice| letter)?\s?[:=]?) ?"
    r"|(?i:i (?:choose|pick|select|would go with) |it is |it's ))"
)
_LETTER = r"\(?([A-J])(?:\)|(?![\w'\u2019]))"
_STATED = re.compile(
    rf"(?:{_LEAD}|(?i:(?:so|thus|therefore|hence),? ))?{_LETTER}"
    r"(?: is (?:the )?(?:correct|right|best)(?: answer| option| choice| one)?)?[.\s]*"
)
_WITH_TEXT = re.compile(rf"(?:{_LEAD})?\(?([A-J])(?:\)[.:]?|[.:、])\s*([^-+*/^=].*)")
_LISTED = re.compile(r"(?:^|[\s(])([A-J])[).:]\s*([^\n]{1,200}?)(?=\s*(?:\n|$|[\s(][A-J][).:]\s))")


def letter(reference: str) -> str:
    """The letter of a reference that is one; else empty."""
    found = _REFERENCE.fullmatch(clean(reference)) if len(reference) <= 40 else None
    return found.group(1) if found else ""


def chosen_option(reply: str, question: str = "") -> str:
    """The letter of a reply that states one option and nothing else; else empty.

    The letter may be followed by the option's own text from the ``question``, or by a number.
    """
    text = visible(reply)
    if len(text) >= LONGEST_REPLY:
        return ""
    box = last_boxed(text) or ""
    if box and not text.rstrip(" .$\\])").endswith("}"):
        return ""
    for said in (box,) if box else (text, conclusion(last_sentence(text.rstrip()))):
        said = " ".join(_MARKUP.sub("", said).split())
        if found := _STATED.fullmatch(said):
            return found.group(1)
        if found := _WITH_TEXT.fullmatch(said):
            options = {name: " ".join(words.split()) for name, words in _LISTED.findall(question[-LONGEST_REPLY:])}
            picked, words = found.group(1), found.group(2).strip(" .")
            own = options.get(picked, "").strip(" .").casefold()
            if words.casefold() == own or (not own and number(clean(words.replace("frac", r"\frac"))) is not None):
                return picked
    return ""
