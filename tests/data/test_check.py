"""Every reference answer of a benchmark is judged correct by the project's own judge."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.benchmarks import benchmark
from helpers.samples import write_lines

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.check import GoldReport, check_golds
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.sandbox.host import Sandbox


def check(path: Path, dataset: Dataset) -> GoldReport:
    async def run() -> GoldReport:
        async with Sandbox(SandboxConfig(cpu_seconds=20, wall_seconds=120)) as sandbox:
            return await check_golds([path], dataset, sandbox)

    return asyncio.run(run())


#: Dataset, file, least number of published records and golds, number of invented records and golds.
FILES = (
    ("gsm8k", "gsm8k", 2700, 2700, 20, 20),
    ("math", "math", 234, 234, 20, 20),
    ("squad2", "squad_v2/dev-v2.0.json", 706, 1572, 9, 18),
    ("hotpotqa", "hotpotqa", 300, 300, 24, 24),
    ("humaneval", "humaneval/HumanEval.jsonl.gz", 164, 164, 8, 8),
    ("mbpp", "mbpp/mbpp.jsonl", 974, 974, 27, 27),
    ("mbpp", "mbpp/sanitized-mbpp.json", 427, 427, 26, 26),
    ("mmlu", "mmlu", 577, 1731, 30, 90),
    ("commonsenseqa", "commonsenseqa", 1400, 4200, 18, 54),
)


@pytest.mark.slow
def test_every_published_gold_is_judged_correct() -> None:
    for name, file, records, golds, _, _ in FILES:
        report = check(benchmark(file), DATASETS[name])
        assert report.records >= records and report.golds >= golds, file  # a whole benchmark has more than the samples
        assert not report.failures, file


def test_every_invented_gold_is_judged_correct(samples: Path) -> None:
    found = [(name, file, check(samples / file, DATASETS[name])) for name, file, *_ in FILES]
    assert found == [(name, file, GoldReport(records, golds, ())) for name, file, _, _, records, golds in FILES]


def test_a_wrong_gold_a_wrong_public_test_and_a_bad_record_are_found(tmp_path: Path) -> None:
    good = {
        "task_id": 700, "text": "Add.", "code": "def add(a, b):\r\n    return a + b\r\n",
        "test_list": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"],
    }  # fmt: skip
    records = [good, {**good, "task_id": 701, "code": "def add(a, b):\n    return a - b"}, {**good, "test_list": []}]
    path = write_lines(tmp_path / "mbpp.jsonl", records)
    report = check(path, DATASETS["mbpp"])
    assert report.records == 3
    found = [(failure.id, failure.reason) for failure in report.failures]
    assert found[0] == (f"{path}:3", "field 'test_list' is empty")
    assert [id_ for id_, _ in found[1:]] == ["mbpp/701"] * 2
    assert any(reason.startswith("tests failed") for _, reason in found)
    assert any(reason.startswith("public test assert add(1, 2) == 3") for _, reason in found)
