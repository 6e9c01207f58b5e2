"""Answers with another meaning: edited references and references of other problems."""

import json
import random
import re
from collections.abc import Callable

import pytest
from helpers.benchmarks import FOLDERS
from helpers.tables import tables

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.answers.extraction import last_boxed

TABLES = tables(__file__)

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
