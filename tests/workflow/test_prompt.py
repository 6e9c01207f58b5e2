"""Layer 1: everything the policy needs is in its prompt. Layer 2: its file is read and checked."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers.tables import tables

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.types import DOMAINS, Domain, Prompt, Question
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import TEXTS, Layer1, load_guidance
from llm_as_judge.workflow.shapes import Example

TABLES = tables(__file__)

OPERATORS = list(catalog.OPERATORS)
GUIDANCE: dict[Domain, str] = {"math": "Mind the units.", "code": "Mind empty lists.", "qa": "Quote the context."}
QUESTION = Question("q", "How many apples has Ann?", "math")
EXAMPLES = (Example("How many pears?", "class Workflow: # pears"), Example("How many figs?", "class Workflow: # figs"))


def prompt(question: Question = QUESTION, examples: tuple[Example, ...] = ()) -> Prompt:
    return Layer1(WorkflowConfig(prompt="short"))(question, examples)


def test_the_problem_is_in_the_prompt_unless_a_control_experiment_hides_it() -> None:
    for domain in DOMAINS:
        user = prompt(Question("q", "ZQX what?", domain, context="Some {facts}.", entry_point="solve_it")).user
        assert "Problem: Context: Some {facts}.\nQuestion: ZQX what?" in user
        assert "entry_point: solve_it" in user
    assert "entry_point" not in prompt().user
    for style in ("short", "full"):
        hidden = Layer1(WorkflowConfig(prompt=style, show_problem=False))
        shown = Layer1(WorkflowConfig(prompt=style))
        other = replace(QUESTION, text="How many pears?", context="Ann has two.")
        assert hidden(QUESTION) == hidden(other) and shown(QUESTION) != shown(other)
        assert QUESTION.text in shown(QUESTION).user and QUESTION.domain in hidden(QUESTION).user


def test_operators_guidance_and_examples_come_first_and_secrets_are_in_no_prompt() -> None:
    lines = prompt().system.splitlines()
    for operator in catalog.OPERATORS.values():
        (line,) = [li for li in lines if li.startswith(f"{catalog.call_line(operator)} -> ")]
        assert all(key in line for key in operator.RESULT)
    system = Layer1(WorkflowConfig(prompt="short", operators=("Custom",)))(QUESTION).system
    assert [name for name in OPERATORS if f"{name}(" in system] == ["Custom"]
    for domain in DOMAINS:
        user = prompt(replace(QUESTION, domain=domain), EXAMPLES).user
        assert [d for d in DOMAINS if TEXTS["guidance"]["short"][d] in user] == [
            domain
        ] and f"Domain: {domain}." in user
        places = [user.index(part) for e in EXAMPLES for part in (e.problem, e.workflow)]
        assert [*places, user.index(f"Problem: {QUESTION.text}")] == sorted([*places, user.index(QUESTION.text) - 9])
    # Public tests are the Test operator's; a problem's id and data set say nothing about how to solve it.
    question = replace(QUESTION, id="id-77", dataset="gsm8k-x", public_tests=("assert f(1) == 99",))
    others = [prompt(replace(question, domain="qa", context="c"), EXAMPLES), prompt(replace(question, entry_point="f"))]
    assert {p.system for p in others} == {prompt().system}
    text = "".join(p.system + p.user for p in others)
    assert not [secret for secret in ("id-77", "gsm8k-x", "f(1) == 99") if secret in text]


def test_guidance_is_read_from_a_file_and_wrong_guidance_refused(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "guidance.yaml"
    path.write_text(yaml.safe_dump(GUIDANCE), encoding="utf-8")
    assert load_guidance(path) == GUIDANCE
    assert load_guidance(root / "config/guidance.yaml") == TEXTS["guidance"]["short"]
    path, domains = tmp_path / "guidance.yaml", r"guidance\.yaml must map exactly math, code, qa to text"
    for text, message in (
        ("math: a\ncode: b", domains), ("math: a\ncode: b\nqa: c\nart: d", domains), ("- math", domains), ("", domains),
        ("maths: a\ncode: b\nqa: c", domains), ("math: [", r"guidance file .*guidance\.yaml"),
    ):  # fmt: skip
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            load_guidance(path)
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_guidance(tmp_path / "none.yaml")


def test_an_instruction_is_found_by_operator_and_domain_and_wrong_files_refused(tmp_path: Path) -> None:
    path, empty = tmp_path / "enhancer.yaml", tmp_path / "empty.yaml"
    path.write_text("AnswerGenerate:\n  math: ' Check each step. '\nReview:\n  math: Two.\n", encoding="utf-8")
    empty.touch()
    enhance = load_enhancer(WorkflowConfig(enhancer=path))
    assert (enhance("AnswerGenerate", "math"), enhance("AnswerGenerate", "qa")) == ("Check each step.", "")
    for nothing in (None, empty):
        assert load_enhancer(WorkflowConfig(enhancer=nothing))("Custom", "math") == ""
    for text, message in TABLES["wrong instructions"]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            load_enhancer(WorkflowConfig(enhancer=path))
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        load_enhancer(WorkflowConfig(enhancer=Path("none.yaml")))
