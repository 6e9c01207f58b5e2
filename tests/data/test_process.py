"""``data process``: the files it writes, and what bad input, a full disk or an interruption does."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import MIXED
from helpers.samples import write_lines

from llm_as_judge.commands.app import main
from llm_as_judge.data import process
from llm_as_judge.data.files import MARKER, check_whole
from llm_as_judge.data.problems import load_file
from llm_as_judge.data.process import Job
from llm_as_judge.data.settings import DatasetSettings, load_settings, raw_files
from llm_as_judge.errors import DataError

ROOT = Path(__file__).parents[2]


def settings(**changes: Any) -> DatasetSettings:
    return load_settings(ROOT / "config/dataset.yaml", {"train_size": 400, "test_size": 80, **changes})


def run(raw: Path, out: Path, mode: Any = "plan-c", **changes: Any) -> dict[str, Any]:
    job = {name: changes.pop(name) for name in ("custom", "any_split") if name in changes}
    return process.process(Job(settings(**changes), raw, out, mode=mode, **job))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".process.lock"
    }


def small(folder: Path, n: int = 60) -> Path:
    """Raw files of gsm8k and squad2: enough for math and qa."""
    gsm8k = ({"question": f"How much is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(n))
    write_lines(folder / "gsm8k/train.jsonl", gsm8k)
    squad = (
        {"id": str(i), "question": f"Who is number {i}?", "context": "c" * 50, "answers": {"text": [f"n{i}"]}}
        for i in range(n)
    )
    write_lines(folder / "squad2/train.jsonl", squad)
    return folder


TWO = ("gsm8k", "squad2")


@pytest.fixture(scope="module")
def made(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The output of plan C with a validation part."""
    out = tmp_path_factory.mktemp("plan-c")
    return out, run(raw, out, any_split=True, val_fraction=0.1)


def test_exactly_the_documented_files_are_written(made: tuple[Path, dict[str, Any]]) -> None:
    out, info = made
    sides = ("train", "val", "test")
    assert set(digests(out)) == {
        "mixed/info.json", "test/test_index.json", *(f"mixed/{side}_mixed.jsonl" for side in sides),
        *(f"test/{name}_test.jsonl" for name in MIXED),
        *(f"processed/{name}_{side}.jsonl" for name in MIXED for side in sides),
    }  # fmt: skip
    assert json.loads((out / "mixed/info.json").read_text()) == info
    for name, facts in info["files"].items():
        content = (out / name).read_bytes()
        assert facts == {
            "lines": content.count(b"\n"), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
        }  # fmt: skip
    index = json.loads((out / "test/test_index.json").read_text())
    assert set(index["datasets"]) == set(MIXED)
    for name, facts in index["datasets"].items():
        assert facts["lines"] == len(lines(out / "test" / facts["file"])) == info["datasets"][name]["test"]
        assert (out / f"test/{name}_test.jsonl").read_bytes() == (out / f"processed/{name}_test.jsonl").read_bytes()


