"""Settings of data sets, and downloads: mistakes are named, files are complete or none, nothing is fetched twice."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.samples import write_lines
from helpers.tables import tables
from pydantic import ValidationError

from llm_as_judge.commands.doctor import checks_of, run_check
from llm_as_judge.config.loading import load_config
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.dataset import Source
from llm_as_judge.data.download import download, fetch_from_hub
from llm_as_judge.data.process import Job, process
from llm_as_judge.data.settings import Mix, load_settings, raw_files, splits_there
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.files import sha256_of

TABLES = tables(__file__)


def test_the_shipped_file_has_the_defaults_and_every_mistake_is_named(tmp_path: Path, root: Path) -> None:
    assert load_settings() == Mix()
    path, shipped, wrong = tmp_path / "dataset.yaml", (root / "config/dataset.yaml").read_text(), []
    for old, new, expected in [*TABLES["wrong settings"], (shipped, "mix: text", "mix = 'text'")]:
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


GSM8K = [{"question": f"{i} + {i}?", "answer": f"#### {2 * i}"} for i in range(30)]


class Hub:
    """A fake of the library: rows by (id, configuration, split), and the list of requests."""

    def __init__(self, failing: str = "") -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.failing = failing

    def __call__(self, hub_id: str, config: str, split: str) -> list[dict[str, Any]]:
        self.asked.append((hub_id, config, split))
        if self.failing and self.failing in hub_id:
            raise DataError("ConnectionError: x")
        if "math" in hub_id:
            return [{"problem": f"{config} {i}", "solution": rf"\boxed{{{i}}}"} for i in range(3)]
        return GSM8K


def test_missing_files_are_written_and_reported_and_every_configuration_is_joined(tmp_path: Path) -> None:
    seen = list[tuple[str, int, int]]()
    report = download(tmp_path, ["gsm8k", "math"], fetch=Hub(), progress=lambda *step: seen.append(step))
    assert set(report["files"]) == {"gsm8k/train.jsonl", "gsm8k/test.jsonl", "math/train.jsonl", "math/test.jsonl"}
    for name, facts in report["files"].items():
        assert facts["sha256"] == sha256_of(tmp_path / name)
        assert facts["lines"] == (tmp_path / name).read_bytes().count(b"\n")
    assert report["files"]["math/train.jsonl"]["lines"] == 21  # seven subjects of three
    assert ("gsm8k train", 30, 30) in seen
    (tmp_path / "humaneval").mkdir()
    (tmp_path / "humaneval/HumanEval.jsonl.gz").write_bytes(b"")  # put there by hand
    hub = Hub()
    assert download(tmp_path, ["gsm8k", "humaneval"], fetch=hub) == {"files": {}} and hub.asked == []


def test_a_transfer_that_fails_leaves_no_file_and_says_what_to_do(tmp_path: Path) -> None:
    class Short(list[Any]):
        interrupt = False

        def __iter__(self) -> Iterator[Any]:
            yield from GSM8K[:10]
            if self.interrupt:
                raise KeyboardInterrupt

    rows = Short(GSM8K)
    for given, message in (
        (rows, "promised 30 records and gave 10"), ([{"q": 1}], "field 'question' must be"), ([], "no records"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            download(tmp_path, ["gsm8k"], fetch=lambda *_, given=given: given)
    rows.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        download(tmp_path, ["gsm8k"], fetch=lambda *_: rows)
    assert not (tmp_path / "gsm8k/train.jsonl").exists()
    with pytest.raises(DataError) as caught:
        download(tmp_path, ["gsm8k", "squad2", "humaneval"], fetch=Hub("squad_v2"))
    shown = str(caught.value)
    assert shown.startswith("squad2: not fetched: ConnectionError: x\n")
    place = f"put these files into {tmp_path} by hand"
    for words in (place, f"{tmp_path}/squad2/train-v2.0.json", "HumanEval.jsonl.gz", "github.com/openai/human-eval"):
        assert words in shown
    assert "gsm8k, train" not in shown


def test_missing_data_a_missing_network_and_a_missing_library_have_cures(
    here: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(here / "hub"))
    shown = cli.refused("data", "download", "--datasets", "humaneval")
    assert "humaneval: not fetched" in shown and "by hand" in shown
    assert "llm-as-judge data download" in cli.refused("data", "check")
    check = run_check("data", checks_of(load_config("config/training.yaml"))["data"])
    assert not check.ok and "llm-as-judge data download" in check.detail
    monkeypatch.setitem(sys.modules, "datasets", None)
    shown = cli.refused("data", "download", "--datasets", "gsm8k")
    assert "datasets library is not installed" in shown and "again later" not in shown
    assert "put these files into" in shown


def test_the_real_library_reads_a_hub_and_it_is_processed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets.load", reason="the datasets library is an extra: pip install 'llm-as-judge[data]'")
    hub = tmp_path / "hub"
    for split in ("train", "test"):
        write_lines(hub / f"{split}.jsonl", GSM8K)
    (hub / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - {split: train, path: train.jsonl}\n"
        "  - {split: test, path: test.jsonl}\n---\n"
    )
    dataset = DATASETS["gsm8k"]
    local = dataset.source.model_copy(update={"hub": str(hub)})
    monkeypatch.setitem(DATASETS, "gsm8k", replace(dataset, source=local))
    mix = load_settings(None, {"datasets": ["gsm8k"], "train_size": 20, "test_size": 5})
    report = download(tmp_path / "raw", ["gsm8k"], fetch=fetch_from_hub)
    assert [facts["lines"] for facts in report["files"].values()] == [30, 30]
    info = process(Job(mix, tmp_path / "raw", tmp_path / "out"))
    assert (info["datasets"]["gsm8k"]["train"], info["datasets"]["gsm8k"]["test"]) == (25, 5)
    with pytest.raises(DataError, match="Error"):
        fetch_from_hub(str(tmp_path / "nowhere"), "main", "train")
