"""Whether a sentence is the question's own statement with the value filled in: "Ben has 150 pages left to read."

The sentence must have the words of the asking clause, without case and endings, in the same order, with the value in
place of the question word. The end of the clause may be left out from a preposition or conjunction on, or come first;
a subject of one word or a name may be a pronoun. Anything else is left to the LLM judge.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from llm_as_judge.answers.asked import asked, is_asked, unknowns
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.answers.units import UNITS, split_unit, unit_named

#: Past tenses and participles that no ending makes.
_PASTS = dict(
    pair.split("/")
    for pair in """
    took/take made/make sold/sell spent/spend won/win ate/eat got/get gave/give bought/buy paid/pay ran/run wrote/write
    began/begin lost/lose drove/drive used/use died/die became/become built/build broke/break brought/bring kept/keep
    has/have fell/fall children/child feet/foot sent/send sank/sink went/go came/come knew/know grew/grow
    threw/throw flew/fly drew/draw met/meet held/hold stood/stand told/tell led/lead rode/ride rose/rise spoke/speak
    chose/choose taught/teach caught/catch fought/fight sang/sing swam/swim slept/sleep wore/wear hid/hide fed/feed
    drank/drink given/give taken/take eaten/eat written/write driven/drive broken/break chosen/choose known/know
    grown/grow thrown/throw flown/fly drawn/draw spoken/speak worn/wear hidden/hide ridden/ride sung/sing drunk/drink
    begun/begin beaten/beat seen/see saw/see done/do
    """.split()
)
_ENDINGS = (("'s", ""), ("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_MARKUP = re.compile(
    r"\\(?:begin|end)\{\w+\*?\}|\\(?:text\w*|math\w+|left|right|q?quad|implies|[A-Za-z]*rightarrow)(?![A-Za-z])"
    r"|\\[()\[\] ,;!]|[${}*`]"
)
#: The sides of a formula whose last side is the value.
_SIDES = re.compile(
    r"(?:\\[A-Za-z]+|(?<=[A-Za-z]),(?= ?[A-Za-z][,)])|(?<![A-Za-z\\])(?:[A-Za-z]|[A-Z]{2,3})(?![A-Za-z])"
    r"|(?<=\d)[.,](?=\d)|[^A-Za-z\\<>≤≥≠≈±∈.,;:?])*=[\s$({\[\\]*\Z"
)
_IN_UNIT = re.compile(r"\bin ((?!second)(?:square |cubic )?[A-Za-z/]+(?: per [a-z]+)?)")
_VALUE_OF = re.compile(r"\b(?:values?|measure|solutions?|result) of\b", re.IGNORECASE)
_SECOND = re.compile(r"\band (?:in )?(?:what|how|which|when|where)\b", re.IGNORECASE)
_WORKED = re.compile(
    r"\b(?:we|i) (?:get|find|have|obtain|conclude|see|know)\b"
    r"|(?:which|this|that|it) gives(?: us)?\b|(?:simplifies|evaluates|reduces|comes) to\b"
    r"|\A\s*An? (?=\d|(?!and |or )[a-z]{2})",
    re.IGNORECASE,
)


def _stem(word: str) -> str:
    """A word in lower case without its ending, a small number in digits; anything else as it is."""
    if len(word) < 2 or not word.replace("'", "").isalpha():
        return word
    word = stem = _PASTS.get(word.casefold(), word.casefold())
    if (value := number(word)) is not None:
        return str(value)
    for ending, new in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            stem = word.removesuffix(ending) + new
            break
    stem = stem.removesuffix("e") if len(stem) > 3 else stem
    return word if stem == "not" else stem  # notes


@lru_cache(maxsize=256)
def _stems(text: str) -> tuple[str, ...]:
    """The words and formulas of ``text`` without markup, case and endings."""
    text = _MARKUP.sub(" ", text.replace("\u2019", "'").replace("\\angle", "angle "))
    text = re.sub(r"\s*([+*/^=<>×÷·\u2212]|-(?= )|(?<=\S)-)\s*", r"\1", re.sub(r"(?<=\w)-(?=[A-Za-z]{2})", " ", text))
    text = re.sub(r"(?<=\d),\s+(?=[-\d])", ",", text)
    text = re.sub(r"\ba total of(?= \$?\d|\Z)", "total", text.rstrip(), flags=re.IGNORECASE)
    text = re.sub(r"\b(it|that|there)'s\b", r"\1 is", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(\w+)n't\b", r"\1 not", _WORKED.sub(" ", _VALUE_OF.sub(" ", text)))
    words = (word.strip(".,;:!?()[]\"'\u201c\u201d") for word in re.sub(r"\b[Tt]he\b", " ", text).split())
    return tuple(re.sub("(?:al)?together", "total", _stem(word)) for word in words if any(map(str.isalnum, word)))


def _words(text: str) -> frozenset[str]:
    return frozenset(_stems(text))


_PAST = _words("was were")
_BEING = _PAST | _words("is are")
_DOING = _words("do does did")
_MODALS = _words("will would should must can could may might have")
_WH = _words("what how which who whose whom when where why")
_TASKS = _words("find evaluate determine calculate simplify solve compute express list name write give")
_PRONOUNS = _words("it he she they both")
_PLACED = _words("when where time place year")
#: Words of a clause that a statement may leave out but not add.
_OPTIONAL = _words("total all now currently")
_SHARES = _words("percentage percent fraction share part proportion")
_COMPARING = _words("more less fewer additional extra than longer shorter not other")
#: Words before which a clause may end: what follows says how or when.
_LIMITS = _words(
    "of in on at to for with from if when before after during that who which where than over as since until between "
    "among through under last next"
)
#: Words that make no difference to what is said.
_EMPTY = _words(
    """
    so thus therefore hence and this that there my our a an be been final correct answer solution solutions result
    value values required desired finally measure expression equals
    his her their him them its many much we only possible particular
    what how which who whose whom when where why is are was were do does did
    """
)
_UNNAMED = _EMPTY | _TASKS | _OPTIONAL
#: Words for what may be asked, if there is no question to compare with.
_QUANTITIES = _words(
    """
    it to for as by sum product area volume length distance probability domain range function points roots integer
    integers real positive distinct maximum minimum least greatest smallest largest angle triangle trapezoid
    quadratic matrix pair has get find have obtain conclude such checking total
    """
)
#: Conditions, and words for answers of somebody else.
_FOREIGN = _words(
    "unless if suppose assume were might may could would should can must says said say thinks think thought believes "
    "claims claimed guess guessed wrong incorrect incorrectly false mistake mistaken not"
)
_UNITS = frozenset(map(_stem, UNITS)) - {"second"}
_Words = tuple[str, ...]
_LONGEST, _LONGEST_LEAD = 40, 600  # words of a clause, characters of a lead


@dataclass(frozen=True, slots=True)
class _Clause:
    """An asking clause without empty words. Nothing can be said about one that asks two things."""

    noun: _Words = ()  # of the question word, as in "how many pens"
    head: _Words = ()  # of that noun, before "of"
    auxiliary: str = ""  # after it
    preposition: str = ""  # before the question word
    past: bool = False  # a verb without auxiliary is in the past
    stems: frozenset[str] = frozenset()  # all words
    task: frozenset[str] = _TASKS  # verbs that say nothing, if the clause begins with one
    statements: frozenset[_Words] = frozenset()  # what may be said, without noun and value


@lru_cache(maxsize=64)
def _clauses(question: str, by_fact: bool) -> tuple[_Clause, ...]:
    return tuple(_clause(text, question, by_fact) for text in asked(question).split("\n"))


def _clause(text: str, question: str, by_fact: bool) -> _Clause:
    opening = re.split(r"[.?!\n\]]", question[: max(0, question.find(text))])[-1]
    text = _IN_UNIT.sub(lambda found: " " if unit_named(found.group(1)) else found.group(), text)
    if _SECOND.search(text):
        return _Clause()
    stems = _stems(text)[:_LONGEST]
    compared = re.match(r"how much (\w+er)\b", text, re.IGNORECASE)
    if compared and len(re.findall(rf"(?i)\b{compared[1]}\b", question)) == 1:  # farther; not water, spoken of before
        stems += ("than",)
    if "did" in stems:  # what one has now is not what one had
        stems = tuple("had" if stem == _stem("have") else stem for stem in stems)
    task = _TASKS if stems[:1] and stems[0] in _TASKS else frozenset()
    start = -1 if task else next((i for i, stem in enumerate(stems) if stem in _WH), -1)
    first = stems[: max(start, 0)]  # "It fell in which year?"
    if start >= 0 and "," not in opening and not doubtful(opening):
        first = _stems(opening)[-_LONGEST:] + first
    stop = _BEING | _DOING | _MODALS | (_LIMITS if first else frozenset())
    noun = tuple(takewhile(lambda stem: stem not in stop, stems[start + 1 :])) if start >= 0 else ()
    rest, auxiliary, preposition = stems[start + 1 + len(noun) :], "", ""
    if first and first[-1] in _LIMITS | {"by"}:
        first, preposition = first[:-1], first[-1]
    if not first and rest and rest[0] in stop:
        auxiliary, rest = rest[0], rest[1:]
    elif not first and not rest:  # "how many people own a pet"
        noun, rest = (), noun
    words: list[str] = []
    ends, last = set(), ""
    for place, stem in enumerate(first + rest):
        if stem not in _EMPTY | _OPTIONAL | task:
            limit = last in _LIMITS & _EMPTY or stem in _LIMITS or not stem.isalpha()
            if limit and place >= len(first):
                ends.add(len(words))
            words.append(stem)
        last = stem
    if noun == ("many",) and (counted := re.search(r"\d+ (.*)", opening)):  # If Ann has 6 pens, how many ...
        noun = tuple(takewhile(lambda stem: stem not in _EMPTY | _LIMITS, _stems(counted.group(1))))
    noun, head = (tuple(s for s in part if s not in _UNNAMED) for part in (noun, takewhile(lambda s: s != "of", noun)))
    if not noun and "many" in stems and "of" not in stems:  # 60 tulips, if asked how many tulips remain
        head = tuple(words[:1])
    subject = next((i for i, w in enumerate(words) if w not in _names(text) | {"of"}), len(words)) or bool(auxiliary)
    statements = {*_statements(tuple(words), {*ends, len(words)}, subject, _names(question))}
    if by_fact and (preposition or start < 0):  # released in which year; "Yes, it is."
        statements |= {(pronoun, *(words if preposition else ())) for pronoun in _PRONOUNS}
    elif by_fact and not auxiliary and not first and stems[start] != "who":  # "Which team won it?" without the noun
        statements.add(tuple(words[1:]))
    owners = {_stem(name) for name in re.findall(r"(\w+)['\u2019]s\b", text)}
    if len(owners) == 1 and owners == _names(question):  # the profit, if only Dorothy is spoken of
        statements |= {tuple(word for word in said if word not in owners) for said in statements}
    if not noun and words[1:2] == ["of"] and words[0] in _SHARES:  # 75% of the students passed
        statements.add(tuple(words[1:]))
    past = any(word.endswith("ed") or word in _PASTS for word in text.casefold().split())
    return _Clause(noun, head, auxiliary, preposition, past, frozenset(stems), task, frozenset(statements - {()}))


def _statements(words: _Words, ends: set[int], subject: int, people: frozenset[str]) -> Iterator[_Words]:
    """``words`` up to one of ``ends``, what follows an end first, or with a pronoun for the first ``subject`` words."""
    others = people.difference(words)
    for end in ends:
        yield from (words[end:last] + words[:end] for last in ends)
        if words[:1] and words[0] in _PRONOUNS:
            yield from ((other, *words[1:end]) for other in others if len(others) == 1 and words[0] != "they")
            yield from (("they", *words[1:end]) for _ in range(len(others) < 2))
        elif 0 < subject <= end:
            pronouns = {"it"} if others else _PRONOUNS
            yield from ((pronoun, *words[size:end]) for pronoun in pronouns for size in range(1, subject + 1))


def _names(text: str) -> frozenset[str]:
    found, others = (_words(" ".join(re.findall(rf"\b[{first}][a-z]+", text))) for first in ("A-Z", "a-z"))
    return found - others - _UNNAMED - _LIMITS - _PRONOUNS - _FOREIGN


def doubtful(text: str) -> bool:
    """Whether ``text`` sets a condition or speaks of somebody else's answer."""
    return not _FOREIGN.isdisjoint(_stems(text))


