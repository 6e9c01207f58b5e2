"""``config/dataset.yaml``, how benchmarks are mixed, and the places of raw files."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from llm_as_judge.config.fields import Float, Names, Strict, as_tuple
from llm_as_judge.config.loading import explain
from llm_as_judge.config.registry import did_you_mean
from llm_as_judge.config.sources import Setting, find_file, plain_yaml
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Source
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import Domain


def sources_of(names: Collection[str]) -> dict[str, Source]:
    """Read the sources of datasets. Raises ``ConfigError`` for an unknown name."""
    for name in names:
        if name not in DATASETS:
            raise ConfigError(f"no dataset {name!r}: {did_you_mean(name, DATASETS)}there are {', '.join(DATASETS)}")
    return {name: DATASETS[name].source for name in names}


class Mix(Strict):
    """Which datasets are mixed, in which shares and sizes."""

    datasets: Names = ("gsm8k", "math", "squad2", "hotpotqa", "humaneval", "mbpp")
    domain_ratios: Mapping[Domain, Float] = {"math": 0.4, "qa": 0.3, "code": 0.3}
    train_test: Annotated[tuple[int, int], BeforeValidator(as_tuple)] = (5, 1)
    train_size: int = Field(160_000, gt=0, le=10_000_000)
    test_size: int = Field(32_000, gt=0, le=10_000_000)
    val_fraction: Float = Field(0.0, ge=0, lt=1)
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> "Mix":
        if min(self.train_test) < 1:
            raise ValueError(f"train_test must be two whole numbers > 0, got {list(self.train_test)}")
        if any(ratio < 0 for ratio in self.domain_ratios.values()) or not sum(self.domain_ratios.values()):
            raise ValueError(f"domain_ratios must be >= 0 and not all 0, got {dict(self.domain_ratios)}")
        sources_of(self.datasets)
        return self


class _File(Strict):
    mix: Mix = Mix()


def load_settings(path: Path | None = None, changes: Mapping[str, Any] | None = None) -> Mix:
    """Load the settings of ``path``, by default of ``dataset.yaml`` in ./config, else of the one shipped with the
    package. ``changes`` replace values of ``mix``, except by None.

    Raises ``ConfigError`` that names every wrong setting.
    """
    path = find_file(path or Path("config/dataset.yaml"))
    tree = plain_yaml(path)
    wanted = {name: value for name, value in (changes or {}).items() if value is not None}
    if isinstance(tree, dict) and isinstance(mix := tree.get("mix", {}), dict):
        tree["mix"] = {**mix, **wanted}
    try:
        return _File.model_validate(tree).mix
    except ValidationError as error:
        given = {f"mix.{name}": Setting(value, f"the option for {name}") for name, value in wanted.items()}
        raise ConfigError(explain(error, str(path), given)) from None


def raw_files(raw: Path, name: str, source: Source, split: str) -> list[Path]:
    """Find the files of one split, downloaded or released, sorted. Raises ``DataError`` naming the missing files."""
    if files := _files(raw, name, source, split):
        return files
    raise DataError(
        f"{name}: split {split!r} is not in {raw}. Run llm-as-judge data download --datasets {name}, or put there "
        f"by hand {release_places(raw, source, split)}"
    )


def release_places(raw: Path, source: Source, split: str) -> str:
    """Say where the published files of a split belong, and where they are published."""
    return " or ".join(str(raw / pattern) for pattern in source.splits[split].release) + f" (from {source.page})"


def splits_there(raw: Path, name: str, source: Source) -> list[str]:
    return [split for split in source.splits if _files(raw, name, source, split)]


def _files(raw: Path, name: str, source: Source, split: str) -> list[Path]:
    patterns = (f"{name}/{split}.jsonl", *source.splits[split].release)
    matches = (sorted(path for path in raw.glob(pattern) if path.is_file()) for pattern in patterns)
    return next(filter(None, matches), [])
