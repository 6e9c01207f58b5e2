"""Sixteen named shapes of a workflow, written out for every domain: the baselines, and what the nano policy writes.

A shape is a draft and an ending. Comments name domain, draft and ending right before their operators are built, because
a very small model needs the name just before the code that depends on it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.types import DOMAINS, Kind
from llm_as_judge.workflow.structure import normalise_code
from llm_as_judge.workflow.writing import answer_key, attribute_of, built, called, class_text

_PARTS = plain_yaml(Path(__file__).with_name("shapes.yaml"))
_DRAFTS: Mapping[str, tuple[str, str]] = _PARTS["drafts"]  # -> attribute and operator
_ENDINGS: Mapping[str, str] = _PARTS["endings"]  # -> body


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
    """List the names of the shapes that call only ``operators``."""
    return [name for name, shape in SHAPES.items() if set(shape.operators.values()) <= set(operators)]


def workflow(shape: Shape, domain: Kind) -> str:
    """Write the shape as a workflow for problems of ``domain``."""
    drafting, *ending = (built(attribute, operator) for attribute, operator in shape.operators.items())
    setup = [f"# {domain}: {shape.draft}", drafting, f"# {shape.ending}", *ending]
    attribute, name = _DRAFTS[shape.draft]
    entry = "entry_point" if domain == "code" else "'solve'"
    draft = called(attribute, OPERATORS[name], {"entry_point": entry, "instruction": "''"})
    body = _ENDINGS[shape.ending].format(draft=draft, field=answer_key(OPERATORS[name]), entry=entry)
    return class_text(setup, body, domain == "code")


def name_of(source: str) -> str:
    """Return the name of the shape that equals ``source`` except for comments and layout, or ``""``."""
    return _named().get(normalise_code(source), "")


@cache
def _named() -> Mapping[str, str]:
    """Map the normalised text of each shape for each domain to its name."""
    return {normalise_code(workflow(shape, kind)): shape.name for shape in SHAPES.values() for kind in DOMAINS}


@dataclass(frozen=True, slots=True)
class Example:
    """A workflow for another problem of the same domain, shown to the policy."""

    problem: str
    workflow: str


def example(domain: Kind, operators: Collection[str]) -> list[Example]:
    """Find an example of a domain that calls only ``operators``, shown until the experience buffer has better."""
    problem, names = _PARTS["examples"][domain]
    usable = [name for name in names if name in shapes_of(operators)]
    return [Example(problem, normalise_code(workflow(SHAPES[name], domain))) for name in usable[:1]]
