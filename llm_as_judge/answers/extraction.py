r"""Where the answer stands in a reply.

A reply commits by its last box, ``####``, ``<answer>`` or ``answer is``. What is denied before that or taken back after
it is no answer. ``extract_answer`` returns the whole text whenever no single answer stands out (hedges, lists,
fragments of a formula), so that what it cannot read is left to the LLM judge. Every scan is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.latex import clean, tight
from llm_as_judge.answers.numerals import number
from llm_as_judge.answers.prose import only_formula, only_number
from llm_as_judge.types import Domain

#: Characters of a reply that are read, from its end; of a longer one only what it states explicitly counts.
LONGEST_REPLY = 8000

_STATED = re.compile(
    r"\b(?:answer|r[ée]ponse|respuesta|antwort)\**\s?(?:is\b|est\b|es\b|ist\b|[:=]|(?=\\[\[(][^\\]*\\[\])]\s?\Z))[\s:*]*"
    r"|(?:答案|ответ)\s?(?:是|为|[:：])\s?",
    re.IGNORECASE,
)
_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s?|####|<answer>|" + _STATED.pattern, re.IGNORECASE)
# "I hope the answer is correct" states nothing
_NO_STATEMENT = re.compile(
    r"(?:indeed |thus |therefore )?(?:correct|right|as follows|based|given|obtained|found|clear)\b", re.I
)
_CLAUSE = re.compile(r"[.!?;,\n]|:(?=.*\w)|\b(?:so|then|thus|hence|therefore|because|since|but)\b", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:not|never|cannot|neither|nor|wrong|incorrect|incorrectly|false|mistaken|previous|unless|except|excluding|"
    r"instead of|rather than|other than|anything but|far from|doubt|unsure|either|maybe|perhaps|possibly|probably|"
    r"guess|if (?:the answer|it|this|that))\b|\b(?:might|may|could) be[\W_]*$|n['\u2019]t\b|≠|\\neq?\b|!=|\\not\b|不是",
    re.IGNORECASE,
)
_REVISES = (
    r"wait|actually|however|instead|correction|no(?=[,.!])|wrong|incorrect(?:ly)?|mistaken?|oops|scratch|retract|"
    r"never ?mind|should (?:be|have)|reconsider|second thought|i mean|make that|kidding|joking|ignore|disregard|doubt|"
    r"unsure|sorry|reject(?:ed|s)?|fail(?:s|ed)?|invalid|ruled out"
)
_TAKEN_BACK = re.compile(rf"\b(?:{_REVISES}|rather|but|not)\b|n['\u2019]t\b|不对|等等", re.IGNORECASE)
# a box commits more than words do: a "not" later on may be part of an explanation
_UNBOXED = re.compile(
    rf"\b(?:{_REVISES})\b|不对|等等"
    r"|(?:n['\u2019]t|\bnot)(?:[.!)\n]| (?:right|correct|it|quite|true|so|the (?:final |right )?answer)\b)",
    re.IGNORECASE,
)
# another value after the one that it committed to; LaTeX's \right is no word
_RESTATED = re.compile(
    r"(?<!\\)\b(?:final|correct|true|right|actual|real|exact|proper)\b[^.;:=\n]{0,30}?(?:\bis\b|[:=])\s?([^;\n]{1,60})",
    re.IGNORECASE,
)
_FACTOR_BEFORE = re.compile(
    r"(?:[-^_/*×·\d]|\\(?:pi|sqrt|sin|cos|tan|log|ln|cdot|times|div|pm|mp|frac\{))\s?$|(?<![\\A-Za-z])\w+$|[)}]$"
)
_NEGATIONS = frozenset(("not", "never", "false", "cannot", "isn't", "wasn't", "can't", "couldn't", "won't", "doesn't"))
_NOT_THAT = re.compile(r"(?:\w+ly )?not ([^.\n]{1,200})\Z", re.IGNORECASE)
_NOT_JUST_BEFORE = re.compile(r"\b(?:is|was) (?:\w+ly )?not[\s$\\(]{0,4}\Z", re.IGNORECASE)
_CALLED_WRONG = re.compile(
    r"[\s.$)\]]{0,6}(?:no[\s,.!]{1,3})?(?:(?:that|it|this)\s)?(?:is|was) (?:wrong|incorrect|false)\b", re.IGNORECASE
)
_HOPE = re.compile(r"i hope (?:it|this|that)(?: answer)? is correct[.!]?", re.IGNORECASE)
_OPPOSITE = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
# a reply that ends with an alternative to what it stated before
_ALTERNATIVE = re.compile(
    r"(?:[.,!?\]})$>\n%°]|\|>user|\bpct|\bpercent(?:age)?|\bdegrees?)\s?(?:or|maybe|perhaps|either)\s"
    r"(?:[^.!?\n]|\.\d){1,80}[.!?]?\s?\Z",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"<\|[a-z_]{1,40}\|>(?:user|assistant|system)?\s?\Z")
_JOINS = re.compile(r"(?:,|and|or|,and|,or)?(?:[A-Za-z](?:_\w)?=)?", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|。|\n")
# a second sentence that gives another answer: "Paris. It is London."
_SECOND = re.compile(r"\b(?i:it|that|this|answer)(?:['\u2019]s| is| was)\s+(?!an?\b|the\b|in\b|on\b)[A-Z0-9]")
# a second sentence that holds another answer open: "It could also be London."
_HEDGED = re.compile(
    r"\b(?i:it|that|this|answer) (?:could|might|may)(?: also| well| equally| just as well)* be\s+"
    r"(?!an?\b|the\b|in\b|on\b)[$\\({]{0,3}[-A-Z0-9]"
)


@dataclass(frozen=True, slots=True)
class _Span:
    """What a reply commits to, and where that stands in it."""

    content: str
    start: int
    end: int
    boxed: bool = False


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}`` with balanced braces (``\boxed 7`` too).

    None without one. Boxes separated by ``and``, ``or`` or a comma only are one answer, joined by ``, ``.
    """
    box = _last_box(text)
    return None if box is None else box.content


