"""Sixteen named shapes of a workflow, written out for every domain: the baselines, and what the nano policy writes.

A shape is a draft and an ending. Comments name domain, draft and ending right before their operators are built, because
a very small model needs the name just before the code that depends on it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.types import DOMAINS, Kind
from llm_as_judge.workflow.structure import normalise_code
from llm_as_judge.workflow.text import answer_key, attribute_of, built, called, class_text

#: Draft -> attribute and operator.
_DRAFTS = {
    "direct": ("custom", "Custom"),
    "answer": ("answer_generate", "AnswerGenerate"),
    "program": ("programmer", "Programmer"),
    "code": ("code_generate", "CustomCodeGenerate"),
}
#: Ending -> the body; ``{draft}`` is the call of the draft, ``{field}`` its field.
_ENDINGS = {
    "once": """\
result = await {draft}
return result['{field}'], 0.0""",
    "vote": """\
solutions = []
for i in range(3):
    result = await {draft}
    solutions.append(result['{field}'])
result = await self.sc_ensemble(solutions=solutions, problem=problem)
return result['response'], 0.0""",
    "review": """\
result = await {draft}
solution = result['{field}']
check = await self.review(problem=problem, solution=solution)
if not check['review_result']:
    result = await self.revise(problem=problem, solution=solution, feedback=check['feedback'])
    solution = result['solution']
return solution, 0.0""",
    "test": """\
result = await {draft}
result = await self.test(problem=problem, solution=result['{field}'], entry_point={entry})
return result['solution'], 0.0""",
}


@dataclass(frozen=True, slots=True)
class Shape:
    draft: str
    ending: str

    @property
    def name(self) -> str:
        return self.draft if self.ending == "once" else f"{self.draft}_{self.ending}"

    @property
    def operators(self) -> Mapping[str, str]:
        """Attribute -> operator."""
        attribute, operator = _DRAFTS[self.draft]
        after = {attribute_of(name): name for name in OPERATORS}
        return {attribute: operator, **{key: after[key] for key in after if f"self.{key}(" in _ENDINGS[self.ending]}}


SHAPES: Mapping[str, Shape] = {shape.name: shape for shape in (Shape(d, e) for d in _DRAFTS for e in _ENDINGS)}


def shapes_of(operators: Collection[str]) -> list[str]:
    """The names of the shapes that call only ``operators``."""
    return [name for name, shape in SHAPES.items() if set(shape.operators.values()) <= set(operators)]


def workflow(shape: Shape, domain: Kind) -> str:
    """The shape as a workflow for problems of ``domain``."""
    drafting, *ending = (built(attribute, operator) for attribute, operator in shape.operators.items())
    setup = [f"# {domain}: {shape.draft}", drafting, f"# {shape.ending}", *ending]
    attribute, name = _DRAFTS[shape.draft]
    entry = "entry_point" if domain == "code" else "'solve'"
    draft = called(attribute, OPERATORS[name], {"entry_point": entry, "instruction": "''"})
    body = _ENDINGS[shape.ending].format(draft=draft, field=answer_key(OPERATORS[name]), entry=entry)
    return class_text(setup, body, domain == "code")


def name_of(source: str) -> str:
    """The name of the shape that equals ``source`` except for comments and layout, or ``""``."""
    return _named().get(normalise_code(source), "")


@cache
def _named() -> Mapping[str, str]:
    """Normalised text of each shape for each domain -> its name."""
    return {normalise_code(workflow(shape, kind)): shape.name for shape in SHAPES.values() for kind in DOMAINS}


@dataclass(frozen=True, slots=True)
class Example:
    """A workflow for another problem of the same domain, shown to the policy."""

    problem: str
    workflow: str


#: A problem of each domain, and the shapes that show most of what a workflow can be, the best first.
_EXAMPLES: Mapping[Kind, tuple[str, tuple[str, ...]]] = {
    "math": (
        "A baker packs 12 boxes of 8 rolls and sells three quarters of them. How many rolls are left?",
        ("answer_vote", "answer", "program", "direct"),
    ),
    "code": (
        "Write a function that returns the words that occur more than once in a text, sorted.\n"
        "entry_point: repeated_words",
        ("code_test", "code", "direct"),
    ),
    "qa": (
        "Context: The Ilse rises near Altdorf and joins the Main at Ochsenfurt.\nQuestion: Where does the Ilse end?",
        ("answer_review", "answer", "direct"),
    ),
}


def example(domain: Kind, operators: Collection[str]) -> list[Example]:
    """At most one example of a domain that calls only ``operators``, shown until the experience buffer has better."""
    problem, names = _EXAMPLES[domain]
    usable = [name for name in names if name in shapes_of(operators)]
    return [Example(problem, normalise_code(workflow(SHAPES[name], domain))) for name in usable[:1]]
