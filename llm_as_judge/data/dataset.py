"""``Dataset``, the entry of one benchmark: its fields hold everything that differs between datasets.

Each file in ``benchmarks/`` ends with its entry, and ``catalog.DATASETS`` lists them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, model_validator

from llm_as_judge.answers.metrics import Metric
from llm_as_judge.config.fields import Names, Strict
from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.data.record import Record
from llm_as_judge.types import Kind, Problem


class Split(Strict):
    """One split: its name on the Hugging Face hub (``a+b`` joins two) and its release files.

    ``release`` holds patterns relative to the raw folder; the first pattern with matches is used.
    """

    hub: str
    release: Names = Field(min_length=1)


class Source(Strict):
    """Where a benchmark's raw files come from, and which splits are used.

    ``pool``: splits that are pooled and split anew. ``official``: the published ``train`` and ``test`` splits; names
    that are not in ``splits`` are those of ``Dataset.split_of``.
    """

    hub: str
    configs: Names = Field(("default",), min_length=1)
    page: str = Field(pattern=r"^https?://")
    splits: Mapping[str, Split] = Field(min_length=1)
    pool: Names = Field(("train",), min_length=1)
    official: Mapping[str, str] = {"train": "train", "test": "test"}

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, given: dict[str, Any]) -> dict[str, Any]:
        alone = {"pool": ["test"], "official": {"test": "test"}} if [*given.get("splits", ())] == ["test"] else {}
        return {"page": f"https://huggingface.co/datasets/{given.get('hub')}", **alone, **given}

    @model_validator(mode="after")
    def _consistent(self) -> "Source":
        unknown = sorted({*self.pool} - {*self.splits})
        if unknown:
            raise ValueError(f"pool names {', '.join(unknown)}, but splits has {', '.join(self.splits)}")
        if set(self.official) - {"train", "test"} or "test" not in self.official:
            raise ValueError(f"official must give test and may give train, got {dict(self.official)}")
        return self

    @property
    def pools_test_problems(self) -> bool:
        """Whether the pooled splits contain published test problems."""
        test = self.official["test"]
        return test in self.pool or test not in self.splits


_FOUND = plain_yaml(Path(__file__).with_name("benchmarks") / "sources.yaml")
#: The sources of the package's benchmarks.
SOURCES: Mapping[str, Source] = TypeAdapter(Mapping[str, Source]).validate_python(_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One benchmark.

    ``parse`` turns a raw record into a problem, ``golds`` gives replies that must all be judged correct; both raise
    ``DataError`` with the reason. ``recognises`` identifies the benchmark's raw records by their fields. ``judge_line``
    is the LLM judge's rule for what counts as equal. ``variant`` names the benchmark of a record of this form: "" for
    this one, ``OTHER`` if it is not known. ``split_of`` gives the published split of a record if one release
    file holds several.
    """

    domain: Kind
    parse: Callable[[Record], Problem]
    golds: Callable[[Record], tuple[str, ...]]
    recognises: Callable[[Record], bool]
    source: Source
    metric: Metric = "accuracy"
    judge_line: str = ""
    split_of: Callable[[Record], str] | None = None
    variant: Callable[[Record], str] = lambda record: ""


#: Variant of a record in the form of a benchmark whose own records have something that it lacks.
OTHER = "?"


def has_fields(*names: str) -> Callable[[Record], bool]:
    """Return a predicate for records that have all of ``names``."""
    return lambda record: set(names) <= record.keys()


def derived(entry: Dataset, name: str, recognises: Callable[[Record], bool], **changes: Any) -> Dataset:
    """Return the entry of a benchmark whose records have the form of another's."""

    def parse(record: Record) -> Problem:
        problem = entry.parse(record)
        id_ = f"{name}/{problem.question.id.partition('/')[2]}"
        return replace(problem, question=replace(problem.question, id=id_, dataset=name))

    changes = {"variant": lambda record: "", "source": SOURCES[name], "split_of": None, **changes}
    return replace(entry, parse=parse, recognises=recognises, **changes)
