"""Layer 1: everything the policy needs is in its prompt, and leaving a part out is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.types import DOMAINS, Domain, Prompt, Question
from llm_as_judge.workflow.prompt import (
    DEFAULT_GUIDANCE,
    Layer1,
    load_guidance,
    short_prompt,
    system_prompt,
)
from llm_as_judge.workflow.shapes import Example

OPERATORS = list(catalog.OPERATORS)
GUIDANCE: dict[Domain, str] = {"math": "Mind the units.", "code": "Mind empty lists.", "qa": "Quote the context."}
QUESTION = Question("q", "How many apples has Ann?", "math")
EXAMPLES = (Example("How many pears?", "class Workflow: # pears"), Example("How many figs?", "class Workflow: # figs"))


def prompt(question: Question = QUESTION, examples: tuple[Example, ...] = ()) -> Prompt:
    return short_prompt(question, system=system_prompt(), examples=examples, guidance=GUIDANCE)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_problem_is_in_the_prompt_with_its_context_and_entry_point(domain: Domain) -> None:
    question = Question("q", "ZQX what?", domain, context="Some {facts}.", entry_point="solve_it")
    user = prompt(question).user
    assert "Problem: Context: Some {facts}.\nQuestion: ZQX what?" in user
    assert "entry_point: solve_it" in user


def test_an_entry_point_is_only_told_where_there_is_one() -> None:
    assert "entry_point" not in prompt().user


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_documented_with_its_call_and_keys(name: str) -> None:
    (line,) = [
        li for li in prompt().system.splitlines() if li.startswith(f"{catalog.call_line(catalog.OPERATORS[name])} -> ")
    ]
    assert all(key in line for key in catalog.OPERATORS[name].RESULT)


def test_an_operator_that_is_not_configured_is_not_told_of() -> None:
    system = Layer1(WorkflowConfig(prompt="short", operators=("Custom",)))(QUESTION).system
    assert "Custom(input, instruction)" in system
    assert not [name for name in OPERATORS if name != "Custom" and f"{name}(" in system]


@pytest.mark.parametrize("domain", DOMAINS)
def test_only_the_domains_own_guidance_is_given(domain: Domain) -> None:
    user = prompt(replace(QUESTION, domain=domain)).user
    assert [d for d in DOMAINS if GUIDANCE[d] in user] == [domain]
    assert f"Domain: {domain}." in user


def test_examples_come_in_full_and_before_the_problem() -> None:
    user = prompt(examples=EXAMPLES).user
    places = [user.index(part) for e in EXAMPLES for part in (e.problem, e.workflow)]
    assert places == sorted(places)
    assert places[-1] < user.index(f"Problem: {QUESTION.text}")


def test_the_prompt_ends_where_the_workflow_begins() -> None:
    assert prompt(examples=EXAMPLES).user.endswith("\nWorkflow:\n")


def test_the_system_part_is_the_same_for_every_problem() -> None:
    others = [
        prompt(replace(QUESTION, text="Why?", domain="qa", context="c"), EXAMPLES),
        prompt(replace(QUESTION, domain="code", entry_point="f")),
    ]
    assert {p.system for p in others} == {prompt().system} == {system_prompt()}


def test_what_only_some_may_see_is_not_in_the_prompt() -> None:
    """Public tests are the Test operator's; a problem's id and data set say nothing about how to solve it."""
    question = replace(QUESTION, id="id-77", dataset="gsm8k-x", public_tests=("assert f(1) == 99",))
    text = prompt(question).system + prompt(question).user
    assert not [secret for secret in ("id-77", "gsm8k-x", "f(1) == 99") if secret in text]


@pytest.mark.parametrize(
    "changed",
    [
        prompt(replace(QUESTION, text="How many plums?")),
        prompt(replace(QUESTION, context="Ann has 3.")),
        prompt(replace(QUESTION, entry_point="f")),
        prompt(examples=EXAMPLES[:1]),
        short_prompt(QUESTION, system=system_prompt(), guidance={**GUIDANCE, "math": ""}),
        short_prompt(QUESTION, system=system_prompt({"Custom": catalog.OPERATORS["Custom"]}), guidance=GUIDANCE),
    ],
    ids=["text", "context", "entry_point", "examples", "guidance", "operators"],
)
def test_every_part_changes_the_prompt(changed: Prompt) -> None:
    assert changed != prompt()


def test_guidance_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "guidance.yaml"
    path.write_text(yaml.safe_dump(GUIDANCE), encoding="utf-8")
    assert load_guidance(path) == GUIDANCE


def test_the_shipped_guidance_is_the_built_in_one(root: Path) -> None:
    assert load_guidance(root / "config/guidance.yaml") == DEFAULT_GUIDANCE


@pytest.mark.parametrize(
    "text",
    ["math: a\ncode: b", "math: a\ncode: b\nqa: c\nart: d", "- math", "", "just text", "maths: a\ncode: b\nqa: c"],
)
def test_guidance_for_too_few_or_too_many_domains_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "guidance.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"guidance\.yaml must map exactly math, code, qa to text"):
        load_guidance(path)


@pytest.mark.parametrize("text", ["math: [", "a: b: c"])
def test_guidance_that_is_not_yaml_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "guidance.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"guidance file .*guidance\.yaml"):
        load_guidance(path)


def test_a_missing_guidance_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_guidance(tmp_path / "none.yaml")