def _last_box(text: str) -> _Span | None:
    closing = _closing_braces(text)
    boxes: list[_Span] = []
    for found in re.finditer(r"\\(?:boxed|fbox)(?![A-Za-z])", text):
        start = found.end() + (text[found.end() : found.end() + 1].isspace())
        if text[start : start + 1] == "{":
            if (end := closing.get(start)) is not None:
                boxes.append(_Span(text[start + 1 : end].strip(), found.start(), end + 1, True))
        elif bare := re.compile(r"[^\s$\\{}]{1,200}").match(text, start):
            boxes.append(_Span(bare.group(), found.start(), bare.end(), True))
    if not boxes:
        return None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = text[box.end : run[0].start]
        joined = re.sub(r"\\(?:q?quad|text|[()\[\],; ])|[${}\s]", "", between) if len(between) <= 60 else "far"
        if not _JOINS.fullmatch(joined):
            break
        run.insert(0, box)
    content = ", ".join(box.content for box in run)
    if len(run) == 1 and number(clean(content)) is not None:
        after = re.match(r"\s?\$?\s?(?:\\?%|percent\b|pct\b)", text[run[0].end : run[0].end + 20])
        if after:
            return _Span(f"{content}%", run[0].start, run[0].end + after.end(), True)
    return _Span(content, run[0].start, run[-1].end, True)


def _closing_braces(text: str) -> dict[int, int]:
    """Where each brace that is closed is closed."""
    closing, opened, escaped = {}, [], False
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "{":
            opened.append(i)
        elif char == "}" and opened:
            closing[opened.pop()] = i
    return closing


