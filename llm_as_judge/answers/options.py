"""The option of a multiple choice that a reply commits to: ``(B) library``, ``the correct option is C``, ``B``."""

from __future__ import annotations

import re

from llm_as_judge.answers.extraction import LONGEST_REPLY, visible
from llm_as_judge.answers.latex import clean

_REFERENCE = re.compile(r"\(?([A-J])\)?\.?")
_MARKUP = re.compile(r"\\(?:boxed|fbox|text\w*|mathrm|mathbf|mbox)(?![A-Za-z])\s?|\\[()\[\] ,;:!]|[${}*`]|\\q?quad")
_OPENING = re.compile(r"\(?([A-J])(?:\)\.?|[.:。：、](?=\s|$|[\u3400-\u9fff])|(?=不是)|\Z)")
_SAID = re.compile(
    r"(?:\b(?i:answer|option|choice|r[ée]ponse)(?:\s(?:is|must be|would be|should be|est|has to be))?\s?[:=]?"
    r"|\b(?i:it's|it is|choose|pick|select|go with)|答案\s?(?:是|为|[:：]))"
    r"(?:\s?(?:for sure|definitely|clearly|therefore|thus|option|choice|letter|the))*\s?\(?([A-J])\)?(?![\w'])",
)
_CALLED = re.compile(
    r"(?:\A|[.:;,!?\n]\s?|\b(?i:so|thus|hence|therefore|then|option|choice|answer)\s|\bI (?:think|believe)\s)"
    r"\(?([A-J])\)? is (?:indeed |clearly |therefore |thus )?(?:the )?"
    r"(?:correct|(?:correct|right|best) (?:answer|option|choice|one))(?=\s?(?:[.,;:!\n]|\Z|because\b|since\b|as\b))"
)
_REFUSED = re.compile(
    r"(?:\bnot|\bnon|\bcannot be|n['’]t(?:\s(?:\w+\s){0,4}(?:be|to be))?|不是)\s?\(?[A-J]\b\)?"
    r"(?:\s?(?:,|or|and|nor|或|和)\s?\(?[A-J]\b\)?)*"
)
_OTHERS = re.compile(
    r"(?<![\w'])([B-HJ])(?![\w'])|\(([A-Ja-j])\)|(?<![\w'])([a-j])\)"
    r"|(?:\b(?:or|and|also|maybe|perhaps|both|either)|,)\s\(?([A-Ja-j])\)?(?=[\s.,;!?)]|$)"
)
_TAKEN_BACK = re.compile(
    r"\b(?:wait|actually|however|instead|correction|rather|wrong|incorrect|false|mistaken?|oops|scratch|sorry|no|"
    r"maybe|perhaps|never ?mind|second thought|unsure|or|either|neither|all|none|both|not)\b|n['’]t\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:\b(?:not|never|wrong|incorrect|false|doubt|unless|if|whether|suppose|assum\w+|claims?|says|thinks|except|neither|maybe|"
    r"perhaps|possibly|either)\b|n['’]t\b)[^.,;\n]{0,25}$",
    re.IGNORECASE,
)
_LISTED = re.compile(r"(?:^|[\s(])([A-J])[).:]\s*([^\n]{1,200}?)(?=\s*(?:\n|$|[\s(][A-J][).:]\s))")


def letter(reference: str) -> str:
    """The letter that a reference is; empty where it is none."""
    found = _REFERENCE.fullmatch(clean(reference)) if len(reference) <= 40 else None
    return found.group(1) if found else ""


def chosen_option(reply: str, question: str = "") -> str:
    """The letter of a reply that commits to one option; else empty.

    A reply that names another letter, other than to refuse it, has not chosen; neither has one that gives its letter
    the text of another option of the ``question``.
    """
    text = _MARKUP.sub("", visible(reply[: 2 * LONGEST_REPLY])).strip()
    if len(text) > LONGEST_REPLY:
        return ""
    found = _OPENING.match(text)
    for said in sorted((*_SAID.finditer(text), *_CALLED.finditer(text)), key=lambda said: said.start()):
        found = said
    if found is None or _DENIED.search(text[max(0, found.start() - 60) : found.start()]):
        return ""
    picked, rest = found.group(1), text[found.end() :]
    options = {name: " ".join(words.split()) for name, words in _LISTED.findall(question[-LONGEST_REPLY:])}
    own = options.get(picked, "")
    if own and " ".join(rest.split()).casefold().startswith(own.casefold()):
        rest = " ".join(rest.split())[len(own) :]
    elif own and any(words.casefold() in rest.casefold() for words in options.values() if words):
        return ""  # the letter of one option, the text of another
    if re.match(r"\s?(?:[-+*/^%&=<>∪|\\]|,\s?\d)", rest):
        return ""
    if picked in "AI" and re.match(r" [a-z]", rest) and found.re is _SAID:  # "the answer is A house"
        return ""
    around = _REFUSED.sub(" ", text[: found.start()] + " " + rest)
    others = {name.upper() for names in _OTHERS.findall(around) for name in names if name}
    if others - {picked} or _TAKEN_BACK.search(_REFUSED.sub(" ", rest)):
        return ""
    return picked
