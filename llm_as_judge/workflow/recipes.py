"""Generated workflows of many shapes: what the warm-up teaches a policy, so that training has a space to search.

A recipe says how drafts are made (one operator, several samples, an early end if two agree), how they become one answer
(an ensemble) and what follows (format, review and revise, test). ``write`` puts it into code: names, instructions and
idioms may vary with the generator, the order of calls does not.

    source = write(draw("math", rng, OPERATORS), "math", rng)
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.types import Domain
from llm_as_judge.workflow.structure import shape

Draft = Literal["Custom", "AnswerGenerate", "Programmer", "CustomCodeGenerate"]
Ensemble = Literal["ScEnsemble", "MdEnsemble"]
After = Literal["Format", "Review", "Test"]

_DRAFTS: dict[Domain, tuple[Draft, ...]] = {
    "math": ("Custom", "AnswerGenerate", "Programmer"),
    "code": ("CustomCodeGenerate", "Custom"),
    "qa": ("Custom", "AnswerGenerate"),
}
_AFTER: dict[Domain, tuple[tuple[After, ...], ...]] = {
    "math": ((), ("Format",), ("Review",), ("Review", "Format")),
    "code": ((), ("Test",), ("Review",), ("Review", "Test"), ("Test", "Review")),
    "qa": ((), ("Format",), ("Review",), ("Review", "Format")),
}
_KEYS = {"Custom": "response", "AnswerGenerate": "answer", "Programmer": "output", "CustomCodeGenerate": "response"}
_KEYS |= {"ScEnsemble": "response", "MdEnsemble": "solution", "Format": "response", "Test": "solution"}
_INSTRUCTIONS: dict[Domain, tuple[str, ...]] = {
    "math": (
        "Solve the problem step by step, then give the final number.",
        "Think carefully and end with the result alone.",
        "Write down what is known, then work out what is asked.",
        "Give only the final answer.",
    ),
    "code": (
        "Write a complete function of the given name.",
        "Mind empty and extreme inputs.",
        "Return only Python code.",
        "Choose a simple solution that is certainly right.",
    ),
    "qa": (
        "Answer in the fewest words that the context supports.",
        "Find the sentence that answers the question, then answer.",
        "Give only the answer.",
        "Choose the best answer and give nothing else.",
    ),
}
_ATTRIBUTES = {
    "Custom": ("custom", "ask", "model"),
    "AnswerGenerate": ("answer_generate", "answerer", "solver"),
    "Programmer": ("programmer", "calculate"),
    "CustomCodeGenerate": ("custom_code_generate", "coder", "code_generate"),
    "ScEnsemble": ("sc_ensemble", "vote", "ensemble"),
    "MdEnsemble": ("md_ensemble", "elect"),
    "Format": ("format", "formatter"),
    "Review": ("review", "critic"),
    "Revise": ("revise", "editor"),
    "Test": ("test", "tester"),
}
#: Share of attributes that have their operator's name, by which a small model learns the operator's arguments first.
_NAMED_ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class Recipe:
    """``samples`` drafts by ``draft``. Several are joined by ``ensemble``; with ``early_end``, two equal drafts end the
    workflow.
    """

    draft: Draft
    samples: int = 1
    ensemble: Ensemble | None = None
    early_end: bool = False
    after: tuple[After, ...] = ()

    @property
    def following(self) -> tuple[str, ...]:
        """The operators that are called on the answer."""
        after = (["Review", "Revise"] if step == "Review" else [step] for step in self.after)
        return tuple(itertools.chain.from_iterable(after))

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators in the order of use."""
        named = [self.draft, *([self.ensemble] if self.ensemble else []), *self.following]
        return tuple(dict.fromkeys(named))


def recipes(domain: Domain, operators: Collection[str]) -> Iterator[Recipe]:
    """Every recipe for ``domain`` that needs only ``operators``."""
    ensembles: tuple[Ensemble, ...] = ("ScEnsemble", "MdEnsemble")
    for draft, after in itertools.product(_DRAFTS[domain], _AFTER[domain]):
        made = [Recipe(draft, after=after)]
        for samples, ensemble in itertools.product((2, 3, 4, 5), ensembles):
            made.append(Recipe(draft, samples, ensemble, after=after))
        made += [Recipe(draft, 3, ensemble, early_end=True, after=after) for ensemble in ensembles]
        yield from (recipe for recipe in made if set(recipe.operators) <= set(operators))


def edits(recipe: Recipe, domain: Domain, operators: Collection[str]) -> list[Recipe]:
    """Every recipe that differs from ``recipe`` in one part: the draft, the way drafts become one, or what follows."""

    def parts(one: Recipe) -> tuple[object, ...]:
        return one.draft, (one.samples, one.ensemble, one.early_end), one.after

    def differences(other: Recipe) -> int:
        return sum(a != b for a, b in zip(parts(other), parts(recipe), strict=True))

    return [other for other in recipes(domain, operators) if differences(other) == 1]


def draw(domain: Domain, rng: Random, operators: Collection[str]) -> Recipe:
    """A random recipe: half of them with one draft, and each following operator except Test halves the odds.

    There are few short recipes and many long ones, but a small policy learns from the short ones first and hardly tries
    what it has seen once in a hundred times. Test is exempt because two domains of three do without it, and a policy
    that rarely tests unlearns it.
    """
    known = list(recipes(domain, operators))
    single = sum(recipe.samples == 1 for recipe in known)
    share = {True: 1 / max(1, single), False: 1 / max(1, len(known) - single)}
    untested = [sum(name != "Test" for name in recipe.following) for recipe in known]
    odds = [share[recipe.samples == 1] * 0.5**more for recipe, more in zip(known, untested, strict=True)]
    return rng.choices(known, odds)[0]


