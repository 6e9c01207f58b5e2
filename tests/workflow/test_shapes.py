"""Named shapes and generated workflows are sound in every domain, and the shape read from a text tells them apart."""

from itertools import pairwise
from random import Random

from helpers.tables import tables
from helpers.workflows import linted, workflow

from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.workflow.contract import PREFILL
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.recipes import draw_recipe, recipes, write
from llm_as_judge.workflow.shapes import SHAPES
from llm_as_judge.workflow.shapes import workflow as written
from llm_as_judge.workflow.structure import normalise_code

TABLES = tables(__file__)

DRAFTS = {"direct": "Custom", "answer": "AnswerGenerate", "program": "Programmer", "code": "CustomCodeGenerate"}
ENDINGS = {"once": "{}", "vote": "3x{}>ScEnsemble", "review": "{}>Review>Revise", "test": "{}>Test"}
EXPECTED = {
    draft if ending == "once" else f"{draft}_{ending}": text.format(operator)
    for draft, operator in DRAFTS.items()
    for ending, text in ENDINGS.items()
}


def test_every_shape_is_clean_reads_as_what_it_is_and_follows_line_by_line() -> None:
    assert list(SHAPES) == list(EXPECTED)
    wrong, texts = [], set()
    for domain in DOMAINS:
        for name, template in SHAPES.items():
            source = written(template, domain)
            operators = load_operators(dict.fromkeys(template.operators.values()))
            findings = linted(source, entry_point="solve" if domain == "code" else None, operators=operators)
            signature = "(self, problem: str, entry_point: str)" if domain == "code" else "(self, problem: str):"
            if findings or lint(source).shape != EXPECTED[name] or signature not in source:
                wrong.append((domain, name, findings))
            texts.add(source)
    assert not wrong
    assert len(texts) == len(SHAPES) * len(DOMAINS)
    # What lets a model of a million parameters finish the shape it named; it chooses after each draft's operator.
    for domain in DOMAINS:
        followers: dict[str, set[str]] = {}
        for template in SHAPES.values():
            setup = written(template, domain).partition("(llm_config)\n")[2].partition("\n\n")[0]
            for line, following in pairwise([*setup.splitlines(), ""]):
                followers.setdefault(line, set()).add(following)
        open_lines = [line for line, found in followers.items() if len(found) > 1]
        assert len(open_lines) == 4 and all("# " not in line for line in open_lines)


INIT = "\n".join(
    f"self.{name} = operator.{of}(self.llm)"
    for name, of in (("a", "AnswerGenerate"), ("c", "Custom"), ("s", "ScEnsemble"))
)
BODIES = TABLES["BODIES"]


def test_shapes_of_loops_and_groups_and_normalised_code() -> None:
    assert {body: lint(workflow(body, init=INIT)).shape for body in BODIES} == BODIES
    assert {lint(source).shape for source in ("", "def f(", "x = 1", "class Workflow: pass")} == {"invalid"}
    assert normalise_code("x: int=1 # one\n\n") == normalise_code("x = 1")
    assert normalise_code("def f(a: int) -> str:\n  'doc'\n  return a") == normalise_code("def f(a): return a")
    assert normalise_code("not   python (") == "not python ("


def test_every_recipe_gives_clean_workflows_in_many_shapes_and_ways() -> None:
    for domain in DOMAINS:
        rng, seen = Random(1), set()
        entry_point = "solve" if domain == "code" else None
        for recipe in recipes(domain, OPERATORS):
            source = write(recipe, domain, rng)
            plain = write(recipe, domain, rng, varied=0, class_first=True)
            found = lint(source, entry_point=entry_point)
            assert not found.findings, source
            assert plain.startswith(PREFILL) and lint(plain).shape == found.shape
            seen.add(found.shape)
        assert len(seen) >= 60
    rng = Random(2)
    recipe = next(r for r in recipes("math", OPERATORS) if r.samples == 3 and r.ensemble == "ScEnsemble")
    sources = {normalise_code(write(recipe, "math", rng)) for _ in range(40)}
    assert len(sources) > 30 and len({lint(source).shape for source in sources}) == 1
    plain = next(r for r in recipes("math", OPERATORS) if r.draft == "Custom" and r.samples == 3 and r.after)
    assert len({write(plain, "math", rng, varied=0, one_instruction=True) for _ in range(20)}) == 1
    assert len({write(plain, "math", rng, varied=0) for _ in range(40)}) == 4, "instructions"
    drawn = [draw_recipe("math", rng, OPERATORS) for _ in range(2000)]
    assert 0.7 < sum(r.samples == 1 for r in drawn) / 2000 < 0.8, "an ensemble makes a recipe three times as rare"
    assert 0.64 < sum(not r.after for r in drawn) / 2000 < 0.72
    named = [
        write(draw_recipe("qa", Random(seed), OPERATORS), "qa", Random(seed), executors=["strong"])
        for seed in range(30)
    ]
    assert not any(linted(source, executors=["strong"]) for source in named)
    assert 10 < sum("model='strong'" in source for source in named) < 30
    allowed = {"Custom", "ScEnsemble"}
    for seed in range(30):
        source = write(draw_recipe("qa", Random(seed), allowed), "qa", Random(seed))
        assert not linted(source, operators={name: OPERATORS[name] for name in allowed}), source


def test_the_same_seed_draws_and_writes_the_same_texts() -> None:
    """A warm-up can be repeated."""

    def drawn(domain: Domain) -> list[str]:
        rng = Random(11)
        return [write(draw_recipe(domain, rng, OPERATORS), domain, rng, varied=0.5) for _ in range(50)]

    assert all(drawn(domain) == drawn(domain) for domain in DOMAINS)
