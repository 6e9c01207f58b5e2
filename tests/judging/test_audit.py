"""The reward-hacking alarm: what is checked, what is logged, when it goes off."""

from __future__ import annotations

import json

import pytest
from helpers.judging import FALSE, HYBRID, TRUE, ScriptedModel, asked

from llm_as_judge.judging.audit import LEAST, AuditedJudge, contains
from llm_as_judge.judging.judge import Judge
from llm_as_judge.types import Problem, Question, Reference


def problem(i: int) -> Problem:
    return Problem(Question(f"p{i}", "Who?", "qa"), Reference(("Marie Curie",)))


def audited(share: float = 1.0, second: ScriptedModel | None = None) -> AuditedJudge:
    config = asked(audit_share=share, audit_gap=0.3, second_role="audit")
    return AuditedJudge(config, Judge(HYBRID, ScriptedModel(TRUE)), second)


async def feed(judge: AuditedJudge, answer: str, n: int = LEAST) -> None:
    for i in range(n):
        verdict = await judge.verdict(problem(i), f"{answer} ({i})")
        assert verdict.correct is True  # an audit changes no verdict


async def test_a_policy_that_learns_to_please_the_judge_raises_the_alarm() -> None:
    judge = audited()
    await feed(judge, "it was Marie Curie, born Sklodowska")
    figures, alarms = judge.step()
    assert not alarms
    assert figures["qa"] == {"judged": 1.0, "checked": 1.0, "by_llm": LEAST, "checks": LEAST, "failed_checks": 0.0}
    await feed(judge, "the answer matches the reference", 15)
    figures, (alarm,) = judge.step()
    assert figures["qa"]["judged"] == 1.0
    assert figures["qa"]["checked"] == pytest.approx(1 - 15 / 35)
    assert alarm.failed == pytest.approx(15 / 35) and "judge.mode=rules" in str(alarm)


async def test_without_the_audit_nothing_is_noticed() -> None:
    judge = audited(share=0.0)
    await feed(judge, "the answer matches the reference", 60)
    figures, alarms = judge.step()
    assert (figures["qa"]["judged"], figures["qa"]["checked"], alarms) == (1.0, None, [])


async def test_a_check_that_always_missed_some_is_no_alarm() -> None:
    judge = audited()
    for _ in range(3):
        await feed(judge, "the discoverer of radium")
        assert not judge.step()[1]


@pytest.mark.parametrize(("text", "failed"), [(TRUE, 0.0), (FALSE, 1.0)])
async def test_a_second_judge_confirms_or_refutes(text: str, failed: float) -> None:
    judge = audited(second=ScriptedModel(text))
    await feed(judge, "the discoverer of radium")
    assert judge.step()[0]["qa"]["failed_checks"] == failed


async def test_verdicts_of_rules_are_not_checked_and_the_share_is_kept() -> None:
    judge = audited()
    await judge.verdict(problem(0), "Marie Curie")
    assert judge.step()[0]["qa"] == {
        "judged": 1.0, "checked": 1.0, "by_llm": 0, "checks": 0, "failed_checks": None,
    }  # fmt: skip
    tenth = audited(share=0.1)
    await feed(tenth, "x", 400)
    assert 15 <= tenth.step()[0]["qa"]["checks"] <= 70


def test_containment_is_of_whole_words() -> None:
    assert contains("It was Marie Curie.", "marie curie")
    assert not contains("someone", "one")
    assert not contains("1.55", "1.5")
    assert not contains("x", "")


async def test_a_resumed_run_goes_on_with_its_window() -> None:
    judge = audited()
    await feed(judge, "Marie Curie")
    judge.step()
    await feed(judge, "Pierre", LEAST // 2)
    resumed = audited()
    resumed.load_state_dict(json.loads(json.dumps(judge.state_dict())))
    judge.step()
    for either in (judge, resumed):
        await feed(either, "Pierre")
    assert [str(a) for a in resumed.step()[1]] == [str(a) for a in judge.step()[1]] != []
