"""Answers as models write them, and edits of them: the rules accept only what is certainly right."""

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import FOLDERS
from helpers.tables import tables

from llm_as_judge.answers.equivalence import compare, equivalent, matches
from llm_as_judge.answers.extraction import last_boxed
from llm_as_judge.types import Kind

LEGS = "A spider lost two of its legs. How many legs are left?"
FORMS = ("The answer is {}.", r"\boxed{{{}}}", "#### {}", "<answer>{}</answer>")
#: By table. ``RIGHT`` and ``UNDECIDED`` (right or wrong, but not by form: the LLM judge decides), ``EQUAL`` and
#: ``UNEQUAL``: pairs, the answer first. ``..._WITH_QUESTION``: question, answer, reference. ``PHRASES``: a number and
#: other words, gold 6. ``ATTRIBUTED``: answers of somebody else, under a condition, in doubt or taken back, with the
#: reference 6 in them. ``OTHER_...``: question, reference, answers that are another quantity, unit or form.
#: ``HOSTILE``: kind of mistake, domain, question, references, replies that do not certainly state one of them;
#: ``NATURAL``: right replies of the same kinds.
CASES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))


def accepted(domain: Kind, rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The rows (question, answer, reference) that the rules accept."""
    return [row for row in rows if matches(row[1], [row[2]], domain, row[0])]


def plain(cases: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    return [("", *case) for case in cases]


def test_right_answers_are_accepted_however_they_are_written() -> None:
    for domain, rows in (
        ("math", plain(CASES["MATHS_RIGHT"]) + CASES["RIGHT_WITH_QUESTION"]),
        ("qa", plain(CASES["QA_RIGHT"]) + CASES["QA_RIGHT_WITH_QUESTION"]),
    ):
        said = accepted(domain, rows)
        assert not [row for row in rows if row not in said]


def test_wrong_hedged_and_withdrawn_answers_are_never_accepted() -> None:
    assert not accepted("math", plain(CASES["MATHS_UNDECIDED"]) + CASES["WRONG_WITH_QUESTION"])
    assert not accepted("qa", plain(CASES["QA_UNDECIDED"]) + CASES["QA_WRONG_WITH_QUESTION"])


def test_another_quantity_unit_or_form_than_the_asked_one_is_undecided() -> None:
    for rows in (CASES["OTHER_QUANTITY"], CASES["OTHER_UNIT"], CASES["OTHER_FORM"]):
        said = [(question, text, gold) for question, gold, texts in rows for text in texts]
        said += [(question, form.format(text), gold) for question, text, gold in said for form in FORMS]
        assert not accepted("math", said)
        assert not [gold for question, gold, _ in rows if not matches(gold, [gold], "math", question)]


def test_a_number_with_other_words_is_undecided() -> None:
    said = [form.format(text) for text in CASES["PHRASES"] for form in ("{}", "The answer is {}.", r"\boxed{{{}}}")]
    said += [rf"\boxed{{6}}{text[1:]}" for text in CASES["PHRASES"] if text.startswith("6")]
    assert not [text for text in said if compare(text, ["6"], "math", LEGS) == "same"]
    for gold, said in (("6%", ["6 per mille", "6 times", "600%"]), ("$6", ["6 dollars each", "$6 per kg", "6 cents"])):
        assert not [text for text in said if matches(text, [gold], "math")]


def test_each_kind_of_hostile_reply_is_undecided_and_the_references_themselves_are_accepted() -> None:
    wrong = []
    for kind, domain, question, golds, replies in CASES["HOSTILE"]:
        wrong += [(kind, reply) for reply in replies if matches(reply, golds, domain, question)]
        wrong += [] if matches(golds[0], golds, domain, question) else [(kind, golds[0])]
    for domain, question, golds, replies in CASES["NATURAL"]:
        wrong += [("right", reply) for reply in replies if not matches(reply, golds, domain, question)]
    assert not wrong


def test_an_answer_that_is_not_the_replys_own_is_undecided() -> None:
    assert not [(q, text) for q in ("", LEGS) for text in CASES["ATTRIBUTED"] if matches(text, ["6"], "math", q)]
    assert not [text for text in CASES["ATTRIBUTED"] if matches(text, ["6"], "qa", LEGS)]


def test_references_are_read_like_replies() -> None:
    said = ["42", "42.0", r"The answer is \boxed{42}", "#### 42", "The answer is 42."]
    assert not [
        (gold, text) for gold in CASES["GOLDS"] for text in said if not matches(text, [gold], "math", "What is it?")
    ]
    assert not [gold for gold in CASES["GOLDS"] if matches("43", [gold], "math")]


def test_equal_texts_are_equivalent_both_ways_and_others_never() -> None:
    wrong: list[tuple[str, str]] = []
    for name, same in (("EQUAL", True), ("UNEQUAL", False)):
        cases = [
            (kind, *pair) for kind in ("math", "qa") for pair in CASES[f"{name}_{'MATHS' if kind == 'math' else 'QA'}"]
        ]
        both = [case for kind, a, b in cases for case in ((kind, a, b), (kind, b, a))]
        wrong += [(a[:50], b[:50]) for kind, a, b in both if equivalent(a, b, kind) is not same]
    assert not wrong


TABLES = tables(__file__)
#: Domain, question, reference and wrong answers, separated by ``|``.
OTHER: list[tuple[Kind, str, str, str]] = TABLES["OTHER"]
SAME: list[tuple[Kind, str, str, str]] = TABLES["SAME"]


@pytest.mark.parametrize("box", ["{}", r"\boxed{{{}}}", "The answer is {}."])
def test_an_answer_of_the_same_value_in_another_form_is_undecided(box: str) -> None:
    said = [(row[:3], text) for row in OTHER for text in row[3].split("|")]
    assert not [(row, text) for row, text in said if matches(box.format(text), [row[2]], row[0], row[1])]


def test_the_reference_itself_and_other_ways_to_write_its_form_are_accepted() -> None:
    said = [(row[:3], text) for row in SAME for text in row[3].split("|")]
    said += [(row[:3], row[2]) for row in OTHER]
    assert not [(row, text) for row, text in said if not matches(text, [row[2]], row[0], row[1])]


OWN = TABLES["OWN"]


def golds() -> list[str]:
    """References of MATH if it is on this machine, then our own."""
    folder = next((folder / "math/MATH/test" for folder in FOLDERS if (folder / "math/MATH/test").is_dir()), None)
    files = sorted(folder.glob("*/*.json")) if folder else []
    found = [last_boxed(json.loads(file.read_text("utf-8"))["solution"]) or "" for file in files[:400:4]]
    return [gold for gold in dict.fromkeys([*found, *OWN]) if gold]


def edit(pattern: str, change: Callable[[re.Match[str]], str | None]) -> Callable[[str, random.Random], str | None]:
    """An edit that changes one of the places where ``pattern`` matches."""

    def edited(text: str, draw: random.Random) -> str | None:
        places = list(re.finditer(pattern, text))
        if not places:
            return None
        place = draw.choice(places)
        new = change(place)
        return None if new is None else text[: place.start()] + new + text[place.end() :]

    return edited


def other_order(place: re.Match[str]) -> str | None:
    first, second = place.group(2).strip(), place.group(3).strip()
    return None if first == second else f"{place.group(1)}{second}, {first}{place.group(4)}"


EDITS: dict[str, Callable[[str, random.Random], str | None]] = {
    "digit": edit(r"\d", lambda place: str((int(place.group()) + 3) % 10)),
    "negated": lambda text, _: f"-{text}" if re.match(r"[1-9]|\\frac", text) else None,
    "sign lost": edit(r"(?<![\w)}])-(?=\d|\\frac|\\sqrt)", lambda _: ""),
    "plus for minus": edit(r"(?<=[\w)}\s])[+-](?=[\s\w\\(])", lambda p: "-" if p.group() == "+" else "+"),
    "other side": edit(r"<|>", lambda p: {"<": ">", ">": "<"}[p.group()]),
    "less or equal": edit(r"<|>", lambda p: {"<": r"\le ", ">": r"\ge "}[p.group()]),
    "strictly": edit(r"\\(?:leq?|geq?)(?![a-z])", lambda p: "<" if "l" in p.group() else ">"),
    "closed": edit(r"(?<![A-Za-z])\((?=[^()]*,[^()]*[)\]])", lambda _: "["),
    "one less": edit(r",\s*[^,()\[\]{}\\]+(?=$|[)\]}])", lambda _: ""),
    "one more": lambda text, _: f"{text}, 77" if "pmatrix" not in text else None,
    "alternative": lambda text, _: f"{text} or 77",
    "denied": lambda text, _: f"not {text}",
    "tuple in another order": edit(r"^(\()([^,()]+),([^,()]+)(.*\))$", other_order),
    "another variable": edit(r"(?<![A-Za-z\\])[xy](?![A-Za-z])", lambda _: "q"),
    "another function": edit(r"\\(?:sin|cos|tan|sqrt)", lambda p: r"\ln" if p.group() == r"\sqrt" else r"\exp"),
    "inverted": lambda text, _: rf"\frac{{1}}{{{text}}}" if re.fullmatch(r"\d\d+", text) else None,
    "squared": lambda text, _: f"({text})^2" if re.fullmatch(r"[2-9]\d*", text) else None,
    "ten times": lambda text, _: f"{text}0" if re.fullmatch(r"[1-9]\d*", text) else None,
    "decimal point": edit(r"(?<=\d)(?=\d)", lambda _: "."),
    "percent": lambda text, _: rf"{text}\%" if re.search(r"\d$", text) and "=" not in text else None,
    "base": edit(r"(?<=\d)_\{?\d\}?", lambda p: "_9" if "9" not in p.group() else "_8"),
    "one of two": lambda text, _: text.replace(r"\pm", "+") if r"\pm" in text else None,
    "exponent": edit(r"\^(?:\{(\d)|(\d))", lambda p: f"^{{{p.group(1)}1" if p.group(1) else f"^{{{p.group(2)}1}}"),
    "unit": edit(r"cm|minutes|\\\$", lambda p: {"cm": "km", "minutes": "hours"}.get(p.group(), "€")),
    "one added": lambda text, _: f"{text}+1" if "%" not in text else None,
    "a part of it": lambda text, _: rf"\frac{{{text}}}{{2}}" if re.fullmatch(r"[1-9]\d*", text) else None,
    "with more": lambda text, _: rf"{text} \cup \{{77\}}",
    "names exchanged": edit(r"x\s*=(.*)y\s*=", lambda p: f"y={p.group(1)}x="),
    "factorial": lambda text, _: f"{text}!" if re.fullmatch(r"[3-9]", text) else None,
}


def test_an_edit_that_changes_the_meaning_is_not_accepted() -> None:
    wrong: list[tuple[str, str, str]] = []
    for name, edited in EDITS.items():
        draw = random.Random(7)
        changes = [(gold, edited(gold, draw)) for gold in golds()]
        changed = [(gold, new) for gold, new in changes if new is not None and new != gold]
        assert changed, name
        said = [(gold, text) for gold, new in changed for text in (new, rf"\boxed{{{new}}}", f"The answer is ${new}$.")]
        wrong += [(name, gold, text) for gold, text in said if matches(text, [gold], "math")]
    assert not wrong


@pytest.mark.slow
def test_no_reference_is_accepted_for_another() -> None:
    """References that differ only by a unit or a name which one side leaves out are set aside."""

    def bare(gold: str) -> str:
        return re.sub(r"^\w+ ?= ?|\^\\circ|\^\{\\circ\}|\\text| cm| minutes|\\\$|[{}()\s]", "", gold)

    texts = golds()
    twice = {"1.2e4", r"1.2 \times 10^{4}"}
    wrong = [(a, b) for a in texts for b in texts if bare(a) != bare(b) and matches(b, [a], "math")]
    assert [pair for pair in wrong if set(pair) != twice] == []
