"""Generated workflows of many shapes, on which the warm-up trains a policy, so that GRPO has a space to search.

A recipe says how drafts are made (one operator, several samples, an early end if two agree), how they become one answer
(an ensemble) and what follows (format, review and revise, test). ``write`` turns it into code: names, instructions and
idioms may vary with the generator, the order of calls does not.

    source = write(draw("math", rng, OPERATORS), "math", rng)
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.types import Kind
from llm_as_judge.workflow.writing import answer_key, attribute_of, built, called, class_text

_PARTS = plain_yaml(Path(__file__).with_name("recipes.yaml"))
_ANSWERS = ("answer", "solution", "result", "final")
_SEVERAL_DRAFTS = ("drafts", "solutions", "candidates")
#: Share of attributes that have their operator's name, by which a small model learns the operator's arguments first.
_NAMED_ALIKE = 0.7
#: Factor by which each further operator makes a recipe rarer.
_RARER = 3.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """``samples`` drafts by ``draft``, joined by ``ensemble``; with ``early_end``, two equal ones end the workflow."""

    draft: str
    samples: int = 1
    ensemble: str = ""
    early_end: bool = False
    after: tuple[str, ...] = ()

    @property
    def following(self) -> tuple[str, ...]:
        """The operators that are called on the answer."""
        return tuple(name for step in self.after for name in ([step, "Revise"] if step == "Review" else [step]))

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators in the order of use."""
        return tuple(dict.fromkeys(filter(None, (self.draft, self.ensemble, *self.following))))


def recipes(domain: Kind, operators: Collection[str]) -> Iterator[Recipe]:
    """Yield every recipe for ``domain`` that needs only ``operators``."""
    ensembles = ("ScEnsemble", "MdEnsemble")
    for draft, after in itertools.product(_PARTS["drafts"][domain], map(tuple, _PARTS["after"][domain])):
        several = itertools.product((2, 3, 4, 5), ensembles)
        made = [Recipe(draft, after=after), *(Recipe(draft, *each, after=after) for each in several)]
        made += [Recipe(draft, 3, ensemble, early_end=True, after=after) for ensemble in ensembles]
        yield from (recipe for recipe in made if set(recipe.operators) <= set(operators))


def draw_recipe(domain: Kind, rng: Random, operators: Collection[str]) -> Recipe:
    """Draw a random recipe: every operator after the first draft, except Test, makes it ``_RARER`` times as rare.

    There are few short recipes and many long ones, but a small policy learns the short ones first and rarely writes
    what it has seldom seen; GRPO then finds sooner which draft pays if little else varies. Test is exempt because two
    domains of three do without it, and a policy that rarely tests unlearns it.
    """
    known = list(recipes(domain, operators))
    alike = Counter(bool(recipe.ensemble) for recipe in known)
    further = [bool(recipe.ensemble) + sum(name != "Test" for name in recipe.following) for recipe in known]
    odds = [1 / alike[bool(recipe.ensemble)] / _RARER**more for recipe, more in zip(known, further, strict=True)]
    return rng.choices(known, odds)[0]


def write(
    recipe: Recipe, domain: Kind, rng: Random, *, varied: float = 1.0, one_instruction: bool = False,
    class_first: bool = False, executors: Sequence[str] = (),
) -> str:  # fmt: skip
    """Write ``recipe`` as a workflow for ``domain``, with probability ``varied`` with random names and idioms.

    ``one_instruction``: the first, not a random one; ``class_first``: imports are inside the class. If ``executors``
    can be named, every operator asks a random one of them or the default.
    """
    vary = rng.random() < varied
    attribute = {}
    for name in recipe.operators:
        alike = not vary or rng.random() < _NAMED_ALIKE
        attribute[name] = attribute_of(name) if alike else rng.choice(_PARTS["attributes"][name])
    answer, drafts = (rng.choice(names) if vary else names[0] for names in (_ANSWERS, _SEVERAL_DRAFTS))
    instructions = _PARTS["instructions"][domain]
    instruction = repr(instructions[0] if one_instruction else rng.choice(instructions))

    def call(name: str) -> str:
        values = {
            "instruction": instruction, "analysis": "'None'", "solution": answer, "solutions": drafts,
            "entry_point": "entry_point", "feedback": "review['feedback']",
        }  # fmt: skip
        return called(attribute[name], OPERATORS[name], values)

    def taken(name: str) -> str:
        return f"{answer} = (await {call(name)})['{answer_key(OPERATORS[name])}']"

    idioms = _PARTS["one" if recipe.samples == 1 else "early_end" if recipe.early_end else "several"]
    idiom = idioms[len(idioms) > 1 and vary and rng.random() < 0.5]
    key = answer_key(OPERATORS[recipe.draft])
    parts = [idiom.format(answer=answer, drafts=drafts, draft=call(recipe.draft), key=key, samples=recipe.samples)]
    if recipe.early_end:
        drafts = "[first, second, third]"
    if recipe.ensemble:
        parts.append(taken(recipe.ensemble))
    for step in recipe.after:
        if step == "Review":
            parts.append(f"review = await {call('Review')}\nif not review['review_result']:\n    {taken('Revise')}")
        else:
            parts.append(taken(step))
    parts.append(f"return {answer}, 0.0")
    imported = any("asyncio" in part for part in parts)
    if imported and class_first:
        parts.insert(0, "import asyncio")
    asked = {name: rng.choice(["", *executors]) if executors else "" for name in recipe.operators}
    setup = (built(attribute[name], name, asked[name]) for name in recipe.operators)
    text = class_text(setup, "\n".join(parts), domain == "code")
    return f"import asyncio\n\n{text}" if imported and not class_first else text
