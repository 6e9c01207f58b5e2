"""Training reads what ``data process`` wrote: as mixed, only when whole, with the user's own spellings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from llm_as_judge.config.loading import load_config
from llm_as_judge.data.files import MARKER
from llm_as_judge.data.problems import read_problems
from llm_as_judge.data.process import Job, process
from llm_as_judge.data.settings import load_settings
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.runs.problems import open_problems

ROOT = Path(__file__).parents[2]


def test_the_trainer_draws_the_mix_and_refuses_one_that_is_not_whole(raw: Path, tmp_path: Path) -> None:
    settings = load_settings(ROOT / "config/dataset.yaml", {"train_size": 40, "test_size": 20})
    process(Job(settings, raw, tmp_path, any_split=True))
    files = [f"data.{side}_dataset={tmp_path}/mixed/{side}_mixed.jsonl" for side in ("train", "test")]
    config = load_config(ROOT / "config/embedded.yaml", ["eval_problems=20", *files])
    problems = open_problems(config)
    drawn = problems.sampler.sample(40)
    assert Counter(problem.question.domain for problem in drawn) == {"math": 16, "qa": 12, "code": 12}
    ids = Counter(problem.question.id for problem in drawn)
    assert max(ids.values()) == 1  # no set is small enough to be repeated in 40
    held = problems.heldout
    assert Counter(problem.question.domain for problem in held) == {"math": 8, "qa": 6, "code": 6}
    assert not {problem.question.id for problem in held} & ids.keys()
    (tmp_path / "mixed" / MARKER).touch()
    with pytest.raises(DataError, match="broke off"):
        open_problems(config)


def test_naming_a_training_file_is_enough_to_mean_files(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    records = [{"problem": f"{i}?", "answer": i, "type": domain} for i in range(3) for domain in ("math", "qa")]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    ratios = "domain_ratios={math: 0.5, qa: 0.5, code: 0}"
    config = load_config(ROOT / "config/embedded.yaml", [f"train_dataset={path}", ratios])
    assert config.data.source == "files"
    assert {problem.question.dataset for problem in open_problems(config, measured=False).sampler.sample(4)} == {
        "custom"
    }


def test_files_beside_generated_problems_are_refused_with_the_cure(tmp_path: Path) -> None:
    for named in ("train_dataset", "test_dataset", "val_dataset"):
        with pytest.raises(ConfigError, match=f"source is 'embedded', but {named} names a file; take source out"):
            load_config(ROOT / "config/embedded.yaml", [f"{named}={tmp_path}", "data.source=embedded"])
    with pytest.raises(ConfigError, match=r"test_dataset means files, but train_dataset is not set.*evaluate --data"):
        load_config(ROOT / "config/embedded.yaml", [f"test_dataset={tmp_path}"])


def test_spellings_of_dataset_yaml_hold_in_training_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"instruction": "1 + 1?", "answer": 2, "type": "math"}) + "\n")
    with pytest.raises(DataError, match="no known benchmark"):
        read_problems(own)
    (tmp_path / "config").mkdir()
    text = (ROOT / "config/dataset.yaml").read_text().replace("problem: [question]", "problem: [instruction]")
    (tmp_path / "config/dataset.yaml").write_text(text)
    assert read_problems(own)[0].question.text == "1 + 1?"
    (tmp_path / "config/dataset.yaml").write_text(text.replace("instruction", "a").replace("fields:", "fiels:"))
    with pytest.raises(ConfigError, match="fiels"):
        read_problems(own)
