"""The user's own verdict (``judge.function``): who is asked, what its values mean, what its failures cost."""

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers.cli import SINGLE_CALL, CommandLine
from helpers.finished import EMBEDDED, as_options, run_settings
from helpers.knowing import Knowing, knowing
from helpers.run_logs import read_rollouts
from helpers.samples import write_lines
from helpers.tables import tables

from llm_as_judge.assembly.services import open_services
from llm_as_judge.commands.compare import run_comparison
from llm_as_judge.config.identity import identity
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.integrations.rows import training_rows
from llm_as_judge.integrations.score import Scorer
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.judging.own import LATER, Function, OwnJudge
from llm_as_judge.rewards.terms import RewardFunction
from llm_as_judge.rl.rollout import RolloutParts, collect
from llm_as_judge.types import Completion, Execution, Group, Problem, Question, Reference, Reward, Rollout, Verdict

TABLES = tables(__file__)

#: A task without a gold answer: longer answers are better, and "no idea" is what the executor of these tests says.
FUNCTIONS = TABLES["FUNCTIONS"]
MATHS, OPEN = Reference(("4",)), Reference()


def problem(reference: Reference = OPEN, dataset: str = "", text: str = "2 + 2?") -> Problem:
    return Problem(Question("p", text, "math", dataset=dataset), reference)


@pytest.fixture
def module(here: Path) -> Iterator[ModuleType]:
    """The functions, in a module that the settings name ``own_verdicts:NAME``."""
    (here / "own_verdicts.py").write_text(FUNCTIONS, encoding="utf-8")
    sys.modules.pop("own_verdicts", None)
    sys.path.insert(0, str(here))
    import own_verdicts  # type: ignore[import-not-found]

    yield own_verdicts
    sys.path.remove(str(here))
    sys.modules.pop("own_verdicts", None)


def judged_by(name: str, *more: str) -> Config:
    return load_config(EMBEDDED, [f"judge.function=own_verdicts:{name}", *more])


def own(name: str, *more: str, **options: Any) -> OwnJudge:
    return OwnJudge(judged_by(name, *more).judge, **options)


async def test_a_score_is_right_from_right_at_on_and_correctness_follows_it(module: ModuleType) -> None:
    found = await own("length").verdicts(problem(), [("12345678", "code"), ("1234", ""), ("", ""), (None, "")])
    assert [(v.correct, v.score, v.tier) for v in found] == [
        (True, 1.0, "function"), (False, 0.5, "function"), (False, 0.0, "function"), (False, None, "none"),
    ]  # fmt: skip
    assert module.calls == [[("2 + 2?", a, w, None) for a, w in (("12345678", "code"), ("1234", ""), ("", ""))]]
    (half,) = await own("length", "judge.right_at=0.5").verdicts(problem(), [("1234", "")])
    assert half.correct is True and half.score == 0.5
    reward = RewardFunction(load_config(EMBEDDED).reward)
    completion, run = Completion("", (), (), (), "stop"), Execution("finished", "x")
    terms = [
        reward(Rollout(problem(), completion, "", run, verdict, Reward(None))).terms["correctness"]
        for verdict in (*found[:3], half, Verdict(True, "rules"), Verdict(False, "rules"))
    ]
    assert terms == [10.0, 2.5, -5.0, 2.5, 10.0, -5.0]
    assert [(await own("idea").verdict(problem(), said)).correct for said in ("no idea", "4")] == [True, False]


async def test_none_and_exceptions_leave_only_their_answer_open(module: ModuleType) -> None:
    found = await own("picky").verdicts(problem(), [("a", ""), ("crash", ""), ("skip", ""), ("b", "")])
    assert [v.correct for v in found] == [True, None, None, True]
    assert [v.abstained for v in found] == [False, True, True, False]
    assert "raised KeyError: 'no key' (" in found[1].reason and "own_verdicts.py, line 15)" in found[1].reason
    assert "gave None" in found[2].reason


