"""The section ``data``: files of problems, the user's own domains, and shares in a batch."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from llm_as_judge.config.fields import Float, Free, InputPath, Strict, fill_shares
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import DOMAINS, Domain, Like, Question


class DomainConfig(Strict):
    """A domain of the user's own."""

    answer: Literal["text", "number", "choice", "code"] = "text"
    guidance: str = ""

    @property
    def like(self) -> Like:
        kinds: Mapping[str, Like] = {"number": "math", "code": "code", "text": "qa", "choice": "choice"}
        return kinds[self.answer]


class DataConfig(Strict):
    _FILES: ClassVar = ("train_dataset", "val_dataset", "test_dataset")
    train_dataset: InputPath | None = Field(
        None, description="Training problems: .jsonl, .json, .csv, .parquet, .arrow, hub:owner/name; null: generated."
    )
    val_dataset: InputPath | None = Field(None, description="Validation problems, in the same forms.")
    test_dataset: InputPath | None = Field(None, description="Test problems, in the same forms.")
    fields: Mapping[str, str] = Field(
        {}, description="Paths of problem, answer ... in records, such as prompt.0.content; empty: recognised."
    )
    domains: Mapping[str, DomainConfig] = Field(
        {},
        description="Your own domains by name: answer (text, number, choice or code), guidance (a line of the prompt).",
    )
    domain_ratios: Mapping[Domain, Float] = Field(
        {"math": 0.4, "code": 0.3, "qa": 0.3},
        description="Share of each domain in a batch, 0 for those not named; they sum to 1.",
    )
    eval_problems: Free[int] = Field(150, gt=0, le=1_000_000, description="Problems evaluated, in the file's shares.")
    max_problems: int | None = Field(None, gt=0, description="Maximum number of training problems; null = all.")

    @property
    def known(self) -> tuple[Domain, ...]:
        """All domains, the built-in ones first."""
        return (*DOMAINS, *self.domains)

    def like(self, domain: str) -> Like | None:
        """Look up what a domain's answers are like; None if built in. Raises ``ConfigError`` for an unknown one."""
        if domain not in self.known:
            known = ", ".join(self.known)
            raise ConfigError(f"domain {domain!r} is unknown; use one of {known}, or add it to data.domains")
        return self.domains[domain].like if domain in self.domains else None

    def question(self, source: str, text: str, domain: str, entry_point: str | None = None, **more: Any) -> Question:
        """Make the user's question. Raises ``ConfigError`` or ``DataError`` if it is empty or lacks what it needs."""
        like = self.like(domain)
        if not text.strip():
            raise DataError("the problem is empty; give its text")
        if (like or domain) == "code" and not entry_point:
            raise DataError(f"domain {domain!r} needs the function to write: entry_point (--entry-point NAME)")
        return Question(source, text, domain, entry_point=entry_point, like=like, **more)

    @property
    def generated(self) -> bool:
        """Whether the problems are generated ones of the embedded world."""
        return self.train_dataset is None

    @field_validator("domains")
    @classmethod
    def _new_names(cls, domains: Mapping[str, DomainConfig]) -> Mapping[str, DomainConfig]:
        for name in domains:
            if name in DOMAINS or not re.fullmatch(r"[^\W\d_][\w-]*", name):
                raise ValueError(f"{name!r} cannot be a domain of your own: use a new name of letters, digits, - and _")
        return domains

    @field_validator("domain_ratios")
    @classmethod
    def _all_domains(cls, ratios: Mapping[Domain, float], info: ValidationInfo) -> Mapping[Domain, float]:
        known = [*DOMAINS, *info.data.get("domains", ratios)]  # those in fault have a message of their own
        if unknown := [name for name in ratios if name not in known]:
            raise ValueError(f"there is no domain {unknown[0]!r}; there are {', '.join(known)} (add it: data.domains)")
        return fill_shares("domain_ratios", ratios, known)

    @model_validator(mode="after")
    def _consistent(self) -> "DataConfig":
        named = [name for name in self._FILES if getattr(self, name) is not None]
        if named and self.generated:
            raise ValueError(
                f"{', '.join(named)} means files, but train_dataset is not set; set it to a JSONL file "
                "(to evaluate only: evaluate --data FILE)"
            )
        places = {name: Path(getattr(self, name)).resolve() for name in named}
        for name in named[1:]:
            if places[name] == places[named[0]]:
                raise ValueError(
                    f"{named[0]} and {name} are the same file, {places[name]}: the policy would be measured on its "
                    "training problems; split it: llm-as-judge data process --datasets none --custom FILE"
                )
        return self
