"""Generated workflows: many shapes, all of them valid, the same for the same seed."""

import hashlib
from random import Random

from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.types import DOMAINS
from llm_as_judge.workflow.contract import CLASS_HEAD
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.recipes import draw, recipes, write
from llm_as_judge.workflow.structure import normalise_code, shape


def test_every_recipe_gives_clean_workflows_in_at_least_sixty_shapes() -> None:
    for domain in DOMAINS:
        rng, seen = Random(1), set()
        entry_point = "solve" if domain == "code" else None
        for recipe in recipes(domain, OPERATORS):
            source = write(recipe, domain, rng)
            plain = write(recipe, domain, rng, varied=0, class_first=True)
            assert not lint(source, entry_point=entry_point), source
            assert plain.startswith(CLASS_HEAD) and shape(plain) == shape(source)
            seen.add(shape(source))
        assert len(seen) >= 60


def test_the_same_seed_draws_and_writes_the_same_texts() -> None:
    """The shipped nano policy was trained on them."""
    digest = hashlib.sha256()
    for domain in DOMAINS:
        rng = Random(11)
        for _ in range(50):
            digest.update(write(draw(domain, rng, OPERATORS), domain, rng, varied=0.5).encode())
    assert digest.hexdigest() == "fe946fb4fa7b48bb32eddc2f40619caefc7567e46bd698f5a65cabaa0c0c4fc8"


def test_one_recipe_is_written_in_many_ways_or_in_one() -> None:
    rng = Random(2)
    recipe = next(r for r in recipes("math", OPERATORS) if r.samples == 3 and r.ensemble == "ScEnsemble")
    sources = {normalise_code(write(recipe, "math", rng)) for _ in range(40)}
    assert len(sources) > 30 and len({shape(source) for source in sources}) == 1
    plain = next(r for r in recipes("math", OPERATORS) if r.draft == "Programmer" and r.samples == 3 and r.after)
    assert len({write(plain, "math", rng, varied=0) for _ in range(20)}) == 1


def test_only_the_configured_operators_are_used() -> None:
    allowed = {"Custom", "ScEnsemble"}
    for seed in range(30):
        source = write(draw("qa", Random(seed), allowed), "qa", Random(seed))
        assert not lint(source, operators={name: OPERATORS[name] for name in allowed}), source