def restates(lead: str, question: str, value: str = "", tail: str = "", *, by_fact: bool = False) -> bool:
    """Whether ``lead``, ``value`` (``by_fact``: hardly another fact's) and ``tail`` say only what is asked."""
    if "?" in lead + tail or lead.casefold().startswith("to ") or len(lead + tail) > _LONGEST_LEAD:
        return False
    lead = clean(lead)
    if lead.rstrip(" $({[\\")[-1:] in tuple("<>≤≥≠≈±~"):
        return False
    if formula := _SIDES.search(lead):
        sides = formula.group().rpartition("=")[0].split("=")
        if sides[-1].rstrip()[-1:] in tuple("+-*/^:") or not (_may_equal(sides[0], question) or not question):
            return False
        lead = lead[: formula.start()]
    before, after = _stems(lead), _stems(tail)
    if not question:
        known = _EMPTY | _QUANTITIES
        return all(w in known or not re.search(r"[^\W\d_]{2}", re.sub(r"\\[A-Za-z]+", "", w)) for w in before + after)
    said = clean(value)
    measured = said[:1] in ("$", "€", "£", "¥") or split_unit(said) is not None
    share = by_fact or "%" in said or "/" in said or "frac" in said or "percent" in said
    return any(
        _states(*active, clause, measured, by_fact)
        for clause in _clauses(question, by_fact)
        if share or after[:1] != ("of",) or _SHARES.isdisjoint(clause.stems)
        for active in _active(before, after, clause, by_fact)
    )


