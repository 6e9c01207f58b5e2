r"""The final statement of a reply, accepted by its form.

A reply states its answer in its last box, ``####`` line, ``<answer>`` tag or closing sentence ("The answer is 12."), or
consists of the answer alone. A statement counts only if it ends the reply, the words around it are the question's own
(``restating``) or, without words, the sentence before ``supports`` it, and no earlier statement is of another value
(``disputed``). At most ``LONGEST_REPLY`` characters are read, each scan in linear time.
"""

import re
from itertools import pairwise

from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.formulas import parse
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.restating import asked, doubtful, restates
from llm_as_judge.answers.sameness import same
from llm_as_judge.answers.units import unit_named, units
from llm_as_judge.answers.values import as_fraction, labelled, read, rounds_to
from llm_as_judge.types import Kind

#: Characters of a reply that are read, from its end.
LONGEST_REPLY = 8000
_LONGEST_LEAD = 300  # characters of the sentence before a statement
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s?")
_BARE = re.compile(r"[^\s$\\{}]{1,200}")
_MARKUP = re.compile(r"\\(?:q?quad|text|[()\[\],; ])|[${}\s]")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped one is text
_FORMAL = re.compile(r"<answer>(.*?)(?:</answer>|\Z)|####(?!#)[ \t]*([^\n]*)", re.IGNORECASE | re.DOTALL)
_BETWEEN_BOXES = re.compile(r"(?:,|and|or|,and|,or)?(?:[A-Za-z](?:_\w)?=)?", re.IGNORECASE)

_CONNECTOR = re.compile(
    r"(?:\b(?:is|are|was|equals|simplifies to|we (?:get|find|have|obtain)(?: that)?|thus|therefore|hence|so|answer"
    r"|solution|result)\b|[^\W\d_]\**[:：](?!\d))[\s:：,*]*",
    re.IGNORECASE,
)
#: What a mark may follow, without markup: nothing, a word, ``=`` or punctuation, then opening signs and bullets.
_LEAD_END = re.compile(r"(?:\A|[\w=:：.,;][)\]]*)[(\[\"'\u201c\u2018*•]*\Z")
#: What may follow an answer.
_CLOSING = re.compile(
    r"(?i:\bi hope (?:it|this|that)(?: answer)? is correct|\bis (?:my|our|the) (?:final |correct |required )?"
    r"(?:answer|solution|result|value))[\s.*$)\]]*\Z"
)
_PUNCTUATION = re.compile(r"(?:[\s.,;*`$\"'\u201d\u2019)\]}]|\\[)\]]|\\end\{\w+\*?\}|</answer>)*\Z")
_SENTENCE_END = re.compile(
    r"(?:(?<!\b[A-Z])\.|\?|(?<!\d)!(?! ?=))(?:[\"')*\]$]|\\[)\]])*\s+|。\s*|(?<![,:：\s\[(*])\**\s*\n\s*"
    r"|(?<![A-Za-z,:\s])\s(?=(?:Final Answer|Therefore|Thus|Hence)\b)"
)
_NUMBERING = re.compile(r"^[^\w\n]{0,3}\d{1,2}[.)] (?=\S)", re.MULTILINE)  # of a list's items
_COMPLETE = re.compile(r"[.!。)](?:[\"'*\]$]|\\[)\]])*\s*\Z")
_CONCLUDING = re.compile(
    r"(?:, ?|; ?|\band )(?:so|thus|therefore|hence|which (?:means|gives))\b(?: that\b)?"
    r"|\d.*[,;] (?=[-\u2212+*/^\d\s().,$×÷\\]*=)",
    re.IGNORECASE,
)
#: Words, a number, words.
_AMOUNT = re.compile(r"((?:[^\W\d][\w'\u2019,]* )*)([$€£]?\d+(?:[.,]\d+)*%?)((?: [^\W\d][\w'\u2019,]*)*)")
_QA_LEAD = re.compile(
    r"(?:(?:so|thus|therefore|hence)[ ,]+)?(?:(\W{0,3}(?:final )?answer\W{0,3}[:=]"
    r"|(?:the |my |our )?(?:final |correct )?answer(?:\*\*)?(?: to the question)? (?:is|was)\b)"
    r"|(?:it|this|that|he|she)(?:['\u2019]s| is| was)\b)[\s:*]*",
    re.IGNORECASE,
)
#: What no value has, except ``x =`` before it.
_WORDY = re.compile(r"=(?<!\A\w=)(?<!\A\w =)|[<>&]|\\boxed|(?<![\\A-Za-z])[^\W\d_]{2}")
_DIGITS = re.compile(r"-?\d+(?:[.,]\d+)*")

