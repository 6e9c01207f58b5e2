"""Ten named shapes of a workflow, each written out for every domain: the baselines, and the nano policy's vocabulary.

Nothing says which of them suits which domain. A comment names domain and shape, and the operator peculiar to a shape is
built first, because a very small model needs to read the shape's name right before it continues.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from llm_as_judge.types import Domain
from llm_as_judge.workflow.structure import normalise_code

#: Name of each shape, its operators by attribute, and the body of ``__call__``; ``{entry}`` is the entry point.
_SHAPES = """\
# direct: custom=Custom
result = await self.custom(input=problem, instruction='')
return result['response'], 0.0
# think: reasoning=Custom
result = await self.reasoning(input=problem, instruction='Think step by step.')
return result['response'], 0.0
# answer: answer_generate=AnswerGenerate
result = await self.answer_generate(input=problem)
return result['answer'], 0.0
# program: programmer=Programmer
result = await self.programmer(problem=problem)
return result['output'], 0.0
# vote: sc_ensemble=ScEnsemble, answer_generate=AnswerGenerate
solutions = []
for i in range(3):
    result = await self.answer_generate(input=problem)
    solutions.append(result['answer'])
result = await self.sc_ensemble(solutions=solutions, problem=problem)
return result['response'], 0.0
# ballot: md_ensemble=MdEnsemble, answer_generate=AnswerGenerate
solutions = []
for i in range(3):
    result = await self.answer_generate(input=problem)
    solutions.append(result['answer'])
result = await self.md_ensemble(solutions=solutions, problem=problem)
return result['solution'], 0.0
# review: review=Review, revise=Revise, answer_generate=AnswerGenerate
result = await self.answer_generate(input=problem)
answer = result['answer']
check = await self.review(problem=problem, solution=answer)
if not check['review_result']:
    result = await self.revise(problem=problem, solution=answer, feedback=check['feedback'])
    answer = result['solution']
return answer, 0.0
# format: format=Format, reasoning=Custom
result = await self.reasoning(input=problem, instruction='Think step by step.')
result = await self.format(problem=problem, solution=result['response'])
return result['response'], 0.0
# code: code_generate=CustomCodeGenerate
result = await self.code_generate(problem=problem, entry_point={entry}, instruction='')
return result['response'], 0.0
# code_test: test=Test, code_generate=CustomCodeGenerate
result = await self.code_generate(problem=problem, entry_point={entry}, instruction='')
result = await self.test(problem=problem, solution=result['response'], entry_point={entry})
return result['solution'], 0.0
"""


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    operators: Mapping[str, str]  # attribute -> operator
    body: str


def _shape(text: str) -> Shape:
    head, _, body = text.strip().partition("\n")
    name, _, operators = head.partition(": ")
    return Shape(name, dict(pair.split("=") for pair in operators.split(", ")), body)


SHAPES: Mapping[str, Shape] = {shape.name: shape for shape in map(_shape, _SHAPES.split("# ")[1:])}


def shapes_of(operators: Collection[str]) -> list[str]:
    """The names of the shapes that call only ``operators``."""
    return [name for name, shape in SHAPES.items() if set(shape.operators.values()) <= set(operators)]


def workflow(shape: Shape, domain: Domain) -> str:
    """The shape as a workflow for problems of ``domain``."""
    entry = "entry_point" if domain == "code" else "'solve'"
    parameters = "problem: str, entry_point: str" if domain == "code" else "problem: str"
    built = [f"        self.{attribute} = operator.{name}(self.llm)" for attribute, name in shape.operators.items()]
    lines = [
        "class Workflow:",
        "    def __init__(self, name: str, llm_config, dataset):",
        "        self.llm = create_llm_instance(llm_config)",
        f"        # {domain}: {shape.name}",
        *built,
        "",
        f"    async def __call__(self, {parameters}):",
        *(f"        {line}" for line in shape.body.format(entry=entry).splitlines()),
    ]
    return "\n".join(lines)


def name_of(source: str, domain: Domain) -> str:
    """The shape that ``source`` is except for comments and layout, or ``""``."""
    return _named(domain).get(normalise_code(source), "")


@cache
def _named(domain: Domain) -> Mapping[str, str]:
    """Normalised text of each shape for ``domain`` -> its name."""
    return {normalise_code(workflow(shape, domain)): shape.name for shape in SHAPES.values()}


@dataclass(frozen=True, slots=True)
class Example:
    """A workflow for another problem of the same domain, shown to the policy."""

    problem: str
    workflow: str


#: A problem of each domain, and the shapes that show most of what a workflow can be, the best first.
_EXAMPLES: Mapping[Domain, tuple[str, tuple[str, ...]]] = {
    "math": (
        "A baker packs 12 boxes of 8 rolls and sells three quarters of them. How many rolls are left?",
        ("vote", "answer", "program", "think"),
    ),
    "code": (
        "Write a function that returns the words that occur more than once in a text, sorted.\n"
        "entry_point: repeated_words",
        ("code_test", "code", "think"),
    ),
    "qa": (
        "Context: The Ilse rises near Altdorf and joins the Main at Ochsenfurt.\nQuestion: Where does the Ilse end?",
        ("review", "format", "answer", "think"),
    ),
}


def example(domain: Domain, operators: Collection[str]) -> list[Example]:
    """At most one example of a domain that calls only ``operators``, shown until the experience buffer has better."""
    problem, names = _EXAMPLES[domain]
    usable = [name for name in names if name in shapes_of(operators)]
    return [Example(problem, normalise_code(workflow(SHAPES[name], domain))) for name in usable[:1]]