async def test_functions_that_cannot_be_used_are_refused_with_value_and_cure(module: ModuleType) -> None:
    with pytest.raises(ConfigError, match=r"judge.function .*has no 'lenght'; did you mean 'length'"):
        own("lenght")
    for name, message in (
        ("broken", "name 'undefined' is not defined .* raised in 3 of 3 calls"),
        ("one", "must return a list of 2 values, one for each item, got 1"),
        ("high", r"True, False or numbers in \[0, 1\], or None .* got 7.5"),
    ):
        with pytest.raises(ConfigError, match=message):
            await own(name).try_out(problem(), "")
    await own("picky").try_out(problem(), "")


async def test_benchmarks_keep_their_scorers_in_evaluations_and_not_in_training(module: ModuleType) -> None:
    evaluating, training = own("idea", official=Judge(OFFICIAL)), own("idea")
    gsm8k = problem(MATHS, "gsm8k")
    assert [(await judge.verdict(gsm8k, "It is 4")).tier for judge in (evaluating, training)] == ["metric", "function"]
    for data in (problem(MATHS), problem(MATHS, "mine")):
        assert (await evaluating.verdict(data, "no idea")).correct is True  # the rules would refuse it
    code = Problem(replace(gsm8k.question, domain="code", dataset="mine"), Reference(tests="assert f(1)"))
    assert (evaluating.decides(code), training.decides(code)) == (False, True)


class Says:
    """A runner whose workflows answer with their own text."""

    runs = 0

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        self.runs += 1
        return Execution("raised" if source == "raise" else "finished", source)


async def groups(judge: OwnJudge, *texts: list[str], **parts: Any) -> list[Group]:
    completions = [[Completion(text, (), (), (), "stop") for text in group] for group in texts]
    runner, reward = parts.pop("runner", Says()), RewardFunction(load_config(EMBEDDED).reward)
    parts = RolloutParts(runner, judge, reward, **parts)  # type: ignore[arg-type]
    return await collect([problem(text=f"{i}?") for i in range(len(texts))], completions, parts)