_REFERENCE = re.compile(r"\(?([A-J])\)?\.?")
_OPTION_MARKUP = re.compile(
    r"\\(?:boxed|fbox|text\w*|mathrm|mathbf|mbox)(?![A-Za-z])\s?|\\[()\[\] ,;:!]|[${}*`]|~(?!~)|\\q?quad"
    r"|</?[a-z]+>|#{3,}"
)
_OPTION_LEAD = (
    r"(?i:(?:so|thus|therefore|hence|final|correct|best|and)[,:]? |the |my )*"
    r"(?:(?i:answer|option|choice)(?i:(?: is| must be| would be)?(?: the)?(?: option| choice| letter)?\s?[:=]?) ?"
    r"|(?i:i (?:would )?(?:choose|pick|select|go with) |it is |it's ))"
)
_STATED = re.compile(
    rf"(?:{_OPTION_LEAD}|(?i:(?:so|thus|therefore|hence),? ))?\(?([A-J])(?:\)|(?![\w'\u2019]))"
    r"(?: is (?:the )?(?:correct|right|best)(?: answer| option| choice| one)?)?[.\s]*"
)
_WITH_TEXT = re.compile(rf"(?:{_OPTION_LEAD})?\(?([A-J])(?:\)[.:]?|[.:、]| [-–—](?= ))\s*([^-+*/^=].*)")
_LISTED = re.compile(r"(?:^|[\s(])([A-J])[).:]\s*([^\n]{1,200}?)(?=\s*(?:\n|$|[\s(][A-J][).:]\s))")


def visible(text: str) -> str:
    """Return the end of a reply without thinking, with single spaces."""
    text = text[-4 * LONGEST_REPLY :].rsplit("</think>", 1)[-1]
    text = "\n".join(" ".join(line.split()) for line in re.sub(r"(?<=\d)\.\.\.", "\u2026", text).split("\n"))
    text = re.sub(r"\\\[\s((?:[^\n\\]|\\[^\n\[\]]){1,300}?)\.?\s\\\]", r"\\[ \1 \\]", text)
    return re.sub(r"(?<=[\s$])\*\*(?=\S)([^*\n]{1,300})(?<=\S)\*\*(?!\w)", r"\1", text).strip()[-LONGEST_REPLY:]


def extract_answer(text: str, domain: Kind) -> str:
    """Return a reply's statement or, without one, the whole text; for code, the source without its markdown fence."""
    if domain == "code":
        return last_block(text)
    return statement(text, domain) or visible(text).strip("*").strip()


def statement(text: str, domain: Kind, question: str = "") -> str | None:
    """Find what a reply states as its answer after some lead or in some markup; None if it states nothing that way."""
    text = visible(text)
    while closing := _CLOSING.search(text, max(0, len(text) - 80)):
        text = text[: closing.start()].rstrip(" \n.,") or text[closing.end() :]
    found = _marked(text, question) or _sentence(text, domain, question)
    if found is None or disputed(found[0], text[: found[1]], question):
        return None
    return found[0].strip().strip("*").strip() or None


