"""Generated workflows: many shapes, all of them valid, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.workflow.contract import CLASS_HEAD
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shape import normalise_code, shape
from llm_as_judge.workflow.variety import draw, recipes, shapes, write


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_recipe_gives_workflows_without_a_finding_in_at_least_sixty_shapes(domain: Domain) -> None:
    rng, seen = Random(1), set()
    entry_point = "solve" if domain == "code" else None
    for recipe in recipes(domain, OPERATORS):
        for _ in range(3):
            source = write(recipe, domain, rng)
            assert not lint(source, entry_point=entry_point), source
            seen.add(shape(source))
        plain = write(recipe, domain, rng, varied=0, class_first=True)
        assert not lint(plain, entry_point=entry_point) and plain.startswith(CLASS_HEAD), plain
        assert shape(plain) == shape(source)
    assert len(seen) >= 60


def test_what_is_imported_can_stand_inside_the_class() -> None:
    rng = Random(4)
    several = [recipe for recipe in recipes("math", OPERATORS) if recipe.samples == 3 and not recipe.early_end]
    sources = [write(recipe, "math", rng, class_first=True) for recipe in several]
    assert any("        import asyncio\n" in source for source in sources)
    assert all(source.startswith(CLASS_HEAD) and not lint(source) for source in sources)


def test_plain_workflows_say_each_thing_in_one_way() -> None:
    rng = Random(2)
    recipe = next(r for r in recipes("math", OPERATORS) if r.draft == "Programmer" and r.samples == 3 and r.after)
    assert len({write(recipe, "math", rng, varied=0) for _ in range(20)}) == 1
    assert len({write(recipe, "math", rng, varied=0.5) for _ in range(20)}) > 5


def test_simple_workflows_come_often_enough_to_be_tried() -> None:
    rng = Random(6)
    drawn = Counter(shape(write(draw("code", rng, OPERATORS), "code", rng)) for _ in range(1000))
    assert all(drawn[name] > 50 for name in ("CustomCodeGenerate", "CustomCodeGenerate>Test", "Custom>Test")), drawn
    assert 400 < sum(count for name, count in drawn.items() if "Test" in name) < 650
    assert len(drawn) > 50


def test_one_recipe_is_written_in_many_ways() -> None:
    rng = Random(2)
    recipe = next(r for r in recipes("math", OPERATORS) if r.samples == 3 and r.ensemble == "ScEnsemble")
    sources = {normalise_code(write(recipe, "math", rng)) for _ in range(40)}
    assert len(sources) > 30
    assert len({shape(source) for source in sources}) == 1


def test_only_the_operators_that_are_configured_are_used() -> None:
    allowed = {"Custom", "ScEnsemble"}
    for seed in range(30):
        source = write(draw("qa", Random(seed), allowed), "qa", Random(seed))
        assert not lint(source, operators={name: OPERATORS[name] for name in allowed}), source


def test_the_same_seed_writes_the_same() -> None:
    first, second = Random(3), Random(3)
    for _ in range(5):
        sources = [write(draw("code", rng, OPERATORS), "code", rng) for rng in (first, second)]
        assert sources[0] == sources[1]


@pytest.mark.parametrize("domain", DOMAINS)
def test_what_is_written_has_a_known_shape_and_another_order_has_not(domain: Domain) -> None:
    rng = Random(5)
    known = shapes(domain)
    assert {shape(write(draw(domain, rng, OPERATORS), domain, rng)) for _ in range(200)} <= known
    assert "AnswerGenerate>Programmer>AnswerGenerate" not in known
