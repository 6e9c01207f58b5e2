"""Training reads the output of ``data process`` if it is complete, and users' files with their own field names."""

from collections import Counter
from pathlib import Path

import pytest
from helpers.finished import EMBEDDED
from helpers.samples import write_lines

from llm_as_judge.assembly.problems import embedded_problems, open_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.data.files import MARKER
from llm_as_judge.data.problems import read_problems, spread, unseen
from llm_as_judge.data.process import Job, process
from llm_as_judge.data.settings import load_settings
from llm_as_judge.errors import ConfigError, DataError


def own_file(path: Path, *counts: tuple[str, int]) -> Path:
    """Problems of one domain after the other."""
    return write_lines(path, (
        {"problem": f"{domain} {i}?", "answer": str(i), "type": domain} for domain, n in counts for i in range(n)
    ))  # fmt: skip


def test_the_trainer_draws_the_mix_and_refuses_one_that_is_not_whole(samples: Path, tmp_path: Path) -> None:
    settings = load_settings(None, {"train_size": 40, "test_size": 20})
    process(Job(settings, samples, tmp_path, any_split=True))
    files = [f"data.{side}_dataset={tmp_path}/mixed/{side}_mixed.jsonl" for side in ("train", "test")]
    config = load_config(EMBEDDED, ["eval_problems=20", *files])
    problems = open_problems(config)
    drawn = problems.sampler.sample(40)
    assert Counter(problem.question.domain for problem in drawn) == {"math": 16, "qa": 12, "code": 12}
    ids = Counter(problem.question.id for problem in drawn)
    assert max(ids.values()) == 1  # no set is small enough to be repeated in 40
    heldout = [problem.question.id for problem in problems.heldout]
    assert len(set(heldout)) == len(heldout) > 10, "a copy is no further evidence"
    assert {problem.question.domain for problem in problems.heldout} == {"math", "qa", "code"}
    assert not {problem.question.id for problem in problems.heldout} & ids.keys()
    (tmp_path / MARKER).touch()
    with pytest.raises(DataError, match="broke off"):
        open_problems(config)


def test_contradictory_files_are_refused_with_the_cure(tmp_path: Path) -> None:
    path = own_file(tmp_path / "own.jsonl", ("math", 3))
    (tmp_path / "link.jsonl").symlink_to(path)
    for settings, reason in (
        ([f"test_dataset={path}"], r"test_dataset means files, but train_dataset is not set.*evaluate --data"),
        ([f"train_dataset={path}", f"test_dataset={path}"], r"are the same file.*data process"),
        ([f"train_dataset={path}", f"test_dataset={tmp_path}/link.jsonl"], r"are the same file.*data process"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_config(EMBEDDED, settings)


def test_a_choice_has_every_domain_in_its_share_and_trained_problems_are_counted(tmp_path: Path) -> None:
    problems = read_problems(own_file(tmp_path / "sorted.jsonl", ("math", 60), ("qa", 30)))
    chosen = spread(problems, 30)
    assert Counter(p.question.domain for p in chosen) == {"math": 20, "qa": 10}
    places = [problems.index(p) for p in chosen]
    assert places == sorted(places) and max(place for place in places if place < 60) > 40, "not the first ones alone"
    mixed = sorted(problems, key=lambda p: p.question.statement[::-1])
    assert {p.question.id for p in spread(mixed, 30)} == {p.question.id for p in chosen}
    assert spread(problems, 90) == problems
    train, test = own_file(tmp_path / "a.jsonl", ("math", 9)), own_file(tmp_path / "b.jsonl", ("math", 4))
    test.write_text(test.read_text().replace("math 0?", "another?").replace("math 1?", "MATH  1?"))
    only = "domain_ratios={math: 1, qa: 0, code: 0}"
    assert open_problems(load_config(EMBEDDED, [f"train_dataset={train}", f"test_dataset={test}", only])).seen == 3


def test_embedded_problems_for_validation_are_neither_trained_on_nor_measured() -> None:
    found = open_problems(load_config(EMBEDDED, ["eval_every=5"]))
    state = found.sampler.state_dict()
    assert state["problems"] == open_problems(load_config(EMBEDDED)).digest
    training = embedded_problems("train")
    assert len(training) == 1200 and len(found.validation) == 60 and found.seen == 0
    assert unseen(found.validation, [*training, *found.heldout]) == found.validation
    with pytest.raises(ConfigError, match="eval_problems=3000: the embedded world has 500 held-out problems of math"):
        open_problems(load_config(EMBEDDED, ["eval_problems=3000"]))