def disputed(value: str, before: str, question: str) -> bool:
    """Tell whether a mark or a sentence of what a reply says ``before`` states another value."""
    others = [content for _, _, content in marks(before)]
    sentences = [sentence.strip("* ") for sentence in _SENTENCE_END.split(_NUMBERING.sub("", before))]
    for said in sentences:
        label = _QA_LEAD.match(said)
        if label and label.group(1):
            others.append(said[label.end() :])
        elif re.search(r"\d", said) and not _WORDY.search(clean(said)):
            others.append(said)
        elif (counted := amount(said, question)) is not None:
            others.append(counted)
    last = next((said for said in reversed(sentences) if said), "")[:_LONGEST_LEAD]
    return any(_differ(value, other) for other in others) or any(map(_is_false, re.split(r"[,;] | and ", last)))


def _is_false(sentence: str) -> bool:
    """Tell whether a sentence is an equation with numbers on both sides that differ, also if one is rounded."""
    lead, equation = re.match(r"((?:[A-Za-z]+[:,]? )*)(.*)", clean(sentence)).groups()  # type: ignore[union-attr]
    sides = re.sub(r"[$€£¥]|[, ]+[A-Za-z][A-Za-z ,;]*\Z", "", equation).split("=")
    found = [(None if (tree := parse(side)) is None else as_fraction(tree), side.partition(".")[2]) for side in sides]
    return restates(lead, "?") and any(
        x is not None and y is not None and x != y and not rounds_to(x, y, len(b)) and not rounds_to(y, x, len(a))
        for (x, a), (y, b) in pairwise(found)
    )


def _differ(value: str, other: str) -> bool:
    """Tell whether two statements are of different values."""
    value, other = value.strip(" .;$*"), other.strip(" .;$*")
    if (name := re.match(r"\w ?=", other)) and name.group() != value[: name.end()]:
        return False
    if not any(map(str.isalnum, other)) or other.casefold() == value.casefold():
        return False
    return sorted(_DIGITS.findall(value)) != (_DIGITS.findall(other) or None) and not same(read(value), read(other))


def closing_sentence(text: str) -> tuple[str, str]:
    """Return the last sentence of ``text`` or, after a calculation, its conclusion; and what is before it."""
    text = text[-2 * _LONGEST_LEAD :]
    ends = [0, 0, *(found.end() for found in _SENTENCE_END.finditer(text))]
    before, lead = text[ends[-2] : ends[-1]], text[ends[-1] :]
    cut = max((found.end() for found in _CONCLUDING.finditer(lead)), default=0)
    first, rest = lead[:cut], lead[cut:]
    return (before, lead) if doubtful(first) or not re.search(r"\d", first) else (first, rest)


def supports(before: str, question: str, *values: str) -> bool:
    """Tell whether a value that no words lead to may follow ``before``: a calculation, the value or a heading."""
    if "?" in before or before.startswith("|"):  # a question, a table
        return False
    parts = [_DIGITS.findall(value[:_LONGEST_LEAD]) or [value.strip(" .$*")] for value in values if value]

    def told(text: str) -> bool:
        return any(all(re.search(rf"(?i)(?<!\w){re.escape(p)}(?!\w)", text) for p in each) for each in parts)

    if not any(map(str.isalnum, before)) or ("=" in before and told(before.rpartition("=")[2])):
        return True
    alternatives = set(_DIGITS.findall(before) or "?") if " or " in before else set()
    if doubtful(before) or not alternatives <= set(_DIGITS.findall(" ".join(values))):
        return False
    worked = re.search(r"\d.*=|=.*\d|\d ?[*/+×÷·^] ?\d", before) is not None
    return worked or told(before) or restates(before, question)


def marks(text: str) -> list[tuple[int, int, str]]:
    """Find start, end and content of each tag, ``####`` line and run of boxes."""
    formal = [(found.start(), found.end(), found[1] or found[2] or "") for found in _FORMAL.finditer(text)]
    boxes = [box for box in _boxes(text) if not any(start <= box[0] < end for start, end, _ in formal)]
    return sorted(formal + boxes)


