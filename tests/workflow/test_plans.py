"""The plans are sound workflows in every domain, and their shapes tell them apart."""

from __future__ import annotations

from itertools import pairwise

import pytest

from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.workflow.catalogue import PLANS, workflow
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shape import shape

SHAPES = {
    "direct": "Custom",
    "think": "Custom",  # another instruction, the same calls
    "answer": "AnswerGenerate",
    "program": "Programmer",
    "vote": "3xAnswerGenerate>ScEnsemble",
    "ballot": "3xAnswerGenerate>MdEnsemble",
    "review": "AnswerGenerate>Review>Revise",
    "format": "Custom>Format",
    "code": "CustomCodeGenerate",
    "code_test": "CustomCodeGenerate>Test",
}
every_plan = pytest.mark.parametrize("name", PLANS)
every_domain = pytest.mark.parametrize("domain", DOMAINS)


@every_plan
@every_domain
def test_every_plan_passes_lint_without_a_finding(name: str, domain: Domain) -> None:
    source, built = workflow(PLANS[name], domain), list(PLANS[name].operators.values())
    assert (
        lint(source, entry_point="solve" if domain == "code" else None, operators=load_operators(dict.fromkeys(built)))
        == []
    )


@every_plan
@every_domain
def test_the_shape_of_a_plan_is_the_same_in_every_domain(name: str, domain: Domain) -> None:
    assert shape(workflow(PLANS[name], domain)) == SHAPES[name]


def test_all_plans_have_a_known_shape_and_differ_as_texts() -> None:
    assert list(PLANS) == list(SHAPES)
    texts = [workflow(plan, domain) for plan in PLANS.values() for domain in DOMAINS]
    assert len(set(texts)) == len(texts)


@every_plan
def test_the_plans_operators_are_those_it_calls(name: str) -> None:
    called = {part.lstrip("0123456789x") for part in SHAPES[name].split(">")}
    assert called == set(PLANS[name].operators.values())


@every_plan
def test_only_code_problems_bring_their_entry_point(name: str) -> None:
    assert "(self, problem: str, entry_point: str)" in workflow(PLANS[name], "code")
    for domain in DOMAINS:
        if domain != "code":
            source = workflow(PLANS[name], domain)
            assert "(self, problem: str):" in source
            assert "entry_point=entry_point" not in source


@every_plan
@every_domain
def test_domain_and_plan_are_said_right_before_the_operators_are_built(name: str, domain: Domain) -> None:
    lines = workflow(PLANS[name], domain).splitlines()
    said = lines.index(f"        # {domain}: {name}")
    assert "operator." not in "".join(lines[:said]) and "operator." in lines[said + 1]


@every_domain
def test_each_line_of_the_setup_follows_from_the_line_before(domain: Domain) -> None:
    """What lets a model of a million parameters finish the plan it named."""
    followers: dict[str, set[str]] = {}
    for plan in PLANS.values():
        said = f"        # {domain}: {plan.name}"
        setup = [said, *workflow(plan, domain).partition(said + "\n")[2].partition("\n\n")[0].splitlines(), ""]
        for line, following in pairwise(setup):
            followers.setdefault(line, set()).add(following)
    assert all(len(found) == 1 for found in followers.values())
