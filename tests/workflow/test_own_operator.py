"""An operator of a user's own, from its name in the configuration to a sandboxed run."""

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
    for old, new, code in (
        ("problem, ['French']", "problem", "W203"), ("['French']", "'French'", "W203"),
        ("tone='warm'", "mood='warm'", "W203"), ("polite=True", "rude=True", "W203"),
        ("['translation']", "['answer']", "W207"), ("await ", "", "W204"),
    ):  # fmt: skip
        assert code in [f.code for f in linted(WORKFLOW.replace(old, new), operators=operators)], new


REFUSED = TABLES["REFUSED"]


def test_what_is_not_an_operator_or_clashes_is_refused_with_the_cure() -> None:
    for names, message in REFUSED:
        with pytest.raises(ConfigError, match=message):
            load_operators(["Custom", *names])
