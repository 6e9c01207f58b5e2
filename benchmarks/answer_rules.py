"""What each module of ``llm_as_judge.answers`` saves: right replies that the rules accept, and how many without it.

    python benchmarks/answer_rules.py [PAIRS.jsonl ...]

Pairs are those of ``judge calibrate``; without a file, the right replies of ``tests/answers/cases.json``. A module is
disabled by a function that never finds what it looks for; what is no longer accepted would go to the LLM judge. The
last rows are wrong replies that are refused without it: non-answers, and another number than the reference's.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from llm_as_judge.answers import algebra, equivalence, extraction, notation, sameness, values
from llm_as_judge.answers.equivalence import matches
from llm_as_judge.answers.nonanswers import refused
from llm_as_judge.answers.typed import compare_typed
from llm_as_judge.judging.calibration import read_pairs
from llm_as_judge.types import Kind

CASES = Path(__file__).parents[1] / "tests/answers/cases.json"
#: Question, reply, references, domain.
Case = tuple[str, str, Sequence[str], Kind]


def _none(*_: Any, **__: Any) -> None:
    return None


def _no(*_: Any, **__: Any) -> bool:
    return False


OFF: Mapping[str, Sequence[tuple[ModuleType, str, Callable[..., Any]]]] = {
    "extraction": [(equivalence, "statement", _none), (equivalence, "chosen_option", lambda *_: "")],
    "restating": [(extraction, "restates", _no), (equivalence, "restates", _no)],
    "values": [(equivalence, "same", lambda a, b, *_: a.text == b.text), (extraction, "labelled", _none),
               (equivalence, "quantity", _none)],
    "sameness": [(equivalence, "same", lambda a, b, *_: a == b), (extraction, "same", lambda a, b, *_: a == b)],
    "formulas": [(values, "parse", _none), (sameness, "parse", _none)],
    "algebra": [(algebra, "equal", lambda a, b: a == b), (algebra, "proved", _no)],
    "units": [(module, "split_unit", _none) for module in (equivalence, sameness, values)]
             + [(equivalence, "units", lambda *_, **__: ()), (extraction, "unit_named", _none)],
    "notation": [(module, "clean", str.strip) for module in (equivalence, extraction, sameness, values)],
}  # fmt: skip


def shipped(kinds: str) -> list[Case]:
    """Read the tests' replies: of ``MATHS_{kinds}`` and so on, without and with a question."""
    cases, plain, asked = json.loads(CASES.read_text(encoding="utf-8")), *kinds.split()
    found: list[Case] = [("", text, [gold], "math") for text, gold in cases[f"MATHS_{plain}"]]
    found += [("", text, [gold], "qa") for text, gold in cases[f"QA_{plain}"]]
    found += [(question, text, [gold], "math") for question, text, gold in cases[f"{asked}_WITH_QUESTION"]]
    return found + [(question, text, [gold], "qa") for question, text, gold in cases[f"QA_{asked}_WITH_QUESTION"]]


def read(file: str, equivalent: bool) -> list[Case]:
    pairs = [pair for pair in read_pairs(Path(file)) if pair.equivalent is equivalent]
    problems = [(pair.problem.question, pair.problem.reference.answers, pair.candidate) for pair in pairs]
    return [(question.text, text, answers, question.kind) for question, answers, text in problems]


def accepted(cases: Sequence[Case], module: str = "") -> int:
    """Count the replies that the rules accept without ``module``."""
    notation.clean.cache_clear()
    with ExitStack() as stack:
        for place, name, function in OFF.get(module, ()):
            stack.enter_context(patch.object(place, name, function))
        return sum(matches(reply, golds, kind, question) for question, reply, golds, kind in cases)


def main(files: Sequence[str]) -> None:
    names = [Path(file).name for file in files] or [CASES.name]
    right = [read(file, True) for file in files] or [shipped("RIGHT RIGHT")]
    wrong = [read(file, False) for file in files] or [shipped("UNDECIDED WRONG")]

    def row(name: str, values: Iterable[object]) -> None:
        print(f"| {name} | {' | '.join(map(str, values))} |")

    row("accepted without", (f"{name}, {len(cases)} right" for name, cases in zip(names, right, strict=True)))
    print("|---|" + "---:|" * len(names))
    for module in ("", *OFF):
        row(module or "nothing", (accepted(cases, module) for cases in right))
    row("wrong", map(len, wrong))
    row("refused by nonanswers", (sum(bool(refused([t], g, q)) for q, t, g, _ in cases) for cases in wrong))
    typed = (sum(compare_typed(t, tuple(g), q) is False for q, t, g, _ in cases) for cases in wrong)
    row("refused by typed", typed)


if __name__ == "__main__":
    main(sys.argv[1:])
