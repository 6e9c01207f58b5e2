"""Non-answers: announcements, "I don't know", "see above", a verdict on itself, a program's error.

Model judges accept some of them ("One Token to Fool LLM-as-a-Judge", Zhao et al. 2025), small judges many. They are
refused before a model is asked, unless a reference is of the same kind: "yes" is an answer if "no" is right.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Literal

from llm_as_judge.answers.notation import clean
from llm_as_judge.answers.restating import stems, words

NonAnswer = Literal["announcement", "ignorance", "pointer", "verdict", "placeholder", "error"]

_NO_ANSWER = "unanswerable|no answer|noanswer|not answerable|cannot be determined|cannot be answered".split("|")
EDGES = ".,;:!?\"'`()[]{}\u2018\u2019\u201c\u201d*«»「」。"
_LONGEST = 200
#: Openers that announce an answer without giving one, in the languages in which they are known to fool judges.
_OPENERS = frozenset(files(__package__).joinpath("openers.txt").read_text("utf-8").splitlines())
_KINDS: Mapping[NonAnswer, re.Pattern[str]] = {
    "pointer": re.compile(
        r"(?:please )?(?:see|refer to|look at|check|given|stated|mentioned|shown|described|(?:same )?as|in|the one in)"
        r"(?: (?:the|it|is|was|shown|stated|given|in|to|explained|mentioned|described)){0,4}"
        r" (?:above|below|text|context|passage|question|problem|reference|solution|answer)(?: above| below)?"
        r"|(?:it is )?the (?:correct|right|reference|given|expected|same|final|true) (?:answer|one|value|reference)"
        r"|(?:the )?(?:reference|same|above|below)|equal|equivalent|it is the same"
    ),
    "verdict": re.compile(
        r"(?:(?:it|this|that|the (?:answer|candidate|solution)) is |it's )?(?:yes|no|true|false|right|wrong|correct|"
        r"incorrect|accepted|valid|invalid|both|all correct|match(?:es)?|a match)(?: answer)?"
        r"|(?:(?:(?:the )?(?:candidate|answer)|it) )?matches(?: the reference)?"
    ),
    "placeholder": re.compile(
        r"[a-z]|null|nan|none|todo|tbd|(?:your )?answer here|your answer|final answer|string|some \w+"
    ),
}
#: That an answer is not known, by one word; what "not" and "no" deny for that; the words around it.
_UNKNOWN = words("unanswerable unknown unclear unsure unable impossible insufficient unspecified idk n/a na pass skip")
_DENYING = words("not cannot never no")
_TOLD = words(
    "answer answers answerable information detail evidence idea clue data sure certain enough sufficient know known "
    "say said tell told state mention specify specified provide contain give given include determine infer find found "
    "indicate discuss describe address present available clear explain"
)
_TEXT = words("passage context text paragraph article document source excerpt content")
_AROUND = _TEXT | words(
    "question the this that these it there here "
    "a an any such i i'm we of in on from by with to for as at and or so but using based according above dont well hmm "
    "is are was were be been being do does did has have had can could ca would will sorry unfortunately therefore thus "
    "about explicitly directly specific specifically anywhere anything really honestly simply just"
)
_INDIRECT = re.compile(r"\b(?:wh[a-z]+|how)(?: (?!(?:but|only|it|is|was)\b)[a-z']+){1,4}\Z")
_FILLERS = frozenset("the a an is it of in to i answer".split())
_POLAR = frozenset(("yes", "no", "true", "false"))
_ERROR = re.compile(
    r"(?:Error|[A-Za-z.]*(?:Error|Exception|Interrupt|Exit))\s?:|Traceback \(most recent call last\)"
    r"|(?:Compilation|Execution|Fatal|Internal|Parsing|Runtime|Server|Syntax|Unknown) [Ee]rror\b"
    r"|Error(?: code)?:? \d"
)


def is_no_answer(text: str) -> bool:
    """Tell whether ``text`` says that a question has no answer (SQuAD2): nothing, not a sign, or a fixed wording."""
    if len(text) > _LONGEST:
        return not text.strip()
    said = " ".join(text.lower().split())
    return not said or said.strip(EDGES) in _NO_ANSWER


def abstains(text: str, question: str = "") -> bool:
    """Tell whether a prediction is only that there is no answer, that it is unknown, or that the text does not have it.

    Besides words for that, it may only have those of the question or ask it; any other word is an answer.
    """
    if is_no_answer(text) or len(text) > _LONGEST:
        return is_no_answer(text)
    said = stems(_INDIRECT.sub("", clean(text).strip(EDGES).lower()))
    told = {word for i, word in enumerate(said) if said[i] == "no" or not _DENYING.isdisjoint(said[:i])}
    absent = told <= _AROUND | _DENYING and not _TEXT.isdisjoint(told)  # "not in the text"
    denied = absent or not _UNKNOWN.isdisjoint(said) or not _TOLD.isdisjoint(said if "no" in told else told)
    return denied and words(question) | _UNKNOWN | _DENYING | _TOLD | _AROUND >= {*said}


def says_nothing(candidate: str) -> bool:
    """Tell whether ``candidate`` is only signs, headings and announcements."""
    shown = re.sub(r"\\(?:boxed|fbox)\b", "", candidate)
    lines = [" ".join(re.findall(r"[^\W_]+(?:['\u2019][^\W_]+)?", line)) for line in shown.split("\n")]
    return all(line.lower().replace("\u2019", "'") in _OPENERS for line in lines if line)


def is_error(text: str) -> bool:
    """Tell whether ``text`` is the message of a failed program: no number in it is an answer."""
    return _ERROR.match(text.lstrip()[:_LONGEST]) is not None


def non_answer(text: str) -> NonAnswer | None:
    """Return the kind of non-answer that ``text`` is; None for an answer, right or wrong."""
    if is_error(text):
        return "error"
    if says_nothing(text[:20_000]):
        return "announcement"
    if len(text) > _LONGEST:
        return None
    if abstains(text):
        return "ignorance"
    said = " ".join(clean(text).casefold().replace("\u2019", "'").split()).strip(EDGES + "$<>-_ \u00b7")
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(said)), None)


def refused(readings: Sequence[str], references: Sequence[str], question: str = "") -> NonAnswer | None:
    """Return the kind of non-answer that one of the ``readings`` of a reply is; None if it may be an answer.

    It may be one if a reference is of that kind or shares a word with it, or if the question has it as an option.
    """
    kinds = {text: kind for text in readings if (kind := non_answer(text))}
    found = next(iter(kinds.values()), None)
    polar = found == "verdict" and not _POLAR.isdisjoint(word for each in references for word in _words(each)[:1])
    if found is None or polar or found in map(non_answer, references):
        return None
    words = {word for text in kinds for word in _words(text)} - _FILLERS
    option = any(re.search(rf"(?<!\w){word.upper()}[).:]", question) for word in words if word in tuple("abcdefghij"))
    return None if option or any(words.intersection(_words(reference)) for reference in references) else found


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", clean(text[:_LONGEST]).casefold())
