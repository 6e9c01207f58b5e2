"""Domains of the user's own (``data.domains``): data, prompt, ratios, verdicts, tables, other programs."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.finished import EMBEDDED, as_options, run_settings
from helpers.run_logs import read_rollouts
from helpers.samples import write_lines

from llm_as_judge.config.loading import load_config
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.data.problems import read_problems
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.integrations.rows import training_rows
from llm_as_judge.integrations.score import Scorer
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.types import Problem, in_order
from llm_as_judge.workflow.prompt import Layer1

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
