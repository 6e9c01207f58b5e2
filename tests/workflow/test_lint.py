"""Lint has no error for what can run; mistakes by number are in ``test_contract.py``."""

from helpers.tables import tables
from helpers.workflows import linted, workflow

TABLES = tables(__file__)

USED = "Custom AnswerGenerate ScEnsemble Programmer Review Revise Test CustomCodeGenerate"
NAMES = "custom answer ensemble programmer review revise test code"
INIT = "\n".join(
    f"self.{name} = operator.{operator}(self.llm)" for name, operator in zip(NAMES.split(), USED.split(), strict=True)
)
SEED = workflow(
    "result = await self.answer_generate(input=problem)\nreturn result['answer'], 0.0",
    init="self.answer_generate = operator.AnswerGenerate(self.llm)",
    call="async def __call__(self, problem: str)",
)
ASK = "r = await self.answer(input=problem)\n"
CHOOSE = "s = await self.ensemble({}, problem)\nreturn s['response']"
GOOD = TABLES["GOOD"]


def test_correct_workflows_raise_no_alarm() -> None:
    # Correct only by reasoning about conditions and counters, which plain definite assignment does not do.
    warned = {"while counter": "W301", "complementary returns": "W304", "flag": "W301", "same condition twice": "W301"}
    wrong = []
    for name, body in GOOD.items():
        source = workflow(body, init=INIT)
        findings = [f for f in linted(source) if f.code != "W205"]
        expected = {warned[name]} if name in warned else set()
        if {f.code for f in findings} != expected or any(f.fatal for f in findings):
            wrong.append((name, findings))
    assert not wrong


def test_broken_and_deeply_nested_texts_are_refused() -> None:
    frames = ["class Workflow:\n    def __init__(self):\n        await x", "x = '\x00'", "(" * 500]
    assert [[f.code for f in linted(source) if f.fatal] for source in frames] == [["W101"]] * 3
    for nested in ("lambda: " * 1_840 + "1", "[" * 80 + "1" + " for a in b]" * 80):
        (finding,) = linted(f"class Workflow:\n    x = {nested}\n")
        assert (finding.code, finding.fatal) == ("W101", True) and "nested more than 50 deep" in finding.message


def test_names_are_found_in_annotations_helpers_dicts_and_conditions() -> None:
    assert linted(SEED.replace("problem)", "(" * 60 + "problem" + " if problem else problem)" * 61)) == []
    kept = "self.ops, self.b = {'a': operator.AnswerGenerate(self.llm)}, operator.AnswerGenerate(self.llm)"
    source = SEED.replace("self.answer_generate = operator.AnswerGenerate(self.llm)", kept)
    for place in ("self.ops['a']", "self.b"):
        used = source.replace("self.answer_generate", place)
        assert [f.code for f in linted(used) if f.fatal] == []
        assert [f.code for f in linted(used.replace("['answer']", "['anser']")) if f.fatal] == ["W207"]
    for old, new in (
        ("problem: str)", "problem: str, hint: Optional[str] = None)"),
        ("problem: str):", "problem: str) -> Tuple[str, float]:"),
        ("class Workflow:\n", "class Workflow:\n    cache: Dict[str, str] = {}\n\n"),
        ("class Workflow:\n", "def clean(text):\n    return re.sub(' ', '', text)\n\n\nclass Workflow:\n"),
    ):
        source = SEED.replace(old, new)
        assert [f.code for f in linted(source)] == ["W303"], new
        for imports in ("import re\nfrom typing import Dict, Optional, Tuple", "import re\nfrom typing import *"):
            assert linted(f"{imports}\n{source}") == [], new
        if "re." not in new:
            assert linted(f"from __future__ import annotations\n{source}") == [], new


def test_code_problems_take_the_entry_point_and_messages_say_what_to_write() -> None:
    assert [f.code for f in linted(SEED, entry_point="f")] == ["W107"]
    for more in ("entry_point", "entry_point='f'", "*, entry_point"):
        assert linted(SEED.replace("problem: str)", f"problem: str, {more})"), entry_point="f") == []
    (finding,) = [f for f in linted(workflow("return await self.answer(input=problem)", init=INIT)) if f.fatal]
    assert "['answer']" in finding.message
    (finding,) = [f for f in linted(workflow("return (await self.custom(input=problem))['response']")) if f.fatal]
    assert "Custom(input, instruction): missing a required argument: 'instruction'" in finding.message