def _active(before: _Words, after: _Words, clause: _Clause, by_fact: bool) -> Iterator[tuple[_Words, _Words]]:
    """What stands around the value, with "$22 profit" for "a profit of $22"; that of a passive also in the active."""
    for noun in {clause.noun, clause.head} - {()}:
        if before[-len(noun) - 1 :] == (*noun, "of"):
            before, after = before[: -len(noun) - 1], noun + after
    yield before, after
    verb = next((i for i, stem in enumerate(before) if stem in _BEING), 0)
    if verb and before[-1] == "by" and not clause.auxiliary and (before[verb] in _PAST) == clause.past:
        told, thing = before[verb + 1 : -1], before[:verb]  # written, Hamlet
        yield from (((), after + told + thing), ((), told + thing + after))
    verb = next((i for i, stem in enumerate(after) if stem in _BEING or stem == "be"), len(after))
    shown, told = after[:verb], after[verb + 1 :]
    if not 0 < len(told) <= _LONGEST or clause.auxiliary not in _DOING | _MODALS:
        return
    if "by" not in told and not by_fact:  # by whom is clear if the clause may say "they"
        yield (*before, "they", *told), shown
    for by in (i for i, stem in enumerate(told) if stem == "by"):
        for end in range(by + 2, len(told) + 1):
            yield before + told[by + 1 : end] + told[:by], shown + told[end:]


