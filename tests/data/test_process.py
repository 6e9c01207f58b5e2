"""``data process`` and ``data inspect``: the files they write and read, bad input, full disks, interruptions."""

import errno
import json
import random
import re
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.benchmarks import MIXED, all_benchmarks
from helpers.cli import CommandLine
from helpers.samples import write_lines

from llm_as_judge.commands.cli import file_problem
from llm_as_judge.data import process
from llm_as_judge.data.files import MARKER, check_whole
from llm_as_judge.data.overview import inspect_folder
from llm_as_judge.data.problems import read_problems
from llm_as_judge.data.process import Job
from llm_as_judge.data.settings import Mix, load_settings, raw_files, sources_of
from llm_as_judge.errors import DataError
from llm_as_judge.files import sha256_of

TWO = ["gsm8k", "squad2"]


def settings(**changes: Any) -> Mix:
    return load_settings(None, {"train_size": 400, "test_size": 80, **changes})


def run(raw: Path, out: Path, mode: Any = "plan-c", **changes: Any) -> dict[str, Any]:
    job = {name: changes.pop(name) for name in ("custom", "any_split") if name in changes}
    return process.process(Job(settings(**changes), raw, out, mode=mode, **job))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".process.lock")
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}


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


@pytest.fixture(scope="module", params=["invented", "published"])
def raw(request: pytest.FixtureRequest, samples: Path) -> Path:
    """The invented samples, and once more the real ones, where this machine has them."""
    return all_benchmarks(MIXED) if request.param == "published" else samples