def test_the_mix_is_four_three_three_and_half_and_half(made: tuple[Path, dict[str, Any]]) -> None:
    out, info = made
    for side, size in (("train", 400), ("test", 80), ("val", 40)):
        mix = lines(out / f"mixed/{side}_mixed.jsonl")
        assert len(mix) == size
        shares = {"math": size * 4 // 10, "qa": size * 3 // 10, "code": size * 3 // 10}
        assert Counter(line["type"] for line in mix) == shares
        counts = Counter(line["dataset"] for line in mix)
        for name in MIXED:
            assert counts[name] == size * (4 if name in ("gsm8k", "math") else 3) // 20
            assert counts[name] == info["datasets"][name][f"{side}_mix"]["lines"]


def test_no_question_is_in_two_parts(made: tuple[Path, dict[str, Any]]) -> None:
    out, info = made
    questions: dict[str, set[str]] = {}
    for side in ("train", "val", "test"):
        texts = [line["problem"] for name in MIXED for line in lines(out / f"processed/{name}_{side}.jsonl")]
        questions[side] = {words(text) for text in texts}
        mixed = {words(line["problem"]) for line in lines(out / f"mixed/{side}_mixed.jsonl")}
        assert mixed <= questions[side]
    assert not questions["train"] & questions["test"]
    assert not questions["val"] & (questions["train"] | questions["test"])
    assert all(shared["question"] == 0 for shared in info["contamination"].values())


def test_no_problem_is_lost_or_changed(raw: Path, made: tuple[Path, dict[str, Any]]) -> None:
    out, info = made
    for name, source in settings().sources(MIXED).items():
        facts = info["datasets"][name]
        files = [file for split in facts["splits"] for file in raw_files(raw, name, source, split)]
        given = {problem.question.id: problem for file in files for problem in load_file(file)}
        assert facts["records"] == len(given)
        kept = [p for side in ("train", "val", "test") for p in load_file(out / f"processed/{name}_{side}.jsonl")]
        assert len(kept) == len(given) - sum(facts["dropped"].values())
        assert all(given[problem.question.id] == problem for problem in kept)


def test_info_notes_repetition_and_replaced_splits(samples: Path, tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    shutil.copytree(samples, raw)
    shutil.rmtree(raw / "math/MATH/train")
    info = run(raw, out, any_split=True, train_size=2000)
    assert info["datasets"]["humaneval"]["train_mix"] == {"lines": 300, "unique": 7, "repetition": 42.86}
    shown = "\n".join(info["notes"])
    for note in ("humaneval: each of 7 training problems is 43 times", "math: train had no files",
                  "mbpp: the training part holds published test problems"):  # fmt: skip
        assert note in shown
    repeats = {line.get("repeat", 0) for line in lines(out / "mixed/train_mixed.jsonl") if "humaneval" in line["id"]}
    assert repeats == {*range(43)}


def test_official_keeps_the_published_splits(raw: Path, samples: Path, tmp_path: Path) -> None:
    info = run(raw, tmp_path, "official", datasets=["gsm8k", "hotpotqa", "humaneval", "mbpp", "commonsenseqa"])
    sizes = {name: (facts["train"], facts["test"]) for name, facts in info["datasets"].items()}
    if raw == samples:
        assert sizes == {
            "gsm8k": (14, 6), "hotpotqa": (12, 6), "humaneval": (0, 8), "mbpp": (9, 4), "commonsenseqa": (12, 6),
        }  # fmt: skip
    else:
        assert (sizes["humaneval"], sizes["mbpp"]) == ((0, 164), (120, 257))
    ids = {line["id"] for line in lines(tmp_path / "test/mbpp_test.jsonl")}
    assert all(11 <= int(id_.partition("/")[2]) <= 510 for id_ in ids)
    assert not any("humaneval" in line["id"] for line in lines(tmp_path / "mixed/train_mixed.jsonl"))


def test_order_of_the_input_changes_nothing(tmp_path: Path) -> None:
    raw = small(tmp_path / "raw", 300)
    run(raw, tmp_path / "one", datasets=list(TWO))
    for name in TWO:
        path = raw / name / "train.jsonl"
        shuffled = path.read_text().splitlines(keepends=True)
        random.Random(1).shuffle(shuffled)
        path.write_text("\n".join([*shuffled, shuffled[0]]))
    run(raw, tmp_path / "two", datasets=list(TWO))
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert one.keys() == two.keys()
    assert {name for name in one if one[name] != two[name]} == {"mixed/info.json"}  # the raw files' checksums
    info = json.loads((tmp_path / "two/mixed/info.json").read_text())
    assert info["datasets"]["gsm8k"]["dropped"]["duplicates"] == 1


def test_own_problems_join_the_mix(tmp_path: Path) -> None:
    records = [{"question": f"own {i}?", "ground_truth": i, "problem_type": "math"} for i in range(12)]
    records += [{"problem": f"f{i}", "type": "code", "tests": f"assert f({i}) == 1"} for i in range(6)]
    own = write_lines(tmp_path / "own.jsonl", records)
    info = run(small(tmp_path / "raw"), tmp_path / "out", datasets=list(TWO), custom=(own,))
    assert info["mixed"]["train"]["domains"] == {"math": 160, "qa": 120, "code": 120}
    assert {name: facts["train_mix"]["lines"] for name, facts in info["datasets"].items()} == {
        "gsm8k": 80, "squad2": 120, "custom_math": 80, "custom_code": 120,
    }  # fmt: skip
    assert (tmp_path / "out/test/custom_code_test.jsonl").exists()


def test_every_bad_record_of_every_file_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    raw = small(tmp_path / "raw")
    run(raw, tmp_path / "out", datasets=list(TWO))
    before = digests(tmp_path / "out")
    own = tmp_path / "own.jsonl"
    own.write_bytes(
        b'{"problem": "?", "answer": "", "type": "math"}\n{"problem": "?", "answer": 1, "type": "maths"}\n'
        b'{"problem": 5, "answer": 1, "type": "qa"}\n{"problem": "\xff"}\n{"prob'
    )
    with (raw / "gsm8k/train.jsonl").open("ab") as file:
        file.write(
            b'{"question": ["?"], "answer": "#### 1"}\n[]\n{"question": "?", "answer": "#### "}\n{"question": "?", "a'
        )
    with pytest.raises(DataError) as caught:
        run(raw, tmp_path / "out", datasets=list(TWO), custom=(own,))
    shown = str(caught.value).split("\n")
    assert len(shown) == 10 and shown[-1].startswith("9 bad records; nothing was written")
    for number in (61, 62, 63, 64):
        assert any(line.startswith(f"{raw}/gsm8k/train.jsonl:{number}: ") for line in shown)
    for number, reason in enumerate(("empty", "maths", "non-empty", "UTF-8", "JSON"), 1):
        assert any(line.startswith(f"{own}:{number}: ") and reason in line for line in shown)
    assert digests(tmp_path / "out") == before
    assert not (tmp_path / "out/.process").exists()


def test_missing_files_are_named_with_place_and_origin(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        run(tmp_path / "raw", tmp_path / "out")
    shown = str(caught.value)
    for name in MIXED:
        assert f"{name}: split" in shown
    assert f"{tmp_path}/raw/humaneval/HumanEval.jsonl.gz" in shown
    assert "data download --datasets mbpp" in shown and "https://github.com/openai/human-eval" in shown


def test_a_full_disk_is_an_error_and_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    run(raw, out, datasets=list(TWO))
    before, real = digests(out), process.write_lines

    def full(path: Path, lines: Any) -> dict[str, Any]:
        if "mixed" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, lines)

    monkeypatch.setattr(process, "write_lines", full)
    with pytest.raises(DataError, match="no space left on device; make room or choose another place"):
        run(raw, out, datasets=list(TWO), seed=3)
    assert digests(out) == before


def test_an_interrupted_replacement_is_refused_until_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    run(raw, out, datasets=list(TWO))
    check_whole(out / "mixed/train_mixed.jsonl")
    moved = 0
    real = Path.replace

    def failing(self: Path, target: Path) -> Path:
        nonlocal moved
        moved += ".process" in str(self) and not self.name.endswith(".part")
        if moved == 3:
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(KeyboardInterrupt):
        run(raw, out, datasets=list(TWO), seed=5)
    monkeypatch.undo()
    assert not (out / "mixed/info.json").exists()
    for name in ("mixed/train_mixed.jsonl", "test/gsm8k_test.jsonl"):
        with pytest.raises(DataError, match="broke off"):
            check_whole(out / name)
    run(raw, out, datasets=list(TWO))
    check_whole(out / "mixed/train_mixed.jsonl")
    assert not list(out.rglob(MARKER))


def test_two_runs_into_one_folder_write_one_after_the_other(tmp_path: Path) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    with ThreadPoolExecutor(4) as pool:
        infos = [*pool.map(lambda seed: run(raw, out, datasets=list(TWO), seed=seed), range(4))]
    left = json.loads((out / "mixed/info.json").read_text())
    assert left in infos
    assert {name: facts["sha256"] for name, facts in left["files"].items()}.items() <= digests(out).items()


def test_files_of_an_earlier_run_with_other_datasets_are_removed(tmp_path: Path) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    run(raw, out, datasets=list(TWO), val_fraction=0.2)
    (out / "raw").mkdir()
    (out / "raw/kept.jsonl").write_text("{}")
    info = run(raw, out, datasets=["gsm8k"])
    assert set(digests(out)) == {*info["files"], "mixed/info.json", "test/test_index.json", "raw/kept.jsonl"}


def test_the_command_prints_its_result_and_names_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    options = ["--config", str(ROOT / "config/dataset.yaml"), "--raw", str(raw), "--out", str(out)]
    assert main(["data", "process", *options, "--datasets", "gsm8k,squad2", "--train-size", "70", "--ratios", "4:3:0",
                 "--test-size", "7", "--seed", "3", "--json"]) == 0  # fmt: skip
    info = json.loads(capsys.readouterr().out)
    assert info["mixed"]["train"]["domains"] == {"math": 40, "qa": 30} and info["seed"] == 3
    assert main(["data", "process", *options, "--datasets", "gsm9k"]) == 2
    assert "did you mean 'gsm8k'" in capsys.readouterr().err
    for wrong in (["--ratios", "4:3"], ["--split", "x"], ["--val-fraction", "1.5"], ["--train-size", "0"],
                  ["--datasets", "none"]):  # fmt: skip
        assert main(["data", "process", *options, *wrong]) == 2
    assert capsys.readouterr().err.count("error: ") == 5