def ends_closed(text: str) -> bool:
    """Tell whether a reply ends with a closed box or tag, so that its answer is whole even if it was cut off."""
    said, text = text.rsplit("</think>", 1)[-1], visible(text).lower()
    closing = _closing_braces(text)
    boxes = [closing.get(box.end(), len(text)) for box in _BOX.finditer(text)]
    tags = [tag.end() - 1 for tag in re.finditer("</answer>", text)]
    closed = text.count("<answer>") == len(tags) and "<think>" not in said and max(boxes, default=0) < len(text)
    return bool(boxes or tags) and closed and re.fullmatch(r"[\s$.*\\)\]]*", text[max(boxes + tags) + 1 :]) is not None


def last_boxed(text: str) -> str | None:
    r"""Find the content of the last ``\boxed{...}`` or ``\fbox{...}`` with balanced braces (``\boxed 7`` too), or None.

    Boxes that only ``and``, ``or`` or a comma separates are one answer, joined by ``, `` or ``or``.
    """
    return next((content for _, _, content in reversed(_boxes(text))), None)


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Find start, end and content of each run of boxes."""
    closing = _closing_braces(text)
    runs: list[tuple[int, int, str]] = []
    for found in _BOX.finditer(text):
        start, end = found.span()
        if runs and end < runs[-1][1]:
            continue  # inside another box
        if close := closing.get(end):
            content, stop = text[end + 1 : close].strip(), close + 1
        elif bare := _BARE.match(text, end):
            content, stop = bare.group(), bare.end()
        else:
            continue
        between = text[runs[-1][1] : start] if runs else ""
        if runs and len(between) <= 60 and _BETWEEN_BOXES.fullmatch(_MARKUP.sub("", between)):
            start, _, first = runs.pop()
            content = f"{first} or {content}" if "or" in between else f"{first}, {content}"
        runs.append((start, stop, content))
    return runs


def _closing_braces(text: str) -> dict[int, int]:
    """Map each opening brace to the position of its closing one."""
    closing, opened = {}, []
    for found in _BRACE.finditer(text):
        if found.group() == "{":
            opened.append(found.start())
        elif found.group() == "}" and opened:
            closing[opened.pop()] = found.start()
    return closing


def _marked(text: str, question: str) -> tuple[str, int] | None:
    r"""Find the content of a closing mark, with a unit after it (``\boxed{40}\%`` is 40 %), and where it starts."""
    found = marks(text)
    if not found:
        return None
    start, end, content = found.pop()
    formal = text[start] in "<#"
    if formal and (inner := _QA_LEAD.match(content)) and restates(inner[0], question):
        content = content[inner.end() :].removesuffix(".")
    for first, last, inside in _boxes(content):
        if not content[:first].strip("$ ") and not content[last:].strip("$ ."):
            content = inside
    content = amount(content, question) or content
    tail = re.sub(r"\A\s?(?:\$+|\\[)\]])", "", text[end:]).strip()
    if not tail or _PUNCTUATION.match(tail):
        tail = ""
    elif formal:
        return None
    else:
        tail = clean(tail.rstrip(".,;*$"))
        name, _, rest = (tail, "", "") if unit_named(tail) else tail.partition(" ")
        if unit_named(name):
            content, tail = f"{content} {name}", rest
        elif not question or number(clean(content)) is None or not re.fullmatch(r"[\w ]+", tail):
            return None
    before, lead = closing_sentence(text[:start])
    if re.search(r"[\w{})\]^/+*-]\Z", lead) or not _LEAD_END.search(_MARKUP.sub("", lead)):
        return None  # within a formula or after a sign
    if any(char.isalnum() or char == "=" for char in lead + tail):
        own = restates(lead, question, tail) and _has_unit(tail and text[start:], question)
    else:
        own = supports(before, question, content) or (formal and _COMPLETE.search(before) is not None)
    if not own or any(_differ(content, other) for _, _, other in found):
        return None
    return content, start - len(lead)


def amount(sentence: str, question: str) -> str | None:
    """Find ``150`` in "Ben has 150 pages left to read.", if the words around the only number are the question's own."""
    found = _AMOUNT.fullmatch(clean(sentence)) if question else None
    told = found and (found[1] or found[3]) and restates(found[1], question, found[3])
    return found[2] if found and told and _has_unit(found[3] and sentence, question) else None


