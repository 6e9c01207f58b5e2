"""The digest of a configuration does not depend on where its files are, only on their content."""

import shutil
from pathlib import Path

import pytest

from llm_as_judge.config.identity import _END, content_of, identity
from llm_as_judge.config.loading import load_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    (folder / "model/model.safetensors").write_bytes(b"weights")
    (folder / "rewards.py").write_text("def f(completions, **kw): ...\n")
    (folder / "train.jsonl").write_text('{"problem": "1 + 1?", "answer": "2", "type": "math"}\n')
    return folder


def identity_of(folder: Path, *more: str) -> str:
    files = [f"train_dataset={folder}/train.jsonl", f"model_name={folder}/model"]
    own = f"functions={{'{folder}/rewards.py:f': 0.5}}"
    return identity(load_config(folder / "config/embedded.yaml", [*files, own, *more]))


def test_a_moved_checkout_has_the_same_identity(checkout: Path, tmp_path: Path) -> None:
    before = identity_of(checkout)
    elsewhere = checkout.rename(tmp_path / "there")
    assert identity_of(elsewhere) == before
    reached = ("executor.base_url=http://127.0.0.1:1/v1", "judge.api_key=sk-other", "results_dir=x", "cache=c.sqlite",
               "max_hours=1")  # fmt: skip
    assert identity_of(elsewhere, *reached) == before


def test_a_changed_file_or_setting_changes_the_identity(checkout: Path) -> None:
    found = {identity_of(checkout)}
    settings = ("seed=1", "executor.model=other", "lora_rank=3", "functions={}")
    found |= {identity_of(checkout, setting) for setting in settings}
    files = ("config/guidance.yaml", "config/operator_descriptions/nano.yaml", "model/model.safetensors",
             "model/config.json", "rewards.py", "train.jsonl")  # fmt: skip
    for file in files:
        with open(checkout / file, "a") as changed:
            changed.write("\n")
        found.add(identity_of(checkout))
    assert len(found) == 1 + len(settings) + len(files)


def test_a_large_file_is_identified_by_its_ends_and_its_size(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    found = set()
    for place in (None, 0, -1):
        data = bytearray(2 * _END + 10)
        if place is not None:
            data[place] = 1
        path.write_bytes(data)
        found.add(content_of(path))
    path.write_bytes(bytes(2 * _END + 11))
    assert len(found | {content_of(path)}) == 4
