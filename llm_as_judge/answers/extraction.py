r"""Where the answer stands in a reply.

``extract_answer`` returns the whole text whenever no single answer stands out (hedges, lists, fragments of a formula),
so that what it cannot read is left to the LLM judge.
"""

from __future__ import annotations

import re
from collections import deque

from llm_as_judge.answers.code import last_block
from llm_as_judge.answers.latex import clean
from llm_as_judge.answers.values import DIGITS, number, read
from llm_as_judge.types import Domain

_STATED = re.compile(
    r"\banswer\**\s*(?:is\b|[:=]|(?=\\[\[(][^\\]*\\[\])]\s*\Z))[\s:*]*|答案\s*(?:是|为|[:：])\s*", re.IGNORECASE
)
_REVISED = re.compile(
    r"\b(?:wait|actually|however|instead|correction|rather|but|no,|not)\b|n't\b|不对|等等", re.IGNORECASE
)
_DENIED = re.compile(r"(?:\b(?:not|wrong|incorrect|previous|if)\b|n't)[^.\n]{0,25}$", re.IGNORECASE)
_HEDGED = re.compile(
    r"\b(?:or|either|maybe|perhaps|possibly|not|cannot|unless|wait|between|about|approximately|roughly|around|"
    r"nearly|almost|least|most|than|unknown|wrong|incorrect)\b|n['\u2019]t\b|≈|~|或|不是|大约|约|可能|至少|至多",
    re.IGNORECASE,
)
_FORMULA_WORD = re.compile(
    r"\b(?:sqrt|sin|cos|tan|sec|csc|cot|log|ln|pi|exp|mod|infinity|infty|frac|binom)", re.IGNORECASE
)
_IN_PROSE = re.compile(
    rf"(?<![\w.,])(?:[-+](?=[$€£¥\d.\\]))?(?:\\?[$€£¥])?{DIGITS}(?:\s*/\s*\d+)?(?<!\.)"
    r"(?:\s*(?:\\?%|(?:percent|percentage|pct|hundred|thousand|million|billion|trillion|dozen|cents?|degrees?)\b)"
    r"|\s*[°€£¥])?",
    re.IGNORECASE,
)
# a number that is only part of a formula, a range, a ratio or an inequality
_FRAGMENT_BEFORE = re.compile(r"(?:[\^_{\\/+×·<>≤≥≠]\s*|[<>!]=\s*|\\[A-Za-z]+\s*|\d\s*[-:*]\s*)$")
_FRAGMENT_AFTER = re.compile(r"\w|\s*[\^_{\\/+×·=<>≤≥]|\s*[-*:]\s*\d")
_SUPPOSED = re.compile(r"\b(?:if|suppose|assume|assuming|let|when|where|for)\b", re.IGNORECASE)
_SAID_TO_BE = re.compile(
    r"(?:(?:=|:|\b(?:is|are|was|equals|equal to|makes|get|gets|totals?)|是|为|等于)\s*[*$€£¥\\(\[]*"
    r"|^(?:(?!\*\*).)*\*\*)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_HAN = r"[\u3400-\u9fff]"
# a reply that ends with an alternative to what it stated before
_ALTERNATIVE = re.compile(
    r"(?:[.,!?\]})$>\n%°]|\|>user|\bpct|\bpercent(?:age)?|\bdegrees?)\s*(?:or|maybe|perhaps|either)\s+(?:[^.!?\n]|\.\d){1,80}[.!?]?\s*\Z",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"<\|[a-z_]+\|>(?:user|assistant|system)?\s*\Z")
_SEGMENT = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}`` with balanced braces (``\boxed 7`` too).

    None without one. Boxes separated by ``and``, ``or`` or a comma only are one answer, joined by ``, ``.
    """
    boxes: list[tuple[int, int, str]] = []
    for found in re.finditer(r"\\(?:boxed|fbox)\s*", text):
        start = found.end()
        if text[start : start + 1] == "{":
            depth = 0
            for i in range(start, len(text)):
                escaped = text[i - 1] == "\\"
                depth += (text[i] == "{" and not escaped) - (text[i] == "}" and not escaped)
                if depth == 0:
                    boxes.append((found.start(), i + 1, text[start + 1 : i].strip()))
                    break
        elif bare := re.match(r"[^\s$\\{}]+", text[start:]):
            boxes.append((found.start(), start + bare.end(), bare.group()))
    if not boxes:
        return None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = re.sub(r"\\(?:quad|text|[()\[\]])|[${}\s]", "", text[box[1] : run[0][0]])
        if between.lower() not in ("and", "or", ",", ",and", ",or"):
            break
        run.insert(0, box)
    joined = ", ".join(content for _, _, content in run)
    after = re.match(r"\s*\$?\s*(\\?%|percent\b|pct\b)", text[run[-1][1] :])
    return f"{joined}%" if after and len(run) == 1 and number(clean(joined)) is not None else joined


def extract_answer(text: str, domain: Domain) -> str:
    r"""The answer inside a reply.

    First that is there: the last ``\boxed{}``, ``####``, ``<answer>``, ``Answer:`` / ``answer is``; else the only
    formula or the last number for maths and the whole text for qa. For code, the source without its markdown fence.
    """
    if domain == "code":
        return last_block(text)
    text = _SPECIAL.sub("", text.rsplit("</think>", 1)[-1]).strip()
    if domain == "math" and _offers_another(text):
        return text
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    if "####" in text:
        answer = text.rsplit("####", 1)[1].strip().split("\n")[0]
    elif tagged := re.findall(r"<answer>(.*?)(?:</answer>|\Z)", text, re.DOTALL | re.IGNORECASE):
        answer = str(tagged[-1])
        if _STATED.search(answer):
            return extract_answer(answer, domain)
    elif (stated := _stated(text, domain)) is not None:
        answer = stated
    else:
        answer = text
    answer = answer.strip().strip("*").strip()
    return _only_number(answer) if domain == "math" else answer


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
        return text.count("\\boxed") > 1
    content = last_boxed(text[box : found.start() + 1]) or ""
    after = text.find(content, box) + len(content)
    return not re.search(r"\w", text[after : found.start() + 1])


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


def _stated(text: str, domain: Domain) -> str | None:
    """What follows the last ``answer is``; None when that is denied before or taken back after."""
    found = _last(_STATED, text)
    if found is None or _DENIED.search(text[: found.start()]):
        return None
    rest = text[found.end() :]
    end = re.search(r"\.(?=\s|$)|。|\n" if domain == "math" else r"\n", rest)
    phrase, after = (rest[: end.start()], rest[end.end() :]) if end else (rest, "")
    if _REVISED.search(after):
        return None
    return phrase.strip().removesuffix(".") or None


def _only_formula(text: str) -> str | None:
    """The one formula of a sentence that holds no other number and no hedge."""
    segments = list(_SEGMENT.finditer(text))
    if len(segments) != 1:
        return None
    formula = next(group for group in segments[0].groups() if group is not None)
    around = text[: segments[0].start()] + " " + text[segments[0].end() :]
    if re.search(r"\d", around) or _HEDGED.search(around) or _REVISED.search(around):
        return None
    announced = text[: segments[0].start()].rstrip().endswith(":")
    if _SUPPOSED.search(around) and not announced:
        return None
    words = re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", re.sub(r"\\(?:text|begin|end)\s*\{[^{}]*\}", "", formula))
    return None if words else formula.strip()  # between the signs of two amounts of money there are words


def _only_number(text: str) -> str:
    """The only formula or last number of a sentence, or the text itself where that is not plainly its answer."""
    if read(text).number is not None:
        return text
    if re.search(_HAN, text):
        text = (
            re.sub(rf"(?<={_HAN})(?=[-\d$*])|(?<=[\d%*])(?={_HAN})", " ", text).replace("。", ". ").replace("，", ", ")
        )
    formula = _only_formula(text)
    if formula is not None and formula != text.strip("$ "):
        return formula
    without_commands = re.sub(r"\\[A-Za-z]+", " ", text)
    if not re.search(rf"[^\W\d_]{{2,}}|{_HAN}", without_commands):
        return text
    found = _last(_IN_PROSE, text)
    if found is None:
        return text
    before, after = text[: found.start()], text[found.end() :]
    sentence = re.split(r"[.!?](?=\s)|\n|\$\$|\\\]", before)[-1]
    tail = re.split(r"[.!?](?=\s|$)|\n", after)[0]
    if any(pattern.search(part) for pattern in (_HEDGED, _FORMULA_WORD) for part in (sentence, tail)):
        return text
    if re.search(r"\d[^.!?]{0,20}(?:\b(?:and|to)|,)\s*$", sentence):
        return text
    # of several numbers the last one is the answer only where it is said to be: "220 $ are due in 12 months"
    computed = re.search(rf"=\s*{re.escape(found.group().strip())}(?![\w.,]\d|\d)", sentence)
    if re.search(r"\d", sentence + " " + tail) and not computed and not _SAID_TO_BE.search(sentence):
        return text
    opening = max(before.rfind("("), before.rfind("["), before.rfind("{"))
    if opening > max(before.rfind(")"), before.rfind("]"), before.rfind("}")):
        closing = re.match(r"\s*[)\]]", after)
        alone = not before[opening + 1 :].strip() and before[opening] in "([" and closing
        if not alone or (opening and (before[opening - 1].isalnum() or before[opening - 1] in "}^_\\")):
            return text
        after = after[closing.end() :] if closing else after
        before = before[:opening]
    if _FRAGMENT_BEFORE.search(before) or _FRAGMENT_AFTER.match(after):
        return text
    return found.group().strip()