def _has_unit(sentence: str, question: str) -> bool:
    """Tell whether a sentence, if any, has a unit that is asked for: 25 eggs are not 25 percent of the eggs."""
    wanted = units(asked(question), wanted=True) if sentence else ()
    return not wanted or not {*wanted}.isdisjoint(units(re.sub(r"(?<=\d)(?=[%A-Za-z])", " ", sentence)))


def _sentence(text: str, domain: Kind, question: str) -> tuple[str, int] | None:
    """Find what the last sentence says that something is ("We find that x < 3", "It is Paris"), and where it starts."""
    text = text.rstrip("*").removesuffix(".")
    before, sentence = closing_sentence(text)
    start = len(text) - len(sentence)
    if domain == "qa":
        if re.fullmatch(r"\W*(?:the |my )?(?:final |correct )?answer\W*", before, re.IGNORECASE):
            return sentence, start - len(before)
        found = _QA_LEAD.match(sentence)
        said = sentence[found.end() :] if found else ""
        return (said, start) if found and (found[1] or supports(before, question, said)) else None
    if (counted := amount(sentence, question)) is not None:
        return counted, start
    if labelled(clean(sentence)):  # several answers
        return None
    cut = max((found.end() for found in _CONNECTOR.finditer(sentence)), default=0)
    said = sentence[cut:].strip()
    results = re.findall(r"=[\s$]*(-?\d+(?:[.,]\d+)*)[\s$.]*\Z", before)
    follows = bool(before) and {*results} <= {*_DIGITS.findall(said)} and supports(before, question, said)
    own = restates(sentence[:cut], question) if cut else follows
    return (amount(said, question) or said, start) if said and own else None


def letter(reference: str) -> str:
    """Return the letter of a reference that is one; else empty."""
    found = _REFERENCE.fullmatch(clean(reference)) if len(reference) <= 40 else None
    return found.group(1) if found else ""


def chosen_option(reply: str, question: str = "") -> str:
    """Return the letter of a reply whose last sentence states an option, and no other sentence another; else empty."""
    text = visible(reply)
    options = {name: unmarked(words) for name, words in _LISTED.findall(question[-LONGEST_REPLY:])}
    before, last = closing_sentence(text)
    chosen, bare = _letter_stated(last, options)
    formal = re.match(r"\W*<answer>|####", last) and _COMPLETE.search(before)
    if bare and not formal and not supports(before, question, chosen, options.get(chosen, "")):
        return ""
    others = {_letter_stated(sentence, options)[0] for sentence in _SENTENCE_END.split(text[: -len(last)])}
    return chosen if others <= {"", chosen} else ""


def unmarked(text: str) -> str:
    return " ".join(_OPTION_MARKUP.sub("", text).split())


def _letter_stated(sentence: str, options: dict[str, str]) -> tuple[str, bool]:
    """Find the letter that a sentence states, alone or with its own text or a number, and whether no words say so."""
    said = unmarked(sentence)
    bare = re.match(r"\(?[A-J]\b(?!\)? is)", said) is not None
    if found := _STATED.fullmatch(said):
        return found.group(1), bare
    if found := _WITH_TEXT.fullmatch(said):
        picked, words = found.group(1), found.group(2).strip(" .")
        own = options.get(picked, "").strip(" .").casefold()
        if words.casefold() == own or (not own and number(clean(words.replace("frac", r"\frac"))) is not None):
            return picked, bare
    return "", False
