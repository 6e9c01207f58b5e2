"""Forms of records, and domains of a user."""

import json
import logging
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.finished import EMBEDDED, as_options, run_settings
from helpers.run_logs import read_rollouts
from helpers.samples import write_lines

from llm_as_judge.assembly.check import check_golds
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.data.problems import measured_problems, read_problems
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.integrations.rows import training_rows
from llm_as_judge.integrations.score import Scorer
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Problem, in_order
from llm_as_judge.workflow.prompt import Layer1

GSM8K = {"question": "How many legs have 3 cows?", "answer": "3 cows have 3*4=<<3*4=12>>12 legs.\n#### 12"}
MATH = {"problem": "Find $x$.", "solution": "It is $\\boxed{5}$.", "level": "Level 1", "type": "Algebra"}
CHOICES = {"text": ["red", "green", "blue", "grey"], "label": ["A", "B", "C", "D"]}
ARC = {"id": "q1", "question": "What colour is grass?", "choices": CHOICES, "answerKey": "B"}
SQUAD = {"question": "Who won?", "context": "Ann won.", "answers": {"text": ["Ann"]}}
HUMANEVAL = {
    "task_id": "HumanEval/3", "prompt": 'def half(x):\n    """Half of x."""\n', "entry_point": "half",
    "canonical_solution": "    return x / 2\n", "test": "def check(candidate):\n    assert candidate(8) == 4\n",
}  # fmt: skip
MBPP = {
    "task_id": 11, "prompt": "Write a function that doubles.", "code": "def double(x):\n    return 2 * x",
    "test_list": ["assert double(1) == 2"],
}  # fmt: skip


def test_each_benchmark_has_its_own_name_in_results(tmp_path: Path) -> None:
    wrong = []
    for name, record, expected in (
        ("raw/test.jsonl", GSM8K, ""), ("sums.jsonl", {**GSM8K, "answer": "#### 12"}, "sums"),
        ("gsm8k_test.jsonl", {**GSM8K, "answer": "#### 12"}, ""),
        ("x.jsonl", MATH, ""), ("contest.jsonl", {"problem": "?", "solution": "\\boxed{1}"}, "contest"),
        ("contest/test.jsonl", {"problem": "?", "solution": "\\boxed{1}", "answer": "1"}, "contest_test"),
        ("science.jsonl", ARC, "science"), ("x.jsonl", {**ARC, "question_concept": "grass"}, ""),
        ("squad1.jsonl", SQUAD, "squad1"), ("x.jsonl", {**SQUAD, "is_impossible": False}, ""),
        ("x.jsonl", HUMANEVAL, ""),
        ("mine.jsonl", {**HUMANEVAL, "task_id": "HumanEval/900"}, "mine"),
        ("x.jsonl", MBPP, ""),
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / name, [record]))
        if problem.benchmark != expected:
            wrong.append((name, record, problem.benchmark))
    assert not wrong
    file = write_lines(tmp_path / "squad.jsonl", [SQUAD, {**SQUAD, "question": "Who lost?", "answers": {"text": []}}])
    assert [p.benchmark for p in read_problems(file)] == ["", ""], "an unanswerable question is SQuAD 2.0's alone"


