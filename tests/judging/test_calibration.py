"""Calibration: counting, attacks, and what is printed and logged."""

import json
from pathlib import Path

import pytest
from helpers.cli import CommandLine
from helpers.judging import Always
from helpers.misbehaving import Misbehaving
from helpers.tables import tables
from helpers.web import serving

from llm_as_judge.errors import DataError
from llm_as_judge.judging.calibration import ATTACKS, CONSTANTS, EMPTYING, Counts, calibrate, count, read_pairs
from llm_as_judge.judging.judge import RULES_ONLY, Judge

TABLES = tables(__file__)

LINES = TABLES["LINES"]


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)) + "\n", encoding="utf-8")
    return path


def test_kappa_is_cohens() -> None:
    counts = Counts("plain", true_accepts=20, true_rejects=15, false_accepts=10, false_rejects=5, abstained=3)
    assert counts.line() == ("pairs=53 agreement=0.7000 kappa=0.4000 false_accepts=10 false_rejects=5 abstained=3")
    assert Counts("plain", abstained=3).line().startswith("pairs=3 agreement=- kappa=- ")
    assert count("plain", [True, True], [True, True]).kappa is None


async def test_rules_have_no_false_accept_and_a_judge_that_always_says_true_many(pairs_file: Path) -> None:
    plain, *hostile = await calibrate(Judge(RULES_ONLY), read_pairs(pairs_file))
    assert (plain.true_accepts, plain.false_rejects, plain.true_rejects) == (4, 1, 1)
    assert [row.kind for row in hostile] == [*ATTACKS, *(f"always {text!r}" for text in CONSTANTS)]
    assert not [row for row in hostile if row.false_accepts]
    rows = {row.kind: row for row in await calibrate(Always(True), read_pairs(pairs_file))}
    assert rows["plain"].false_accepts == 1
    empty = [rows[name].false_accepts for name in EMPTYING]
    assert empty == [len(LINES)] * 5
    assert all(rows[f"always {text!r}"].false_accepts >= 3 for text in CONSTANTS)
    abstained = await calibrate(Always(None), read_pairs(pairs_file), (), ())
    assert (abstained[0].abstained, abstained[0].false_rejects, abstained[0].reason) == (len(LINES), 0, "no word")


def test_the_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    for line, message in TABLES["wrong lines"]:
        path.write_text(line, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_pairs(path)


def test_a_judge_that_decides_nothing_is_an_error_with_a_reason(pairs_file: Path, here: Path, cli: CommandLine) -> None:
    pairs_file.write_text(json.dumps(LINES[-1]), encoding="utf-8")
    command = ["judge", "calibrate", pairs_file, "--mode", "llm", "--no-attacks", "--set", "judge.provider=openai"]
    with serving(Misbehaving) as server:
        for name, status in (("wrong_word", 1), ("true", 0)):
            settings = {"base_url": server, "model": f"calibrated-{name}/{name}", "max_retries": 0}
            cli(*command, *(f"--set=judge.{key}={value}" for key, value in settings.items()), status=status)
            assert ("no verdict in" in cli.err and "Maybe" in cli.err) == bool(status)


@pytest.mark.slow
def test_the_command_prints_its_line_last(pairs_file: Path, here: Path, cli: CommandLine) -> None:
    command = ["judge", "calibrate", pairs_file, "--mode", "rules"]
    line = cli(*command).strip().splitlines()[-1]
    assert line == "pairs=6 agreement=0.8333 kappa=0.5714 false_accepts=0 false_rejects=1 abstained=0"
    shown = json.loads(cli(*command, "--json").splitlines()[-1])
    assert (shown["pairs"], shown["false_rejects"], round(shown["kappa"], 4)) == (6, 1, 0.5714)
    assert json.loads((here / "results/judge/pairs_rules.json").read_text()) == shown
    assert shown["line"] == line and len(shown["kinds"]) == 1 + len(ATTACKS) + len(CONSTANTS)
