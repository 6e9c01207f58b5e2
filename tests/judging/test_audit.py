"""The reward-hacking alarm: checks, logged figures, and when it is raised."""

import json

import pytest
from helpers import rollouts
from helpers.judging import FALSE, HYBRID, TRUE, ScriptedModel, asked

from llm_as_judge.judging.audit import LEAST, AuditedJudge, contains
from llm_as_judge.judging.judge import Judge
from llm_as_judge.types import Completion, Execution, Group, Problem, Reference, Reward, Rollout


def problem(i: int) -> Problem:
    return rollouts.problem(f"p{i}", "qa", reference=Reference(("Marie Curie",)))


def audited(share: float = 1.0, second: ScriptedModel | None = None) -> AuditedJudge:
    config = asked(audit_share=share, audit_gap=0.3, second_role="audit")
    return AuditedJudge(config, Judge(HYBRID, ScriptedModel(TRUE)), second)


async def feed(judge: AuditedJudge, answer: str, n: int = LEAST) -> list[Group]:
    """Groups of one rollout each, judged."""
    groups = []
    for i in range(n):
        said = f"{answer} ({i})" if n > 1 else answer
        verdict = await judge.verdict(problem(i), said)
        assert verdict.correct is True  # an audit changes no verdict
        completion, run = Completion("", (1,), (1,), (0.0,), "stop"), Execution("finished", said)
        groups.append(Group(problem(i), [Rollout(problem(i), completion, "", run, verdict, Reward(1.0))]))
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


async def test_a_constant_share_of_failed_checks_and_no_audit_raise_no_alarm() -> None:
    judge, without = audited(), audited(share=0.0)
    for _ in range(3):
        assert not judge.step(await feed(judge, "the discoverer of radium"))[1]
    figures, alarms = without.step(await feed(without, "the answer matches the reference", 60))
    assert (figures["qa"]["judged"], figures["qa"]["checked"], alarms) == (1.0, None, [])


async def test_a_second_judge_confirms_or_refutes_and_verdicts_of_rules_are_not_checked() -> None:
    for text, failed in ((TRUE, 0.0), (FALSE, 1.0)):
        judge = audited(second=ScriptedModel(text))
        groups = await feed(judge, "the discoverer of radium")
        assert judge.step(groups)[0]["qa"]["failed_checks"] == failed
    judge = audited()
    assert judge.step(await feed(judge, "Marie Curie", 1))[0]["qa"] == {
        "judged": 1.0, "checked": 1.0, "by_llm": 0, "checks": 0, "failed_checks": None,
    }  # fmt: skip
    tenth = audited(share=0.1)
    assert 15 <= tenth.step(await feed(tenth, "x", 400))[0]["qa"]["checks"] <= 70


def test_containment_is_of_whole_words() -> None:
    assert contains("It was Marie Curie.", "marie curie")
    assert not [pair for pair in (("someone", "one"), ("1.55", "1.5"), ("x", "")) if contains(*pair)]


async def test_a_resumed_run_keeps_its_window_and_figures_cover_the_given_groups_only() -> None:
    judge, resumed = audited(), audited()
    first = await feed(judge, "Marie Curie")
    later = await feed(judge, "Pierre", LEAST)  # batches ahead of the step may be judged before it ends
    assert judge.step(first)[0]["qa"]["checks"] == LEAST
    resumed.load_state_dict(json.loads(json.dumps(judge.state_dict())))
    assert judge.step(later)[1] == resumed.step(later)[1] != []