def test_the_records_own_suite_decides(tmp_path: Path) -> None:
    suite = "for x, y in [(1, 2), (5, 10)]:\n    assert double(x) == y\n"
    (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{**MBPP, "test": suite}]))
    assert problem.reference.tests == suite and problem.question.public_tests == ("assert double(1) == 2",)
    own = {"type": "code", "problem": "Double.", "entry_point": "double", "tests": MBPP["test_list"], "test": suite}
    for record, reason in (
        (own, "fields tests and test hold different tests"), ({**HUMANEVAL, "plus_input": [[1]]}, "'plus_input'"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=reason):
            read_problems(write_lines(tmp_path / "b.jsonl", [record]))


async def test_the_answer_column_of_a_record_in_the_form_of_math_is_used(tmp_path: Path) -> None:
    records = [
        {"problem": "One?", "solution": "By counting, 7.", "answer": "7"},
        {"problem": "Two?", "solution": "So $\\boxed{8}$.", "answer": 9},
        {"problem": "Three?", "solution": "So $\\boxed{10}$.", "answer": None},
    ]
    file = write_lines(tmp_path / "a.jsonl", records)
    assert [p.reference.answers for p in read_problems(file)] == [("7",), ("9",), ("10",)]
    with pytest.raises(DataError, match="no field 'answer', and field 'solution' has no"):
        read_problems(write_lines(tmp_path / "b.jsonl", [{"problem": "?", "solution": "7"}]))
    report = await _checked(file)
    assert len(report.failures) == 1 and "8" in report.failures[0].reason, "the box contradicts the answer"


async def _checked(file: Path) -> Any:
    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:
        return await check_golds([file], None, sandbox)


async def test_tests_that_cannot_run_are_one_fault_and_the_rest_is_checked(tmp_path: Path) -> None:
    bad = {**HUMANEVAL, "test": "import no_such_module\n" + HUMANEVAL["test"]}
    wrong = {**HUMANEVAL, "canonical_solution": "    return x\n"}
    report = await _checked(write_lines(tmp_path / "a.jsonl", [bad, HUMANEVAL, wrong]))
    assert report.records == 3 and len(report.failures) == 2
    named = next(failure for failure in report.failures if "no_such_module" in failure.reason)
    assert named.id == f"{tmp_path}/a.jsonl:1"


def test_options_that_a_question_needs_are_shown_with_it(tmp_path: Path) -> None:
    options, base = ["red", "green", "blue"], {"type": "qa", "question": "What colour is grass?"}
    shown = "What colour is grass?\nA. red\nB. green\nC. blue"
    columns = {"A": "red", "B": "green", "C": "blue"}
    wrong = []
    for record in (
        {"options": options, "answer": "B"}, {"options": options, "answer": "(B)", "answer_index": 1},
        {"choices": options, "answer": 1}, {"choices": options, "answer": "green"},
        {"choices": {"label": [*"ABC"], "text": options}, "answer": "B"}, {"endings": options, "answer": "B"},
        {"options": columns, "answer": "B"}, {**columns, "answer": "B"},
        {**{f"option_{k.lower()}": v for k, v in columns.items()}, "answer": "B"},
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{**base, **record}]))
        if problem.question.text != shown or problem.reference.answers != ("B", "B. green", "green"):
            wrong.append((record, problem))
    for record in (  # nothing is missing
        {"answer": "B"}, {"tags": ["a", "b"], "answer": "green"}, {"tags": ["a", "b"], "answer": "green", "n": 2},
        {"question": shown, "options": options, "answer": "B"},
    ):  # fmt: skip
        (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{**base, **record}]))
        if problem.question.text != record.get("question", base["question"]):
            wrong.append((record, problem))
    assert not wrong
    for more in ({"answer": "green"}, {"choices": [*"abcd"], "answer": 1}):  # the second in the form of MMLU
        parts = {"passage": "Grass.", "table": "| 1 |"}
        (problem,) = read_problems(write_lines(tmp_path / "a.jsonl", [{"question": "What?", **parts, **more}]))
        assert problem.question.context == "Grass.\n\n| 1 |" and problem.question.text.startswith("What?")
    unclear = {**base, "answer": "B", "left": options, "right": options}
    with pytest.raises(DataError, match="the options may be in left or right"):
        read_problems(write_lines(tmp_path / "b.jsonl", [unclear]))


def test_copies_are_left_out_and_a_limit_spreads_over_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = [kind for kind in ("sum", "root", "area", "odds") for _ in range(50)]
    records = [
        {"problem": f"{kind} {i}?", "answer": str(i), "type": "math", "id": n}
        for n, (i, kind) in enumerate([*enumerate(kinds)] * 2)
    ]
    file = write_lines(tmp_path / "a.jsonl", records)
    with caplog.at_level(logging.WARNING):
        assert len(measured_problems(file)) == 200
    assert "200 of 400 problems are copies of others" in caplog.text
    chosen = measured_problems(file, 40)
    assert len(chosen) == 40 == len({p.question.text for p in chosen})
    shares = Counter(p.question.text.split()[0] for p in chosen)
    assert len(shares) == 4 and min(shares.values()) >= 5, shares
    contradicting = [{**records[0], "answer": str(n)} for n in range(3)]
    assert len(measured_problems(write_lines(tmp_path / "b.jsonl", contradicting))) == 3


def test_a_mix_that_repeats_a_small_dataset_keeps_its_shares_among_distinct_problems(tmp_path: Path) -> None:
    maths = [{"problem": f"What is {i} + 1?", "answer": str(i + 1), "type": "math"} for i in range(3)] * 10
    others = [{"problem": f"Who wrote book {i}?", "answer": f"author {i}", "type": "qa"} for i in range(30)]
    chosen = measured_problems(write_lines(tmp_path / "mix.jsonl", maths + others), 6)
    assert Counter(p.question.domain for p in chosen) == {"math": 3, "qa": 3}


DOMAINS = (
    "domains={legal: {answer: text, guidance: Name the paragraph.}, tax: {answer: number}, exam: {answer: choice}, "
    "sql: {answer: code}}"
)
RECORDS = [
    *({"problem": f"Which law covers case {i}?", "answer": f"BGB {i}", "type": "legal"} for i in range(6)),
    *({"problem": f"Tax on {i} Euro at 10 %?", "answer": i / 10, "domain": "tax"} for i in range(10, 16)),
    {"problem": "Which is red?", "options": ["blood", "grass"], "answer": "A", "type": "exam"},
    {"problem": "Write f.", "tests": ["assert f(2) == 4"], "entry_point": "f", "type": "sql"},
]
RATIOS = "domain_ratios={legal: 0.5, tax: 0.5}"


@pytest.fixture
def problems(here: Path) -> dict[str, Problem]:
    """One of each domain."""
    data = load_config(EMBEDDED, [DOMAINS]).data
    return {p.question.domain: p for p in read_problems(write_lines(here / "own.jsonl", RECORDS), data)}


