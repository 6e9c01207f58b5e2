r"""The final statement of a reply, accepted by its form.

A reply states its answer in its last box, ``####`` line, ``<answer>`` tag or closing sentence ("The answer is 12."), or
consists of the answer alone or of calculations that end in it. A statement counts only if it is the end of the reply
and nothing else stands around it than ``restating`` allows: corrections, doubts and conditions leave it undecided. At
most ``LONGEST_REPLY`` characters are read, each scan in linear time.
"""

import re

from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.restating import doubtful, restates
from llm_as_judge.answers.units import split_unit, unit_named
from llm_as_judge.types import Domain

#: Characters of a reply that are read, from its end.
LONGEST_REPLY = 8000
_LONGEST_LEAD = 300  # characters of the sentence before a statement
_LONGEST_RESTATED = 30  # words
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s?")
_BARE = re.compile(r"[^\s$\\{}]{1,200}")
_MARKUP = re.compile(r"\\(?:q?quad|text|[()\[\],; ])|[${}\s]")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped one is text
_BETWEEN_BOXES = re.compile(r"(?:,|and|or|,and|,or)?(?:[A-Za-z](?:_\w)?=)?", re.IGNORECASE)

_CONNECTOR = re.compile(
    r"(?:\b(?:is|are|was|equals|simplifies to|we (?:get|find|have|obtain)(?: that)?|thus|therefore|hence|so|answer"
    r"|solution|result)\b|[A-Za-z*]:(?!\d))[\s:,*]*",
    re.IGNORECASE,
)
#: What may follow an answer.
_CLOSING = re.compile(
    r"(?i:\bi hope (?:it|this|that)(?: answer)? is correct|\bis (?:my|our|the) (?:final |correct |required )?"
    r"(?:answer|solution|result|value)|\bin all)[\s.*$)\]]*\Z"
)
_PUNCTUATION = re.compile(r"(?:[\s.,;*`$\"'\u201d\u2019)\]}]|\\[)\]]|\\end\{\w+\*?\}|</answer>)*\Z")
_SENTENCE_END = re.compile(
    r"(?:(?<![ \n][A-Z])\.|\?|(?<!\d)!)(?:[\"')*\]$]|\\[)\]])*\s+|。|(?<![A-Za-z,:\s\[(])\s*\n\s*"
    r"|(?<![A-Za-z,:\s])\s(?=(?:Final Answer|Therefore|Thus|Hence)\b)|\n\s*(?=\W{0,3}(?:Final )?Answer\W{0,3}:)"
    r"|(?:\A|(?<=\n))[^A-Za-z\n]+= ?[$\d.,]+ [a-z]+\s*\n\s*"
)
_CONCLUDING = re.compile(
    r"(?:, ?|; ?|\band )(?:so|thus|therefore|hence|which (?:means|gives))\b(?: that\b)?"
    r"|\d.*[,;] (?=[-\u2212+*/^\d\s().,$×÷\\]*=)",
    re.IGNORECASE,
)
#: A conclusion about the subject of what stands before it.
_SHARED = re.compile(r"\s*(?:(?:it|he|she|they) )?(?:is|was|are|were|will be)\b", re.IGNORECASE)
#: What takes an amount out of its sentence, and an empty sentence, which may be an abbreviation's end ("No. 5").
_APART = re.compile(
    r"\\[A-Za-z]|\b(?:by|at|on)\Z|(?<!\S)[^\w\s]+(?!\S)|[\u2260\u2248<>|~\u00b1]|\A\s*\Z", re.IGNORECASE
)
_QA_LEAD = re.compile(
    r"(?:(?:so|thus|therefore|hence)[ ,]+)?(?:\W{0,3}(?:final )?answer\W{0,3}[:=]"
    r"|(?:the |my |our )?(?:final |correct )?answer(?:\*\*)? (?:is|was)\b"
    r"|(?:it|this|that|he|she)(?:['\u2019]s| is| was)\b)[\s:*]*",
    re.IGNORECASE,
)

