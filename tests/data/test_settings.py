"""``config/dataset.yaml`` is strict, and every mistake in it is named."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Source
from llm_as_judge.data.settings import load_settings, raw_files, splits_there
from llm_as_judge.errors import ConfigError, DataError

CONFIG = Path(__file__).parents[2] / "config/dataset.yaml"


def test_the_shipped_file_has_the_defaults_and_a_source_can_be_replaced(tmp_path: Path) -> None:
    settings = load_settings(CONFIG)
    assert settings.fields == {name: tuple(others) for name, others in custom.FIELDS.items()}
    assert (settings.mix.train_size, settings.mix.test_size, settings.mix.train_test) == (160_000, 32_000, (5, 1))
    assert settings.sources(list(DATASETS)) == {name: dataset.source for name, dataset in DATASETS.items()}
    mirror = {**DATASETS["gsm8k"].source.model_dump(mode="json"), "hub": "mirror/gsm8k"}
    path = tmp_path / "dataset.yaml"
    path.write_text(yaml.safe_dump({"datasets": {"gsm8k": mirror}}))
    sources = load_settings(path).sources(["gsm8k", "math"])
    assert sources["gsm8k"].hub == "mirror/gsm8k" and sources["math"] == DATASETS["math"].source


def test_every_mistake_is_named(tmp_path: Path) -> None:
    path, shipped, wrong = tmp_path / "dataset.yaml", CONFIG.read_text(), []
    for old, new, expected in (
        ("train_size: 160000", "train_size: 0", "dataset.yaml: mix.train_size = 0: Input should be greater than 0"),
        ("train_size: 160000", "train_size: 99999999999", "less than or equal to"),
        ("train_size:", "train_sise:", "mix.train_sise"), ("  seed: 0", "  seed: x", "mix.seed = 'x'"),
        ("train_test: [5, 1]", "train_test: [5, 0]", "train_test must be"),
        ("code: 0.3}", "code: -1}", "domain_ratios must be"),
        ("datasets: [gsm8k, ", "datasets: [gsm9k, ", "no dataset 'gsm9k'"),
        ("mix:\n", "datasets: {gsm8k: {}}\nmix:\n", "datasets.gsm8k.hub: Field required"),
        ("  problem: [question]", "  problm: [question]", "fields has 'problm'"),
        ("val_fraction: 0 ", "val_fraction: 1 ", "mix.val_fraction"), (shipped, "mix: text", "mix = 'text'"),
    ):  # fmt: skip
        path.write_text(shipped.replace(old, new))
        with pytest.raises(ConfigError) as caught:
            load_settings(path)
        wrong += [] if expected in str(caught.value) else [(new, str(caught.value))]
    assert not wrong
    source = DATASETS["gsm8k"].source.model_dump()
    for change, reason in (({"pool": ("dev",)}, "pool names dev"), ({"official": {"dev": "test"}}, "must give test")):
        with pytest.raises(ValidationError, match=reason):
            Source.model_validate({**source, **change})


def test_a_downloaded_split_comes_before_a_release_and_the_first_pattern_counts(tmp_path: Path) -> None:
    source = DATASETS["squad2"].source
    with pytest.raises(DataError, match=r"split 'train' is not in .*squad_v2/train-v2\.0\.json"):
        raw_files(tmp_path, "squad2", source, "train")
    for name in ("squad_v2/train-v2.0.json", "squad2/train-v2.0.json", "squad2/train.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        assert raw_files(tmp_path, "squad2", source, "train") == [tmp_path / name]
    assert splits_there(tmp_path, "squad2", source) == ["train"]