@pytest.fixture(scope="module")
def made(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The output of plan C with a validation part."""
    out = tmp_path_factory.mktemp("plan-c")
    return out, run(raw, out, any_split=True, val_fraction=0.1)


def test_exactly_the_documented_files_are_written_and_the_mix_is_exact(made: tuple[Path, dict[str, Any]]) -> None:
    out, info = made
    sides = ("train", "val", "test")
    assert set(digests(out)) == {
        "mixed/info.json", *(f"mixed/{side}_mixed.jsonl" for side in sides),
        *(f"test/{name}_test.jsonl" for name in MIXED),
        *(f"processed/{name}_{side}.jsonl" for name in MIXED for side in sides),
    }  # fmt: skip
    assert json.loads((out / "mixed/info.json").read_text()) == info
    for name, facts in info["files"].items():
        content = (out / name).read_bytes()
        found = {"lines": content.count(b"\n"), "bytes": len(content), "sha256": sha256_of(out / name)}
        assert facts == found
    for name in MIXED:
        assert len(lines(out / f"test/{name}_test.jsonl")) == info["datasets"][name]["test"]
    for side, size in (("train", 400), ("test", 80), ("val", 40)):
        mix = lines(out / f"mixed/{side}_mixed.jsonl")
        shares = {"math": size * 4 // 10, "qa": size * 3 // 10, "code": size * 3 // 10}
        assert Counter(line["type"] for line in mix) == shares
        counts = Counter(line["dataset"] for line in mix)
        for name in MIXED:
            assert counts[name] == size * (4 if name in ("gsm8k", "math") else 3) // 20
            assert counts[name] == info["datasets"][name][f"{side}_mix"]["lines"]


def test_no_question_is_in_two_parts_and_none_is_lost_or_changed(raw: Path, made: tuple[Path, dict[str, Any]]) -> None:
    out, info = made
    questions: dict[str, set[str]] = {}
    for side in ("train", "val", "test"):
        files = [f"processed/{name}_{side}.jsonl" for name in MIXED] + [f"mixed/{side}_mixed.jsonl"]
        texts = [line["problem"] for name in files for line in lines(out / name)]
        questions[side] = {" ".join(re.findall(r"\w+", text.casefold())) for text in texts}
    assert not questions["train"] & questions["test"]
    assert not questions["val"] & (questions["train"] | questions["test"])
    assert all(shared["question"] == 0 for shared in info["contamination"].values())
    for name, source in sources_of(MIXED).items():
        facts = info["datasets"][name]
        read = [file for split in facts["splits"] for file in raw_files(raw, name, source, split)]
        given = {problem.question.id: problem for file in read for problem in read_problems(file)}
        assert facts["records"] == len(given)
        kept = [p for side in ("train", "val", "test") for p in read_problems(out / f"processed/{name}_{side}.jsonl")]
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
    run(raw, tmp_path / "one", datasets=TWO)
    for name in TWO:
        path = raw / name / "train.jsonl"
        shuffled = path.read_text().splitlines(keepends=True)
        random.Random(1).shuffle(shuffled)
        path.write_text("\n".join([*shuffled, shuffled[0]]))
    info = run(raw, tmp_path / "two", datasets=TWO)
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    assert {name for name in one | two if one.get(name) != two.get(name)} == {"mixed/info.json"}  # raw checksums
    assert info["datasets"]["gsm8k"]["dropped"]["duplicates"] == 1


def test_own_problems_join_the_mix(tmp_path: Path) -> None:
    records = [{"question": f"own {i}?", "ground_truth": i, "problem_type": "math"} for i in range(12)]
    records += [{"problem": f"f{i}", "type": "code", "tests": f"assert f({i}) == 1"} for i in range(6)]
    own = write_lines(tmp_path / "own.jsonl", records)
    info = run(small(tmp_path / "raw"), tmp_path / "out", datasets=TWO, custom=(own,))
    assert info["mixed"]["train"]["domains"] == {"math": 160, "qa": 120, "code": 120}
    assert {name: facts["train_mix"]["lines"] for name, facts in info["datasets"].items()} == {
        "gsm8k": 80, "squad2": 120, "custom_math": 80, "custom_code": 120,
    }  # fmt: skip
    assert (tmp_path / "out/test/custom_code_test.jsonl").exists()


def test_every_bad_record_and_missing_file_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        run(tmp_path / "raw", tmp_path / "out")
    shown = str(caught.value)
    assert all(f"{name}: split" in shown for name in MIXED) and f"{tmp_path}/raw/humaneval/HumanEval.jsonl.gz" in shown
    assert "data download --datasets mbpp" in shown and "https://github.com/openai/human-eval" in shown
    raw = small(tmp_path / "raw")
    run(raw, tmp_path / "out", datasets=TWO)
    before = digests(tmp_path / "out")
    own = write_lines(tmp_path / "own.jsonl", [{"problem": "?", "answer": "", "type": "math"}])
    with (raw / "gsm8k/train.jsonl").open("ab") as file:
        file.write(b'{"question": ["?"], "answer": "#### 1"}\n{"question": "?", "a')
    with pytest.raises(DataError) as caught:
        run(raw, tmp_path / "out", datasets=TWO, custom=(own,))
    places = [line.partition(": ")[0] for line in str(caught.value).split("\n")]
    assert places == [f"{raw}/gsm8k/train.jsonl:61", f"{raw}/gsm8k/train.jsonl:62", f"{own}:1",
                      f"3 bad records; nothing was written to {tmp_path / 'out'}"]  # fmt: skip
    assert digests(tmp_path / "out") == before


def test_a_full_disk_or_an_interrupted_move_leaves_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    run(raw, out, datasets=TWO)
    before, real, replace, moved = digests(out), process.write_lines, Path.replace, 0

    def full(path: Path, lines: Any) -> dict[str, Any]:
        if "mixed" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, lines)

    def interrupted(self: Path, target: Path) -> Path:
        nonlocal moved
        moved += ".process" in str(self)
        if moved == 3:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(process, "write_lines", full)
        with pytest.raises(OSError, match="No space left on device") as caught:
            run(raw, out, datasets=TWO, seed=3)
    assert f"{out}: no space left on device; make room there" in str(file_problem(caught.value, "data"))
    assert digests(out) == before
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(raw, out, datasets=TWO, seed=5)
    for name in ("mixed/train_mixed.jsonl", "test/gsm8k_test.jsonl", "test"):
        with pytest.raises(DataError, match="broke off"):
            check_whole(out / name)
    run(raw, out, datasets=TWO)
    assert digests(out) == before


def test_two_runs_into_one_folder_write_one_after_the_other_and_stale_files_go(tmp_path: Path) -> None:
    raw, out = small(tmp_path / "raw"), tmp_path / "out"
    with ThreadPoolExecutor(4) as pool:
        infos = [*pool.map(lambda seed: run(raw, out, datasets=TWO, seed=seed, val_fraction=0.2), range(4))]
    left = json.loads((out / "mixed/info.json").read_text())
    assert left in infos
    assert {name: facts["sha256"] for name, facts in left["files"].items()}.items() <= digests(out).items()
    (out / "raw").mkdir()
    (out / "raw/kept.jsonl").write_text("{}")
    info = run(raw, out, datasets=["gsm8k"])
    assert set(digests(out)) == {*info["files"], "mixed/info.json", "raw/kept.jsonl"}


def test_the_command_prints_its_result_and_names_mistakes(tmp_path: Path, cli: CommandLine) -> None:
    command = ["data", "process", "--raw", small(tmp_path / "raw"), "--out", tmp_path / "out"]
    sizes = ["--train-size", 70, "--test-size", 7, "--ratios", "4:3:0", "--seed", 3]
    info = cli.json(*command, "--datasets", "gsm8k,squad2", *sizes)
    assert info["mixed"]["train"]["domains"] == {"math": 40, "qa": 30} and info["seed"] == 3
    assert "did you mean 'gsm8k'" in cli.refused(*command, "--datasets", "gsm9k")
    for wrong in ("--ratios=4:3", "--split=x", "--val-fraction=1.5", "--train-size=0", "--datasets=none"):
        cli.refused(*command, wrong)


def test_inspect_gives_counts_and_lengths_and_refuses_changed_files(tmp_path: Path, cli: CommandLine) -> None:
    records = [{"question": "x" * (i + 1) + "?", "answer": f"#### {i}"} for i in range(12)]
    write_lines(tmp_path / "raw/gsm8k/train.jsonl", records)
    out = tmp_path / "out"
    run(tmp_path / "raw", out, datasets=["gsm8k"], train_size=30, test_size=4)
    result = cli.json("data", "inspect", "--out", out, "--examples", 2)
    train, test = result["sides"]["train"]["gsm8k"], result["sides"]["test"]["gsm8k"]
    assert (train["lines"], train["unique"], train["repetition"]) == (30, 10, 3.0)
    assert (test["lines"], test["unique"]) == (4, 2)
    assert len(train["examples"]) == 2 and train["examples"][0] != train["examples"][1]
    lengths = sorted(len(line["problem"]) for line in lines(out / "mixed/train_mixed.jsonl"))
    assert train["length"] == {"median": lengths[15], "p95": lengths[28], "max": lengths[-1]}
    for name, content, reason in (
        ("mixed/train_mixed.jsonl", "{}", r"train_mixed\.jsonl: is not the file"), ("mixed/info.json", "{", "damaged"),
    ):  # fmt: skip
        (out / name).write_text(content)
        with pytest.raises(DataError, match=reason):
            inspect_folder(out)
    (out / MARKER).touch()
    with pytest.raises(DataError, match="broke off"):
        inspect_folder(out)