async def test_training_asks_once_a_group_and_waits(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = await groups(own("length", together=True), ["12345678", "raise", "12"], ["1234"])
    assert sorted(module.calls) == [
        [("0?", "12345678", "12345678", None), ("0?", "12", "12", None)], [("1?", "1234", "1234", None)],
    ]  # fmt: skip
    assert [r.verdict.score for r in (*one.rollouts, *two.rollouts)] == [1.0, None, 0.25, 0.5]
    right, raised, wrong = [r.reward.total for r in one.rollouts]
    assert right is not None and raised is not None and wrong is not None and right > wrong > raised
    assert not any(r.verdict == LATER for r in (*one.rollouts, *two.rollouts))

    paused, asked, runner = list[str](), list[list[str]](), Says()

    def mended(completions: list[str]) -> list[bool]:
        asked.append(completions)
        return [True] * len(completions)

    def on_pause(line: str) -> None:
        paused.append(line)
        assert isinstance(judge.grader, Function)
        judge.grader._function._function = mended
        judge.grader._function._takes_all = False

    monkeypatch.setattr("llm_as_judge.rl.rollout._FIRST_WAIT_S", 0.01)
    judge = own("picky", together=True)
    (group,) = await groups(
        judge, ["crash", "crash 2", "fine"], runner=runner, max_unscored=0.5, patience_s=1.0, on_pause=on_pause
    )
    assert [r.verdict.correct for r in group.rollouts] == [True] * 3
    assert len(paused) == 1 and "67% of the rollouts could not be scored" in paused[0] and "KeyError" in paused[0]
    assert runner.runs == 5 and asked == [["crash", "crash 2"]], "what was scored is neither run nor judged again"


async def test_a_repaired_group_is_judged_once_at_its_end_and_repairs_cost(module: ModuleType) -> None:
    told, now = list[str](), list[int]()

    class Repairing(Says):
        async def feedback(self, execution: Execution, question: Question) -> str:
            return "raised" if execution.outcome == "raised" else ""

    async def again(failed: Sequence[Completion], feedback: Sequence[str]) -> list[Completion]:
        told.extend(feedback)
        now.append(len(module.calls))
        return [replace(one, text="1234") for one in failed]

    texts = ["raise", "1234", "12345678"]
    completions = [[Completion(text, (), (), (), "stop") for text in texts] for _ in range(2)]
    reward = RewardFunction(load_config(EMBEDDED).reward, repairs=1)
    parts = RolloutParts(Repairing(), own("length", together=True), reward, repairs=1)  # type: ignore[arg-type]
    first, _ = await collect([problem(text=f"{i}?") for i in range(2)], completions, parts, again=again)
    assert told == ["raised"] * 2 and now == [0], "nothing is judged before the last repair"
    asked = [("1234", "1234"), ("1234", "1234"), ("12345678", "12345678")]
    assert sorted(module.calls) == [[(f"{i}?", *pair, None) for pair in asked] for i in range(2)]
    repaired, clean = (rollout.reward.total or 0.0 for rollout in first.rollouts[:2])
    assert repaired == pytest.approx(clean - 0.5) and first.rollouts[0].verdict.score == 0.5


async def test_the_services_use_it_everywhere_and_open_no_judge_model(module: ModuleType) -> None:
    with knowing() as served:
        settings = ["executor.provider=openai", f"executor.base_url={served.url}", "judge.provider=openai"]
        config = judged_by("idea", *settings, "judge.base_url=http://127.0.0.1:9/v1")
        for judging in (True, False):
            async with open_services(config, judging=judging) as services:
                assert set(services.clients) == {"executor"} and services.alone is None
                said = await services.official.judge.verdict(problem(MATHS), "no idea")
                assert (said.correct, said.tier) == (True, "function")
                assert isinstance(services.training.judge, OwnJudge) and services.training.judge.together


async def test_a_judge_that_cannot_copy_an_answer_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with knowing() as served:
        of = ("provider=openai", f"base_url={served.url}")
        roles = [f"{role}.{part}" for role in ("executor", "judge") for part in of]
        async with open_services(load_config(None, [*roles, "judge.mode=llm"])) as services:
            for judge in (services.training.judge, services.alone):
                assert judge is not None
                await judge.verdict(problem(MATHS), "It may have been an owl that was on it, or so they say")
    assert len([line for line in caplog.messages if "did not copy" in line]) == 1


@pytest.fixture
def own_data(module: ModuleType) -> Iterator[tuple[Knowing, list[str]]]:
    """An executor that answers "no idea", and settings of problems that ``idea`` calls right and the rules wrong."""
    lines = [{"problem": f"What is {n} + {n}?", "answer": f"{2 * n}", "type": "math"} for n in range(1, 7)]
    write_lines(Path("train.jsonl"), lines[:4])
    write_lines(Path("test.jsonl"), lines[4:])
    with knowing() as served:
        yield served, [
            "executor.provider=openai", f"executor.base_url={served.url}", "executor.max_retries=0",
            "domain_ratios={math: 1, code: 0, qa: 0}", "train_dataset=train.jsonl", "test_dataset=test.jsonl",
            "judge.function=own_verdicts.py:idea",
        ]  # fmt: skip


def test_evaluate_shows_its_metric_and_records_are_a_functions(
    own_data: tuple[Knowing, list[str]], cli: CommandLine
) -> None:
    Path("w.py").write_text(SINGLE_CALL)
    command = ["evaluate", "--workflow", "w.py", "--data", "test.jsonl", "--resume"]
    out = cli(*command, *as_options(own_data[1]))
    assert "right by judge.function" in out and "100.0 [" in out and "mean score" in out
    scored = [*own_data[1][:-1], "judge.function=own_verdicts.py:length", "judge.right_at=0.9"]
    (row,) = cli.json(*command, *as_options(scored))["datasets"]
    (official,) = row["metrics"]["official"].values()
    assert (official["right by judge.function"], official["mean score"], row["metrics"]["score"]) == (0.0, 0.875, 0.875)
    (row,) = cli.json(*command, *as_options([*scored[:-1], "judge.right_at=0.8"]))["datasets"]
    assert row["metrics"]["accuracy"] == 1.0, "records of another threshold are not reused"
    configs = [
        load_config(EMBEDDED, [*own_data[1][:-1], f"judge.function=own_verdicts.py:{n}"]) for n in ("idea", "one")
    ]
    before = [identity(config) for config in configs]
    Path("own_verdicts.py").write_text(FUNCTIONS + "\n", encoding="utf-8")
    assert len({*before, identity(configs[0])}) == 3
    wrong = [*own_data[1][:-1], "judge.function=own_verdicts.py:one"]
    assert "must return a list of 2 values" in cli.refused(*command, *as_options(wrong))


async def test_compare_and_baselines_follow_it(own_data: tuple[Knowing, list[str]]) -> None:
    config = load_config(EMBEDDED, [*own_data[1][:-1], "judge.function=own_verdicts.py:length"])
    result = await run_comparison(config, limit=2)
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["single call (IO)"]["overall"] == 0.0 and rows["single call (IO)"]["score"] == 0.875
    assert "mean score" in result["table"] and "87.5 [" in result["table"]


async def test_scorer_and_trl_give_its_reward(own_data: tuple[Knowing, list[str]]) -> None:
    config = load_config(EMBEDDED, [*own_data[1][:-1], "judge.function=own_verdicts.py:length"])
    (row,) = training_rows(config, 1)

    with closing(Scorer(config)) as scorer:
        rollout = await scorer.score(row, SINGLE_CALL)
    assert (rollout.verdict.score, rollout.reward.terms["correctness"]) == (0.875, -5 + 15 * 0.875)
    with pytest.raises(ConfigError, match="must return a list of 2 values"):
        training_rows(load_config(EMBEDDED, [*own_data[1][:-1], "judge.function=own_verdicts.py:one"]), 1)
    trl = pytest.importorskip("llm_as_judge.integrations.trl")
    reward = trl.WorkflowReward(config)
    with closing(reward.scorer):
        (total,) = await reward([""], [SINGLE_CALL], record=[row["record"]])
    assert total == rollout.reward.total


def test_failures_of_a_function_are_counted(module: ModuleType, here: Path, address: str, cli: CommandLine) -> None:
    changes = {"judge.function": "own_verdicts.py:flaky", "eval_problems": 6, "eval_every": 0}
    settings = run_settings(here, address, **changes)
    out = cli("train", *as_options([*settings, "evaluation.baselines=none", "domain_ratios={math: 1, code: 0, qa: 0}"]))
    logs = [here / "logs/nano/grpo_mixed.jsonl", *(here / "results/evaluation").glob("nano_grpo_mixed_*.jsonl")]
    rollouts = [event.rollout for log in logs for event in read_rollouts(log)]
    failed = [rollout for rollout in rollouts if "raised RuntimeError: the tenth" in rollout.verdict.reason]
    assert len(logs) == 3 and len(rollouts) == 2 * 3 * 3 + 2 * 6
    assert failed and all(r.verdict.correct is None and r.reward.total is None for r in failed)
    assert re.search(r"mean score +unscored", out) and re.search(r"untrained policy .* [1-9]\d*\s*$", out, re.MULTILINE)
    refused = cli.refused("train", *as_options([*settings, "judge.function=own_verdicts.py:broken", "run_name=b"]))
    assert "name 'undefined' is not defined" in refused and not list(here.rglob("b/step_*"))


def test_problems_without_an_answer_need_it(module: ModuleType, cli: CommandLine) -> None:
    Path("open.jsonl").write_text('{"problem": "Write a poem.", "type": "qa"}\n', encoding="utf-8")
    Path("w.py").write_text(SINGLE_CALL)
    assert asyncio.run(Judge(OFFICIAL).verdict(problem(), "4")).correct is None
    with knowing() as served:
        settings = as_options(["executor.provider=openai", f"executor.base_url={served.url}"])
        command = ["evaluate", "--workflow", "w.py", "--data", "open.jsonl", *settings]
        said = cli.refused(*command)
        assert "open.jsonl:1: neither an answer nor tests" in said and "judge.function" in said
        assert "right by judge.function" in cli(*command, "--set", "judge.function=own_verdicts.py:idea")