def _may_equal(name: str, question: str) -> bool:
    """Whether ``name`` is asked for or has none of the question's letters."""
    said, given = (unknowns(text).union(*re.findall(r"\b[A-Z]{2,4}\b", text)) for text in (name, question))
    return said.isdisjoint(given) or is_asked(name.strip(" $&"), question)


def _states(before: _Words, after: _Words, clause: _Clause, measured: bool, by_fact: bool) -> bool:
    empty = _EMPTY | clause.task | (_OPTIONAL & clause.stems)
    lead = tuple(s for s in before if s not in empty)
    tail = tuple(s for s in after if s not in empty)
    if lead[:2] == ("number", "of") and "many" in clause.stems:
        lead = lead[2:]
    placed = ("in", "on", "at") if clause.stems & _PLACED else ("for",) if clause.stems & {"many", "long"} else ()
    if lead and lead[-1] in (clause.preposition, *placed):  # for 6 hours
        lead = lead[:-1]
    elif clause.preposition == "by":
        return False
    noun, head = (tuple(s for s in part if not (measured and s in _UNITS)) for part in (clause.noun, clause.head))
    verbs = _BEING.intersection(before + after)
    if clause.auxiliary in _BEING and verbs and (clause.auxiliary in _PAST) == verbs.isdisjoint(_PAST):
        return False  # at another time
    done = clause.auxiliary in _DOING | _MODALS and not _WH.isdisjoint(clause.stems)
    ending = not measured and tail == noun[-len(tail) :] if by_fact else "many" in clause.stems and not done
    if (not tail and lead in ((), noun, ("it",))) or (not lead and tail in (noun, head)):
        return True
    if not lead and ending and (by_fact or tail in clause.statements):
        return True
    if clause.auxiliary in _DOING and not _BEING.isdisjoint(before[:-1] + after) and _BEING.isdisjoint(clause.stems):
        return False  # who did it and to whom
    if clause.auxiliary in _MODALS:
        if clause.auxiliary not in lead + tail:
            return False
        lead, tail = (tuple(s for s in part if s != clause.auxiliary) for part in (lead, tail))
    shorter = [head, (), *(noun[i:] for i in range(1, len(noun)) if by_fact or after[:1] == ("of",))]  # 1/8 of 2 feet
    for shown in [noun, *(shorter if _COMPARING.isdisjoint(noun + ("than",) * ("than" in clause.stems)) else ())]:
        own = lead or shown or not done  # not 6 girls brought, if asked what the girls brought
        if own and tail[: len(shown)] == shown and lead + tail[len(shown) :] in clause.statements:
            return True
    return not tail and lead[: len(noun)] == noun and lead[len(noun) :] in clause.statements  # number of pens left