def visible(text: str) -> str:
    """The end of a reply as it is read: without thinking and special tokens, one space between words."""
    text = text[-4 * LONGEST_REPLY :].rsplit("</think>", 1)[-1]
    *drawn, text = text.split("[/asy]")  # the program of a picture
    text = "".join(part.partition("[asy]")[0] for part in drawn) + text
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    text = re.sub(r"\\\[\n([^\n]{1,300})\n\\\]", r"\\[\1\\]", re.sub(r"\n{3,}", "\n\n", text))
    return _SPECIAL.sub("", text).strip()


def extract_answer(text: str, domain: Domain) -> str:
    r"""The answer inside a reply.

    What the reply commits to; else the only formula or the last number for maths and the whole text for qa. For code,
    the source without its markdown fence.
    """
    return candidates(text, domain)[0]


def candidates(text: str, domain: Domain) -> tuple[str, ...]:
    """The readings of a reply, the one that ``extract_answer`` gives first; the whole text where nothing stands out."""
    if domain == "code":
        return (last_block(text),)
    text = visible(text)
    if len(text) > LONGEST_REPLY:
        tail = text[-LONGEST_REPLY:]
        said = list(_stated_answers(tail, domain))
        return tuple(said) if said and not (domain == "math" and _offers_another(tail)) else (text,)
    if domain == "math" and _offers_another(text):
        return (text,)
    said = list(_stated_answers(text, domain))
    if not said and _MARK.search(text):
        return (text,)
    plain = text.strip("*").strip()
    return tuple(said) or ((only_number(plain) if domain == "math" else plain),)


def finished(text: str, domain: Domain) -> tuple[str, ...]:
    """The readings of a reply that was cut off: what it committed to before its end, where nothing may be missing."""
    text = visible(text)[-LONGEST_REPLY:]
    span = _committed(text, domain)
    return () if span is None or span.end >= len(text) else tuple(_stated_answers(text, domain))


def withdrawn(text: str, domain: Domain) -> str | None:
    """What a reply commits to only to deny it ("the answer is not 12") or to call it wrong; None where it does not."""
    text = visible(text)[-LONGEST_REPLY:]
    span = _committed(text, domain)
    if span is None:
        return None
    said = _NOT_THAT.match(span.content)
    before = _CLAUSE.split(text[max(0, span.start - 60) : span.start])[-1]
    if said or _NOT_JUST_BEFORE.search(before) or _CALLED_WRONG.match(text, span.end):
        return (said.group(1) if said else span.content).strip(" .")
    return None


def _stated_answers(text: str, domain: Domain) -> Iterator[str]:
    """What the last mark of the text says, if that is not denied or taken back."""
    span = _committed(text, domain)
    if span is None or not span.content or _denied(text, span) or _taken_back(text, span, domain):
        return
    if domain == "math":
        content = span.content
        yield content if span.boxed else only_number(content)
    else:
        yield span.content
        first = re.split(r"\.\s", span.content, maxsplit=1)
        if not span.boxed and len(first) == 2 and _goes_on(first[1]):
            yield first[0].strip().strip("*")


def _committed(text: str, domain: Domain) -> _Span | None:
    box = _last_box(text)
    place = -1 if box is None else box.end
    last = None
    for mark in _MARK.finditer(text, max(place, 0)):
        if not mark.group().startswith("\\") and not _NO_STATEMENT.match(text, mark.end()):
            last = mark
    if last is None:
        return (
            box
            if box is None or (inner := _STATED.match(box.content)) is None
            else _Span(box.content[inner.end() :].strip(), box.start, box.end, True)
        )
    start, word = last.end(), last.group().lower()
    if word == "####":
        end = text.find("\n", start)
    elif word == "<answer>":
        end = text.lower().find("</answer>", start)
    else:
        closes = text.lower().find("</answer>", start)
        stop = _SENTENCE_END.search(text, start) if domain == "math" else re.compile("\n").search(text, start)
        ends = [place for place in (closes, stop.start() if stop else -1) if place >= 0]
        end = min(ends, default=-1)
    end = len(text) if end < 0 else end
    content = text[start:end].strip().strip("*").strip()
    return _Span(content.removesuffix(".") if word != "####" else content, last.start(), end)