_REFERENCE = re.compile(r"\(?([A-J])\)?\.?")
_OPTION_MARKUP = re.compile(
    r"\\(?:boxed|fbox|text\w*|mathrm|mathbf|mbox)(?![A-Za-z])\s?|\\[()\[\] ,;:!]|[${}*`~]|\\q?quad"
)
_OPTION_LEAD = (
    r"(?i:(?:so|thus|therefore|hence|final|correct|best|and)[,:]? |the |my )*"
    r"(?:(?i:answer|option|choice)(?i:(?: is| must be| would be)?(?: the)?(?: option| choice| letter)?\s?[:=]?) ?"
    r"|(?i:i (?:choose|pick|select|would go with) |it is |it's ))"
)
_LETTER = r"\(?([A-J])(?:\)|(?![\w'\u2019]))"
_STATED = re.compile(
    rf"(?:{_OPTION_LEAD}|(?i:(?:so|thus|therefore|hence),? ))?{_LETTER}"
    r"(?: is (?:the )?(?:correct|right|best)(?: answer| option| choice| one)?)?[.\s]*"
)
_WITH_TEXT = re.compile(rf"(?:{_OPTION_LEAD})?\(?([A-J])(?:\)[.:]?|[.:、])\s*([^-+*/^=].*)")
_LISTED = re.compile(r"(?:^|[\s(])([A-J])[).:]\s*([^\n]{1,200}?)(?=\s*(?:\n|$|[\s(][A-J][).:]\s))")


def visible(text: str) -> str:
    """The end of a reply without thinking, with single spaces."""
    text = text[-4 * LONGEST_REPLY :].rsplit("</think>", 1)[-1]
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    text = re.sub(r"\\\[\n([^\n]{1,300})\n\\\]", r"\\[\1\\]", text)
    return re.sub(r"(?<=[\s$])\*\*(?=\S)([^*\n]{1,300})(?<=\S)\*\*(?!\w)", r"\1", text).strip()[-LONGEST_REPLY:]


def extract_answer(text: str, domain: Domain) -> str:
    """The statement of a reply or, without one, the whole text; for code, the source without its markdown fence."""
    if domain == "code":
        return last_block(text)
    return statement(text, domain) or visible(text).strip("*").strip()


def statement(text: str, domain: Domain, question: str = "") -> str | None:
    """What a reply states as its answer after some lead or in some markup; None if it states nothing that way."""
    text = visible(text)
    while closing := _CLOSING.search(text, max(0, len(text) - 80)):
        text = text[: closing.start()].rstrip(" \n.,") or text[closing.end() :]
    said = _tagged(text) or _boxed(text, question)
    if said is None:
        said = _sentence_of_qa(text) if domain == "qa" else _sentence_of_maths(text, question)
    return None if said is None else said.strip().strip("*").strip() or None


