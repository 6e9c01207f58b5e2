"""The problems a run trains on and is measured on: generated ones, or those of the files that the user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llm_as_judge.config.schema import Config
from llm_as_judge.data.files import check_whole
from llm_as_judge.data.sampler import DomainSampler
from llm_as_judge.data.settings import field_spellings
from llm_as_judge.datasets.load import load_file
from llm_as_judge.embedded.tasks.generate import Split
from llm_as_judge.embedded.tasks.generate import problems as generated
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import DOMAINS, Domain, Problem

#: Different problems of each domain that an embedded run draws from.
_EMBEDDED_POOL = 400
_EMBEDDED_VALIDATION = 60


def training_sampler(config: Config) -> DomainSampler:
    """Training problems in the configured ratios."""
    data = config.data
    if data.source == "embedded":
        pools = _generated(config, "train", min(data.max_problems or _EMBEDDED_POOL, _EMBEDDED_POOL))
    else:
        assert data.train_dataset is not None  # the schema refuses this
        pools = _by_domain(problems_from(data.train_dataset, data.max_problems))
    return DomainSampler(pools, data.domain_ratios, config.training.seed)


def heldout_problems(config: Config) -> list[Problem]:
    """``data.eval_problems`` held-out problems in the configured ratios, the same in every run."""
    data = config.data
    if data.source == "embedded":
        pools = _generated(config, "heldout", data.eval_problems)
        return DomainSampler(pools, data.domain_ratios).sample(data.eval_problems)
    if data.test_dataset is None:
        raise ConfigError("data.test_dataset is not set; name a JSONL file of held-out problems")
    return problems_from(data.test_dataset, data.eval_problems)


def validation_problems(config: Config) -> list[Problem]:
    """What ``training.eval_every`` measures on: never the held-out problems of the final report."""
    data = config.data
    if data.source == "embedded":
        pools = _generated(config, "train", _EMBEDDED_VALIDATION, seed=1)
        return DomainSampler(pools, data.domain_ratios).sample(_EMBEDDED_VALIDATION)
    if data.val_dataset is None:
        raise ConfigError("training.eval_every needs data.val_dataset; name a JSONL file, or set eval_every=0")
    return problems_from(data.val_dataset, data.eval_problems)


def problems_from(path: Path, limit: int | None = None) -> list[Problem]:
    """Problems of a file the user names, its fields spelt as config/dataset.yaml allows.

    Raises ``DataError``, also where the file is of a ``data process`` that broke off.
    """
    check_whole(path)
    return load_file(path, limit, field_spellings())


def _generated(config: Config, split: Split, n: int, seed: int = 0) -> dict[Domain, Sequence[Problem]]:
    return {d: generated(d, split, n, seed=seed) for d in DOMAINS if config.data.domain_ratios[d] > 0}


def _by_domain(problems: Sequence[Problem]) -> dict[Domain, Sequence[Problem]]:
    return {d: [p for p in problems if p.question.domain == d] for d in DOMAINS}