def _denied(text: str, span: _Span) -> bool:
    """Whether the clause before it says that it is not the answer, or the answer is only part of a formula."""
    before = text[max(0, span.start - 60) : span.start]
    if span.boxed and _FACTOR_BEFORE.search(re.sub(r"\\(?:text|mbox)\{[^{}]*\}$", "", before)):
        return True
    return bool(_DENIED.search(_CLAUSE.split(before)[-1]))


def _taken_back(text: str, span: _Span, domain: Domain) -> bool:
    rest = _HOPE.sub("", text[span.end :].removeprefix("</answer>"))
    if (_UNBOXED if span.boxed else _TAKEN_BACK).search(rest) or re.match(r"[\s$)\]]{0,4}\?", rest):
        return True
    first = [word.lower().replace("\u2019", "'") for word in re.findall(r"[\w'\u2019]+", rest[:60])[:4]]
    if span.boxed and (not _NEGATIONS.isdisjoint(first) or first[:1] in (["or"], ["maybe"], ["perhaps"])):
        return True
    if _says_another(rest, span.content) or _HEDGED.search(rest):
        return True
    if (other := _OPPOSITE.get(span.content.lower().strip(".*$ "))) and re.search(rf"\b{other}\b", rest, re.IGNORECASE):
        return True
    if not span.boxed:
        after_line = text.startswith("####", span.start)
        return bool(re.search(r"\w", rest)) if after_line else _SECOND.search(rest) is not None
    line = re.split(r"[.!?](?=\s|$)|\n", rest, maxsplit=1)[0]
    if domain == "qa":
        return bool(
            re.search(
                r"\w", re.sub(r"\\(?:q?quad|end\{\w+\*?\})|\b(?:is (?:my|our|the) (?:final )?answer)\b", "", line)
            )
        )
    # the box is a factor, or what follows is another answer
    return bool(re.match(r"[\s$)\]]{0,4}(?:[-+*/^_=<>≈×·!?\d]|\\(?:sqrt|frac|pi|cdot|times|approx|boxed))|\w", line))


def _says_another(rest: str, content: str) -> bool:
    """Whether a later value is said to be the right one, or stands alone at the end."""
    said = tight(clean(content))
    for found in _RESTATED.finditer(rest):
        value = re.split(r"\.(?=\s|$)", found.group(1))[0]
        if re.search(r"\w", value) and tight(clean(value)) != said:
            return True
    last = clean(re.split(r"[;:.\n]\s", rest.strip())[-1].strip(" .$"))
    return len(last) <= 40 and number(last) is not None and tight(last) != said


def _goes_on(rest: str) -> bool:
    """Whether what follows an answer in its line only tells more about it."""
    return len(rest.split()) >= 3 and not any(said.search(rest) for said in (_TAKEN_BACK, _SECOND, _HEDGED))


def _offers_another(text: str) -> bool:
    r"""The reply ends with an alternative to its answer.

    A single box commits: "``\boxed{49}`` alone leaves 1 when divided by 2, 3 or 6" and "none, or ``\boxed{540}``"
    offer nothing else, "``\boxed{49}`` or 6" does.
    """
    found = _ALTERNATIVE.search(text)
    box = text.rfind("\\boxed")
    if found is None or box < 0:
        return found is not None
    if box > found.start():
        run = _last_box(text)
        return text.count("\\boxed") > 1 and (run is None or run.start > found.start())
    content = last_boxed(text[box : found.start() + 1]) or ""
    after = text.find(content, box) + len(content)
    return not re.search(r"\w", text[after : found.start() + 1])


__all__ = [
    "LONGEST_REPLY",
    "candidates",
    "extract_answer",
    "finished",
    "last_boxed",
    "only_formula",
    "visible",
    "withdrawn",
]
