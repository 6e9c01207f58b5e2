"""A user's own file through ``data check``, ``data inspect`` and ``data process``, without any benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.commands.app import main

RECORDS: list[dict[str, Any]] = [
    *({"problem": f"{i} + {i}?", "answer": 2 * i, "type": "math"} for i in range(12)),
    *({"problem": f"Who is {i}?", "context": f"It is {i}.", "answer": [f"{i}"], "type": "qa"} for i in range(12)),
    *({"problem": f"Add {i}.", "type": "code", "tests": [f"assert add_{i}(1) == {i + 1}"]} for i in range(12)),
    {"problem": "Who else?", "context": "Nobody.", "unanswerable": True, "type": "qa"},
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(*records: Any) -> str:
    Path("own.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return "own.jsonl"


def test_process_works_without_any_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "process", "--custom", written(*RECORDS), "--train-size", "30", "--test-size", "6"]) == 0
    assert "no benchmark is in data/raw: your own problems alone" in capsys.readouterr().out
    info = json.loads(Path("data/mixed/info.json").read_text())
    assert info["mixed"]["train"]["domains"] == {"math": 12, "qa": 9, "code": 9}
    assert {name: facts["train"] for name, facts in info["datasets"].items()} == {
        "custom_math": 10, "custom_qa": 11, "custom_code": 10,
    }  # fmt: skip
    assert main(["data", "inspect", "--examples", "0"]) == 0
    told = capsys.readouterr().out
    assert all(f"custom, {domain}" in told for domain in ("math", "qa", "code"))


def test_process_still_names_the_benchmarks_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "process", "--custom", written(*RECORDS), "--datasets", "gsm8k"]) == 2
    assert "gsm8k: split 'train' is not in data/raw" in capsys.readouterr().err


def test_a_domain_too_small_for_a_test_part_is_told_with_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "process", "--custom", written(*RECORDS[:14])]) == 2
    assert "there are no qa problems for the test mix; add some, or set its ratio to 0" in capsys.readouterr().err


def test_inspect_shows_the_domains_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", "--file", written(*RECORDS), "--json"]) == 0
    (sets,) = json.loads(capsys.readouterr().out)["sides"].values()
    assert {name: (facts["domain"], facts["lines"]) for name, facts in sets.items()} == {
        "custom, math": ("math", 12), "custom, qa": ("qa", 13), "custom, code": ("code", 12),
    }  # fmt: skip


def test_brackets_and_dollars_in_a_name_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    own = written({**RECORDS[0], "dataset": r"[/b] $\x$", "problem": "[/i]?"})
    assert main(["data", "inspect", "--file", own, "--png", "x.png"]) == 0
    told = capsys.readouterr().out
    assert r"[/b] $\x$" in told and "[/i]?" in told


def test_inspect_tells_all_bad_records(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {**RECORDS[0], "type": "maths"}
    assert main(["data", "inspect", "--file", written(bad, *RECORDS, bad)]) == 2
    told = capsys.readouterr().err
    assert "own.jsonl:1: " in told and "own.jsonl:39: " in told


def test_check_reads_a_users_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    gsm8k = {"question": "2 + 2?", "answer": "It is four.\n#### 4"}
    assert main(["data", "check", "--file", written(*RECORDS, gsm8k), "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out).values()
    assert report == {"records": 38, "golds": 26, "failures": []}


def test_check_tells_every_fault_of_a_users_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    lax = {"id": "lax", "problem": "Sort.", "type": "code", "tests": ["assert sort([]) is None"]}
    broken = {"problem": "?", "type": "code", "entry_point": "f", "tests": ["assert g(1)"]}
    assert main(["data", "check", "--file", written(lax, broken, *RECORDS)]) == 1
    told = capsys.readouterr().out
    assert "lax: a function that does nothing passes the tests" in told
    assert "own.jsonl:2: field 'tests' never uses f" in told
    assert "25 answers of 39 records, 2 faults" in told
    assert main(["data", "check", "--file", written(*[broken] * 100)]) == 1
    assert "... and 80 more" in capsys.readouterr().out
