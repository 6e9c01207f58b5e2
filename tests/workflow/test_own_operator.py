"""An operator of a user's own, from its name in the configuration to a sandboxed run."""

from pathlib import Path
from typing import Any

import pytest
from helpers.workflows import linted, workflow
from running import Run, Script

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1

OPERATORS = '''
class Translate:
    """As a user would write it: annotations are types, no key but its own."""

    NAME = "Translate"
    RESULT = {"translation": str}
    SUMMARY = "translates a text"

    def __init__(self, tools, polite: bool = False):
        self.tools = tools
        self.polite = polite

    async def __call__(self, text: str, languages: list[str], tone: str = "plain"):
        if not languages:
            raise ValueError("languages is empty")
        prompt = f"Translate to {', '.join(languages)}, {tone}{', politely' if self.polite else ''}: {text}"
        return {"translation": await self.tools.ask(self.NAME, prompt)}

class Forgetful(Translate):
    NAME = "Forgetful"
    async def __call__(self, text: str): return {"text": text}

class Custom(Translate):
    NAME = "Custom"

class Again(Translate):
    pass

class Nameless:
    RESULT = {"a": str}

class Keyless:
    NAME, SUMMARY = "Keyless", "has no keys"

class Silent:
    NAME, RESULT = "Silent", {"a": str}

class Blocking(Translate):
    NAME = "Blocking"
    def __call__(self, text): return {}

class Anything(Translate):
    NAME = "Anything"
    async def __call__(self, *args, **kwargs): return {}

class Bare(Translate):
    NAME = "Bare"
    def __init__(self): pass

number = 3
'''
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


REFUSED = (
    (["ops.py:Custom"], "there is an operator 'Custom' already; give it another NAME"),
    (["ops.py:Translate", "ops.py:Again"], "there is an operator 'Translate' already; give it another NAME"),
    (["ops.py:Translate", "ops.py:Translate"], "names 'ops.py:Translate' twice; delete one"),
    (["ops.py:number"], "is not an operator: write a class"),
    (["ops.py:Nameless"], "NAME must be the name workflows call it by, got None"),
    (["ops.py:Keyless"], "RESULT must map the keys of its result to their types, got None"),
    (["ops.py:Silent"], "SUMMARY must say in a few words what it does"),
    (["ops.py:Blocking"], r"write async def __call__\(self, ...\)"), (["ops.py:Anything"], "with named parameters"),
    (["ops.py:Bare"], r"write __init__\(self, tools, ...\)"), (["ops.py:Translation"], "did you mean 'Translate'"),
    (["opps.py:Translate"], "there is no file"),
)  # fmt: skip


def test_what_is_not_an_operator_or_clashes_is_refused_with_the_cure() -> None:
    for names, message in REFUSED:
        with pytest.raises(ConfigError, match=message):
            load_operators(["Custom", *names])
