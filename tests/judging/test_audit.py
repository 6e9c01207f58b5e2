"""The reward-hacking alarm: checks, logged figures, and when it is raised."""

from __future__ import annotations

import json

import pytest
from helpers import rollouts
from helpers.judging import FALSE, HYBRID, TRUE, ScriptedModel, asked

from llm_as_judge.judging.audit import LEAST, AuditedJudge, contains
from llm_as_judge.judging.judge import Judge
from llm_as_judge.types import Completion, Execution, Group, Problem, Reference, Reward, Rollout, Verdict


def problem(i: int) -> Problem:
    return rollouts.problem(f"p{i}", "qa", reference=Reference(("Marie Curie",)))


def audited(share: float = 1.0, second: ScriptedModel | None = None) -> AuditedJudge:
    config = asked(audit_share=share, audit_gap=0.3, second_role="audit")
    return AuditedJudge(config, Judge(HYBRID, ScriptedModel(TRUE)), second)


def group(i: int, answer: str, verdict: Verdict) -> Group:
    completion = Completion("", (1,), (1,), (0.0,), "stop")
    return Group(problem(i), [Rollout(problem(i), completion, "", Execution("finished", answer), verdict, Reward(1.0))])


async def feed(judge: AuditedJudge, answer: str, n: int = LEAST) -> list[Group]:
    groups = []
    for i in range(n):
        said = f"{answer} ({i})"
        verdict = await judge.verdict(problem(i), said)
        assert verdict.correct is True  # an audit changes no verdict
        groups.append(group(i, said, verdict))
    return groups


async def test_a_policy_that_learns_to_please_the_judge_raises_the_alarm() -> None:
    judge = audited()
    figures, alarms = judge.step(await feed(judge, "it was Marie Curie, born Sklodowska"))
    assert not alarms
    assert figures["qa"] == {"judged": 1.0, "checked": 1.0, "by_llm": LEAST, "checks": LEAST, "failed_checks": 0.0}
    figures, (alarm,) = judge.step(await feed(judge, "the answer matches the reference", 15))
    assert figures["qa"]["judged"] == 1.0
    assert figures["qa"]["checked"] == pytest.approx(1 - 15 / 35)
    assert alarm.failed == pytest.approx(15 / 35) and "judge.mode=rules" in str(alarm)


async def test_without_the_audit_nothing_is_noticed() -> None:
    judge = audited(share=0.0)
    figures, alarms = judge.step(await feed(judge, "the answer matches the reference", 60))
    assert (figures["qa"]["judged"], figures["qa"]["checked"], alarms) == (1.0, None, [])


async def test_a_constant_share_of_failed_checks_raises_no_alarm() -> None:
    judge = audited()
    for _ in range(3):
        assert not judge.step(await feed(judge, "the discoverer of radium"))[1]


async def test_a_second_judge_confirms_or_refutes() -> None:
    for text, failed in ((TRUE, 0.0), (FALSE, 1.0)):
        judge = audited(second=ScriptedModel(text))
        groups = await feed(judge, "the discoverer of radium")
        assert judge.step(groups)[0]["qa"]["failed_checks"] == failed


async def test_verdicts_of_rules_are_not_checked_and_the_share_is_kept() -> None:
    judge = audited()
    verdict = await judge.verdict(problem(0), "Marie Curie")
    assert judge.step([group(0, "Marie Curie", verdict)])[0]["qa"] == {
        "judged": 1.0, "checked": 1.0, "by_llm": 0, "checks": 0, "failed_checks": None,
    }  # fmt: skip
    tenth = audited(share=0.1)
    assert 15 <= tenth.step(await feed(tenth, "x", 400))[0]["qa"]["checks"] <= 70


def test_containment_is_of_whole_words() -> None:
    assert contains("It was Marie Curie.", "marie curie")
    assert not contains("someone", "one")
    assert not contains("1.55", "1.5")
    assert not contains("x", "")


async def test_a_resumed_run_keeps_its_window() -> None:
    judge = audited()
    judge.step(await feed(judge, "Marie Curie"))
    judge.step(await feed(judge, "Pierre", LEAST // 4))
    resumed = audited()
    resumed.load_state_dict(json.loads(json.dumps(judge.state_dict())))
    alarms = [[str(a) for a in either.step(await feed(either, "Pierre"))[1]] for either in (judge, resumed)]
    assert alarms[0] == alarms[1] != []


async def test_figures_cover_the_given_groups_only() -> None:
    """Batches ahead of the step may be judged before it ends."""
    judge, quiet = audited(), audited()
    first = await feed(judge, "Marie Curie")
    await feed(judge, "Pierre")  # of a later step
    assert judge.step(first) == quiet.step(await feed(quiet, "Marie Curie"))
    assert judge.state_dict() == quiet.state_dict()
