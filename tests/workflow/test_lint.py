"""Lint of workflows, and operators of a user."""

from pathlib import Path
from typing import Any

import pytest
from helpers.tables import tables
from helpers.workflows import linted, workflow
from running import Run, Script

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1

TABLES = tables(__file__)

OPERATORS = TABLES["OPERATORS"]
WORKFLOW = workflow(
    "result = await self.translate(problem, ['French'], tone='warm')\nreturn result['translation'], 0.0",
    init="self.translate = operator.Translate(self.llm, polite=True)",
)
QUESTION = Question("q", "Good day", "qa")


@pytest.fixture(autouse=True)
def _operators(here: Path) -> None:
    Path("ops.py").write_text(OPERATORS, encoding="utf-8")


def config(*names: str, **settings: Any) -> WorkflowConfig:
    return WorkflowConfig(operators=("AnswerGenerate", *names), **settings)


def test_it_runs_with_its_own_arguments_and_a_failure_is_its_own_or_the_workflows(run: Run) -> None:
    layer_two = Path("layer2.yaml")
    layer_two.write_text("Translate:\n  qa: Keep names.\n", encoding="utf-8")
    llm, settings = Script("Bonjour"), config("ops.py:Translate", enhancer=layer_two)
    execution = run(WORKFLOW, QUESTION, llm, enhance=load_enhancer(settings), operators=settings.operators)
    assert (execution.outcome, execution.answer, execution.findings) == ("finished", "Bonjour", ())
    assert llm.prompts == ["Keep names.\nTranslate to French, warm, politely: Good day"]
    (call,) = execution.calls
    assert (call.name, call.parse_ok) == ("Translate", True)
    assert call.result == {"translation": "Bonjour", "parse_ok": True, "error": ""}
    for languages, error in (("[]", "languages is empty"), ("problem", "languages must be a list, got str")):
        source = WORKFLOW.replace("['French']", languages)
        execution = run(source, QUESTION, operators=("ops.py:Translate",))
        assert execution.outcome == "raised" and error in execution.error
    source = WORKFLOW.replace("Translate(", "Forgetful(").replace("problem, ['French'], tone='warm'", "problem")
    source = source.replace("['translation']", ".get('translation')")
    execution = run(source, QUESTION, operators=("ops.py:Forgetful",))
    assert execution.outcome == "raised"
    assert "Forgetful: ConfigError: its result lacks translation, which its RESULT names" in execution.error


def test_layer_one_documents_it_and_lint_knows_its_signature() -> None:
    short = Layer1(config("ops.py:Translate", prompt="short"))(QUESTION)
    assert "Translate(text, languages, tone='plain') -> translation: translates a text" in short.system
    full = Layer1(config("ops.py:Translate"))(QUESTION)
    line = (
        "Translate(text: str, languages: list[str], tone: str = 'plain') -> {\"translation\": str}: translates a text"
    )
    assert f"- {line}; built as operator.Translate(self.llm, polite=False)\n" in full.system
    operators = load_operators(config("ops.py:Translate").operators)
    assert linted(WORKFLOW, operators=operators) == []
    assert "W201" in [f.code for f in linted(WORKFLOW)], "it is not configured"
    for old, new, code in TABLES["own operators"]:
        assert code in [f.code for f in linted(WORKFLOW.replace(old, new), operators=operators)], new


REFUSED = TABLES["REFUSED"]


def test_what_is_not_an_operator_or_clashes_is_refused_with_the_cure() -> None:
    for names, message in REFUSED:
        with pytest.raises(ConfigError, match=message):
            load_operators(["Custom", *names])


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
    for old, new in TABLES["needs an import"]:
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