def _tagged(text: str) -> str | None:
    """The content of a closing ``<answer>`` tag or ``####`` line."""
    start = text.lower().rfind("<answer>")
    if start >= 0:
        content, _, rest = text[start + 8 :].partition("</answer>")
        if not _PUNCTUATION.match(rest):
            return None
        inner = _QA_LEAD.match(content)
        return content[inner.end() :].removesuffix(".") if inner else content
    _, mark, line = text.rpartition("####")
    return line.strip() if mark and "\n" not in line.strip() else None


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}`` with balanced braces (``\boxed 7`` too); None without one.

    Boxes that only ``and``, ``or`` or a comma separates are one answer, joined by ``, ``.
    """
    return _last_boxes(text)[0]


def _last_boxes(text: str) -> tuple[str | None, int, int]:
    """Content, start and end of the last run of boxes."""
    closing = _closing_braces(text)
    boxes: list[tuple[int, int, str]] = []
    for found in _BOX.finditer(text):
        start = found.end()
        if boxes and start < boxes[-1][1]:
            continue  # inside another box
        if end := closing.get(start):
            boxes.append((found.start(), end + 1, text[start + 1 : end].strip()))
        elif bare := _BARE.match(text, start):
            boxes.append((found.start(), bare.end(), bare.group()))
    if not boxes:
        return None, 0, 0
    first = len(boxes) - 1
    while first:
        between = text[boxes[first - 1][1] : boxes[first][0]]
        if len(between) > 60 or not _BETWEEN_BOXES.fullmatch(_MARKUP.sub("", between)):
            break
        first -= 1
    return ", ".join(box[2] for box in boxes[first:]), boxes[first][0], boxes[-1][1]


def _closing_braces(text: str) -> dict[int, int]:
    """Position of the closing brace for each opening one."""
    closing, opened = {}, []
    for found in _BRACE.finditer(text):
        if found.group() == "{":
            opened.append(found.start())
        elif found.group() == "}" and opened:
            closing[opened.pop()] = found.start()
    return closing


def _boxed(text: str, question: str) -> str | None:
    r"""The content of a closing box, with a unit that follows it: ``\boxed{40}\%`` is 40 %."""
    content, start, end = _last_boxes(text)
    if content is None:
        return None
    content = amount_within(clean(content), question) or content
    tail = re.sub(r"\A\s?(?:\$+|\\[)\]])", "", text[end:]).strip()
    if tail and not _PUNCTUATION.match(tail):
        tail = clean(tail.rstrip(".,;*$"))
        name, _, rest = (tail, "", "") if unit_named(tail) else tail.partition(" ")
        if unit_named(name):
            content, tail = f"{content} {name}", rest
        elif not question or number(clean(content)) is None or not re.fullmatch(r"[\w ]+", tail):
            return None
    else:
        tail = ""
    lead = text[max(0, start - _LONGEST_LEAD) : start]
    return (
        content if _box_follows(lead) and restates(conclusion(last_sentence(lead)), question, content, tail) else None
    )


def _box_follows(lead: str) -> bool:
    """Whether a box may follow ``lead``: after a word, ``=``, a colon, an empty line or nothing, not in a formula."""
    end = len(re.sub(r"(?:\s|\$|\\[(\[]|\\(?:q?quad|[,;: ])|\\begin\{\w+\*?\}|&|\*\*|\{(?=\s*\Z))+\Z", "", lead))
    word = r"(?:[=:.!]|\A|[^\\A-Za-z][A-Za-z]{2,},?|\A[A-Za-z]{2,},?|\\(?:R|r)ightarrow|\\implies)\Z"
    return not end or "\n\n" in lead[end:] or re.search(word, lead[:end]) is not None


def last_sentence(lead: str) -> str:
    return lead[max((found.end() for found in _SENTENCE_END.finditer(lead)), default=0) :]


def conclusion(sentence: str) -> str:
    """The part after "so" or "therefore" unless something before it sets a condition."""
    cut = max((found.end() for found in _CONCLUDING.finditer(sentence)), default=0)
    first, rest = sentence[:cut], sentence[cut:]
    shared = _SHARED.match(rest) or (re.match(r"\s*[-$\\(]*\d", rest) and "=" not in first)
    return sentence if cut and (shared or doubtful(first)) else rest


def _sentence_of_maths(text: str, question: str) -> str | None:
    """What the last sentence says that something is: "We find that x < 3", "So the answer is 12"."""
    text = text.rstrip("*").removesuffix(".")
    sentence = conclusion(last_sentence(text)[-2 * _LONGEST_LEAD :])
    if (amount := amount_within(sentence, question)) is not None:
        return amount
    cut = max((found.end() for found in _CONNECTOR.finditer(sentence)), default=0)
    lead, said = sentence[:cut], sentence[cut:].strip()
    left, equals, right = said.rpartition("=")
    if equals and (amount := amount_within(right.strip(), question)) is not None:  # 12 + 4 = 16 apples
        said = f"{left}={amount}"
    if not cut:  # a line of its own, a conclusion or the last of several calculations
        apart = text.removesuffix(sentence).rstrip(" ")
        last = apart.endswith(("\n", "so")) or ("=" in said and (not apart or "=" in apart or apart[-1] == ";"))
        return said if last and not re.search(r"\banswer\b", apart, re.IGNORECASE) else None
    return said if said and restates(lead, question, said) else None


def amount_within(sentence: str, question: str) -> str | None:
    """``150`` of "Ben has 150 pages left to read."."""
    words = sentence.replace("**", "").split()[:_LONGEST_RESTATED] if question and "=" not in sentence else []
    for start in (i for i, word in enumerate(words) if re.search(r"\d", word)):
        for end in range(min(start + 4, len(words)), start, -1):
            value = " ".join(words[start:end]).strip("*,;")
            found = split_unit(clean(value))
            if end == start + 1 or (found and number(found[0]) is not None):
                lead, tail = " ".join(words[:start]), " ".join(words[end:])
                if not _APART.search(f"{tail} {lead}") and restates(lead, question, value, tail):
                    return value
                break
    return None


def _sentence_of_qa(text: str) -> str | None:
    """``Paris`` of "The answer is Paris." and "It is Paris."."""
    last = last_sentence(text.removesuffix(".")) if len(text) <= 4 * _LONGEST_LEAD else ""
    found = _QA_LEAD.match(last)
    return last[found.end() :] if found else None


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
        said = " ".join(_OPTION_MARKUP.sub("", said).split())
        if found := _STATED.fullmatch(said):
            return found.group(1)
        if found := _WITH_TEXT.fullmatch(said):
            options = {name: " ".join(words.split()) for name, words in _LISTED.findall(question[-LONGEST_REPLY:])}
            picked, words = found.group(1), found.group(2).strip(" .")
            own = options.get(picked, "").strip(" .").casefold()
            if words.casefold() == own or (not own and number(clean(words.replace("frac", r"\frac"))) is not None):
                return picked
    return ""