async def test_verdicts_metrics_and_prompts_are_those_of_the_answers_kind(problems: dict[str, Problem]) -> None:
    assert [p.question.kind for p in problems.values()] == ["qa", "math", "qa", "code"]
    assert [metric_of(p.question) for p in problems.values()] == ["accuracy", "accuracy", "choice", "pass@k"]
    judge = Judge(OFFICIAL)
    said = {"legal": ("the BGB 5", "BGB 6"), "tax": ("It is \\boxed{1.50}", "15"), "exam": ("I choose (A).", "B")}
    for domain, (right, wrong) in said.items():
        assert (await judge.verdict(problems[domain], right)).correct is True, domain
        assert (await judge.verdict(problems[domain], wrong)).correct is False, domain
    config = load_config(EMBEDDED, ["workflow.prompt=full", DOMAINS])
    layer1 = Layer1(config.workflow, config.data.domains)
    shown = {domain: layer1(p.question).user for domain, p in problems.items()}
    assert shown["legal"].startswith("Problem (legal): Which law") and shown["legal"].endswith("Name the paragraph.")
    assert shown["tax"].endswith("Return the final number.") and "source of the function" in shown["sql"]
    assert "entry_point" in layer1(problems["sql"].question).turns[0][1]
    assert in_order(["tax", "qa", "legal", "math", "qa"]) == ["math", "qa", "legal", "tax"]


def test_bad_names_shares_and_records_are_refused(here: Path, cli: CommandLine) -> None:
    for setting, reason in (
        ("domains={math: {}}", "'math' cannot be a domain of your own"),
        ("domains={law: {answer: essay}}", "'text', 'number', 'choice' or 'code'"),
        ("domain_ratios={legal: 1}", "there is no domain 'legal'; there are math, code, qa"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_config(EMBEDDED, [setting])
    with pytest.raises(ConfigError, match=r"data\.domains\.law\.answr = 'text'") as refused:
        load_config(EMBEDDED, ["domains={law: {answr: text}}", "domain_ratios={law: 1}"])
    assert "there is no domain" not in str(refused.value)
    assert load_config(EMBEDDED, ["domains={право: {}}", "domain_ratios={право: 1}"]).data.domain_ratios["право"] == 1
    many = " ".join(cli("plan", "--config", EMBEDDED, "--set", "eval_problems=1300", "--gpus", "1x80").split())
    assert "cannot be read: data.eval_problems=1300: the embedded world has" in many
    file = write_lines(here / "own.jsonl", RECORDS)
    with pytest.raises(DataError, match=r"own.jsonl:1: .*one of math, code, qa, got 'legal'; or add it"):
        read_problems(file)
    assert "use one of math, code, qa" in cli.refused("solve", "Who?", "--domain", "legal")
    named = ("--custom", file, "--datasets", "none", "--out", here / "out", "--domains", DOMAINS.partition("=")[2])
    refused_mix = cli.refused("data", "process", *named)
    assert "has no share in the mix; give all their shares: --ratios '{" in refused_mix and "tax: 1" in refused_mix
    cli("data", "process", *named, "--ratios", "{legal: 1, tax: 3, exam: 0, sql: 0}", "--train-size", "8")
    mixed = [json.loads(line) for line in (here / "out/mixed/train_mixed.jsonl").read_text().splitlines()]
    assert [sum(r["type"] == name for r in mixed) for name in ("legal", "tax")] == [2, 6]


def test_a_run_draws_their_shares_and_names_them_in_log_and_tables(here: Path, address: str, cli: CommandLine) -> None:
    train, test = (write_lines(here / f"{name}.jsonl", RECORDS[:12]) for name in ("train", "test"))
    files = {"train_dataset": train, "test_dataset": test, "eval_every": 0, "eval_problems": 4, "judge.mode": "rules"}
    settings = [*run_settings(here, address, max_steps=1, rollout_batch_size=2, **files), DOMAINS, RATIOS]
    out = cli("train", *as_options([*settings, "evaluation.baselines=single"]))
    asked = [event.rollout.problem.question for event in read_rollouts(here / "logs/nano/grpo_mixed.jsonl")]
    assert {q.domain: q.like for q in asked} == {"legal": "qa", "tax": "math"}
    assert sum(q.domain == "tax" for q in asked) == len(asked) / 2
    heading = next(line for line in out.splitlines() if "overall" in line)
    assert heading.split()[:3] == ["overall", "legal", "tax"]


async def test_rows_for_other_trainers_keep_the_domain(problems: dict[str, Problem], here: Path) -> None:
    settings = [f"train_dataset={here / 'own.jsonl'}", DOMAINS, RATIOS]
    config = load_config(EMBEDDED, settings)
    row = next(row for row in training_rows(config, 4) if row["domain"] == "tax")
    with closing(Scorer(config)) as scorer:
        rollout = await scorer.score(row, "not a workflow")
    assert rollout.problem.question.like == "math"
    assert replace(rollout.problem, place="") in read_problems(here / "own.jsonl", config.data)