def write(recipe: Recipe, domain: Domain, rng: Random, *, varied: float = 1.0, class_first: bool = False) -> str:
    """``recipe`` as a workflow for problems of ``domain``.

    Args:
        varied: probability of random names and idioms; otherwise the first of each is used.
        class_first: put imports inside the class.
    """
    return _Writer(recipe, domain, rng, rng.random() < varied).text(class_first=class_first)


@cache
def known_shapes(domain: Domain) -> frozenset[str]:
    """Every shape that ``write`` gives; a policy invented any other."""
    return frozenset(shape(write(recipe, domain, Random(0))) for recipe in recipes(domain, OPERATORS))


class _Writer:
    def __init__(self, recipe: Recipe, domain: Domain, rng: Random, varied: bool) -> None:
        self.recipe, self.domain, self.rng, self.varied = recipe, domain, rng, varied
        self.attribute = {name: self._attribute(name) for name in recipe.operators}
        self.answer = self._any("answer", "solution", "result", "final")
        self.drafts = self._any("drafts", "solutions", "candidates")

    def _any(self, first: str, *others: str) -> str:
        return self.rng.choice((first, *others)) if self.varied else first

    def _attribute(self, operator: str) -> str:
        plain, *others = _ATTRIBUTES[operator]
        return plain if not self.varied or self.rng.random() < _NAMED_ALIKE else self.rng.choice(others)

    def _other_idiom(self) -> bool:
        return self.varied and self.rng.random() < 0.5

    def text(self, *, class_first: bool) -> str:
        code = self.domain == "code"
        body = [*self._draft_lines(), *(line for step in self.recipe.after for line in self._after_lines(step))]
        parameters = "problem: str, entry_point: str" if code else "problem: str"
        imports = ["import asyncio", ""] if any("asyncio" in line for line in body) else []
        if imports and class_first:
            imports, body = [], ["import asyncio", *body]
        built = [f"        self.{self.attribute[name]} = operator.{name}(self.llm)" for name in self.recipe.operators]
        return "\n".join(
            (
                *imports,
                "class Workflow:",
                "    def __init__(self, name: str, llm_config, dataset):",
                "        self.llm = create_llm_instance(llm_config)",
                *built,
                "",
                f"    async def __call__(self, {parameters}):",
                *(f"        {line}" for line in body),
                f"        return {self.answer}, 0.0",
            )
        )

    def _call(self, name: str) -> str:
        """The draft's call, without await."""
        instruction = repr(self.rng.choice(_INSTRUCTIONS[self.domain]))
        arguments = {
            "Custom": f"input=problem, instruction={instruction}",
            "AnswerGenerate": "input=problem",
            "Programmer": "problem=problem, analysis='None'",
            "CustomCodeGenerate": f"problem=problem, entry_point=entry_point, instruction={instruction}",
        }[name]
        return f"self.{self.attribute[name]}({arguments})"

    def _draft_lines(self) -> list[str]:
        recipe, key = self.recipe, _KEYS[self.recipe.draft]
        call = self._call(recipe.draft)
        if recipe.samples == 1:
            if self._other_idiom():
                return [f"draft = await {call}", f"{self.answer} = draft['{key}']"]
            return [f"{self.answer} = (await {call})['{key}']"]
        if recipe.early_end:
            drafted = f"(await {call})['{key}']"
            return [
                f"first = {drafted}",
                f"second = {drafted}",
                "if first == second:",
                "    return first, 0.0",
                f"third = {drafted}",
                *self._joined("[first, second, third]"),
            ]
        if self._other_idiom():
            return [
                f"replies = await asyncio.gather(*[{call} for _ in range({recipe.samples})])",
                f"{self.drafts} = [reply['{key}'] for reply in replies]",
                *self._joined(self.drafts),
            ]
        return [
            f"{self.drafts} = []",
            f"for _ in range({recipe.samples}):",
            f"    draft = await {call}",
            f"    {self.drafts}.append(draft['{key}'])",
            *self._joined(self.drafts),
        ]

    def _joined(self, drafts: str) -> list[str]:
        ensemble = self.recipe.ensemble
        assert ensemble is not None, "several drafts need an ensemble"
        call = f"await self.{self.attribute[ensemble]}(solutions={drafts}, problem=problem)"
        return [f"{self.answer} = ({call})['{_KEYS[ensemble]}']"]

    def _after_lines(self, step: After) -> list[str]:
        attribute, answer = self.attribute, self.answer
        if step == "Review":
            revise = f"self.{attribute['Revise']}(problem=problem, solution={answer}, feedback=review['feedback'])"
            return [
                f"review = await self.{attribute['Review']}(problem=problem, solution={answer})",
                "if not review['review_result']:",
                f"    {answer} = (await {revise})['solution']",
            ]
        entry = ", entry_point=entry_point" if step == "Test" else ""
        call = f"await self.{attribute[step]}(problem=problem, solution={answer}{entry})"
        return [f"{answer} = ({call})['{_KEYS[step]}']"]
