"""The ``evaluate`` command: rows by dataset, resuming from records, and unscored evaluations."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cli import SINGLE_CALL, CommandLine, Said
from helpers.knowing import knowing
from helpers.rollouts import Bench, problem
from helpers.tables import tables

from llm_as_judge.assembly.hosted import HostedModels
from llm_as_judge.assembly.services import open_services
from llm_as_judge.commands.evaluate import EvaluationResult, merge, run_evaluation
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.files import write_json
from llm_as_judge.llm.client import Usage
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import Completion, Execution, Problem, Question, Reference, Verdict

TABLES = tables(__file__)


@dataclass
class World(Bench):
    """Author, runner, judge and reward; ``ran`` are problems."""

    stop_after: int = 10**9
    written: int = 0

    @property
    def ran(self) -> list[str]:
        return [problem for _, problem in self.runs]

    def write(self, questions: Sequence[Question], samples: int = 1, start: int = 0) -> list[list[Completion]]:
        self.written += len(questions) * samples
        return [
            [Completion(f"# {start + i} {k}", (), (), (), "stop") for k in range(samples)]
            for i, _ in enumerate(questions)
        ]

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        if len(self.runs) >= self.stop_after:
            raise asyncio.CancelledError
        return await super().run(source, question)

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        right = int(problem.question.id[1:]) % 2 == 0
        names = {"gsm8k": ("flexible-extract",), "squad2": ("exact", "f1")}.get(problem.question.dataset, ())
        return Verdict(right, "metric" if names else "rules", scores=dict.fromkeys(names, float(right)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, here: Path) -> World:
    made = World(lambda source, question: question.text)

    @asynccontextmanager
    async def services(config: Config, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        sandbox = SimpleNamespace(describe=lambda: "none")
        usage = {"executor": Usage(calls=len(made.runs), cost=0.5), "judge": Usage()}
        official = RolloutParts(made, made, made, concurrency=1)
        hosted = HostedModels(config)
        yield SimpleNamespace(official=official, sandbox=sandbox, usage=lambda: usage, hosted=hosted)

    monkeypatch.setattr("llm_as_judge.assembly.services.open_services", services)
    monkeypatch.setattr("llm_as_judge.assembly.policy.load_author", lambda *rest, progress: made)
    return made


def data(monkeypatch: pytest.MonkeyPatch, problems: Sequence[Problem], name: str = "mixed.jsonl") -> Path:
    monkeypatch.setattr("llm_as_judge.data.problems.read_problems", lambda path, *fields: list(problems))
    Path(name).write_text('{"problem": "1 + 1?", "answer": "2", "type": "math"}\n')
    return Path(name)


async def evaluated(path: Path, config: Config = Config(), **options: Any) -> EvaluationResult:  # noqa: B008
    (result,) = await run_evaluation(config, data=[path], **options)
    return result


def of(dataset: str, *ids: str) -> list[Problem]:
    return [problem(id, "qa" if dataset == "squad2" else "math", dataset, Reference(("x",))) for id in ids]


TWELVE = problem("12", "math", "gsm8k", Reference(("12",)))
MIXED = [*of("gsm8k", "p0", "p1"), *of("squad2", "p2", "p3", "p4"), *of("custom", "p5")]


def saved() -> list[dict[str, Any]]:
    (file,) = Path("results/evaluation").glob("*_results.json")
    rows: list[dict[str, Any]] = json.loads(file.read_text())["datasets"]
    return rows


async def test_each_dataset_has_its_row_which_another_evaluation_of_it_renews(
    world: World, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    await evaluated(data(monkeypatch, MIXED))
    assert [(row["dataset"], row["metrics"]["accuracy"], row["metrics"]["problems"]) for row in saved()] == [
        ("gsm8k", 0.5, 2), ("squad2", 2 / 3, 3), ("mixed", 0.0, 1),
    ]  # fmt: skip
    names = [row["metrics"]["official"][row["dataset"]]["name"] for row in saved()]
    assert names == ["flexible-extract", "exact", "accuracy by rules"]
    adapter = here / "step_1"
    adapter.mkdir()
    await evaluated(data(monkeypatch, MIXED[:1]), checkpoint=adapter)
    await evaluated(data(monkeypatch, MIXED[:1]))
    assert [(row["dataset"], row["checkpoint"], row["metrics"]["problems"]) for row in saved()] == [
        ("gsm8k", None, 1), ("squad2", None, 3), ("mixed", None, 1), ("gsm8k", str(adapter), 1),
    ]  # fmt: skip
    for name in ("math.jsonl", "aime25.jsonl"):  # a file in a form of your own keeps its name, also a benchmark's
        await evaluated(data(monkeypatch, MIXED[-1:], name))
    assert [row["dataset"] for row in saved()][4:] == ["math", "aime25"]


async def test_policies_load_and_write_in_a_thread_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **named: Any) -> Any:
            threads.append(threading.current_thread())
            return work(*args, **named)

        return noted

    monkeypatch.setattr("llm_as_judge.assembly.policy.load_author", noting(lambda *rest, progress: world))
    monkeypatch.setattr(World, "write", noting(World.write))
    for some in (MIXED, MIXED[:1]):
        await evaluated(data(monkeypatch, some))
    assert len(threads) == 4 and len(set(threads)) == 1, "OpenMP has one team"
    assert threads[0] is not threading.main_thread()


async def test_an_interrupted_evaluation_resumes_at_no_cost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, world.stop_after = data(monkeypatch, MIXED), 4
    said = Said()
    with pytest.raises(asyncio.CancelledError):
        await evaluated(path, progress=said)
    assert said.lines[-1].startswith("4 of 6 workflows are recorded") and said.done[-1] == (4, 6)
    world.stop_after, world.down = 10**9, {"p4"}
    resumed = await evaluated(path, resume=True)
    assert (resumed.known, world.ran) == (4, ["p0", "p1", "p2", "p3", "p4", "p5"])
    assert sum(sum(row.unscored.values()) for row in resumed.rows.values()) == 1
    world.down = set()
    again = await evaluated(path, resume=True)
    assert (world.ran[6:], again.scored) == (["p4"], 6), "an infrastructure fault is tried again"
    written, whole = world.written, saved()
    again = await evaluated(path, resume=True)
    assert (again.known, len(world.ran), world.written) == (6, 7, written) and saved() == whole
    assert (await evaluated(path)).known == 0 and len(world.ran) == 13
    hotter = Config.model_validate({"generation": {"eval_temperature": 0.9}})
    for change in dict[str, Any](config=hotter), {"samples": 2}, {"limit": 5}:
        assert (await evaluated(path, resume=True, **change)).known == 0, "other settings are another evaluation"
    elsewhere = Config.model_validate({"executor": {"base_url": "http://127.0.0.1:1/v1", "api_key": "other"}})
    assert (await evaluated(path, elsewhere, resume=True)).known == 6


def test_records_of_earlier_versions_are_refused_with_a_message(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    old = '{"index":0,"sample":0,"problem":"p","dataset":"gsm8k","domain":"math","workflow":"x","outcome":"finished"}\n'
    for text in (old, old.replace("{", '{"kind":"rollout",')):
        path.write_text(text)
        with pytest.raises(DataError, match=r"records\.jsonl: (no records of this|.* of an earlier) version.* away"):
            Ledger(path, resume=True)
        assert path.read_text() == text


def test_nothing_scored_is_null_and_status_1(world: World, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    command = ["evaluate", "--untrained", "--json", "--data", data(monkeypatch, MIXED[:2])]
    cli(*command)
    before, world.down = saved(), {"p0", "p1"}
    out = cli(*command, status=1)
    assert json.loads(out)["datasets"][0]["metrics"]["accuracy"] is None and "NaN" not in out
    assert "no problem could be scored" in cli.err and "no reply" in cli.err
    assert saved() == before, "results that say something are not replaced by some that do not"


@pytest.mark.slow
def test_a_graph_folder_is_evaluated(
    monkeypatch: pytest.MonkeyPatch, here: Path, graphs: Path, cli: CommandLine
) -> None:
    """With the embedded executor, and without a policy."""
    monkeypatch.setattr("llm_as_judge.assembly.policy.load_author", None)
    shutil.copytree(graphs / "folders/metagpt_gsm8k", "round_3")
    Path("one.jsonl").write_text('{"problem": "What is 2 + 2?", "answer": "4", "type": "math"}\n')
    command = ["evaluate", "--workflow", "round_3", "--data", "one.jsonl"]
    cli(*command)
    (row,) = saved()
    assert (row["workflow"], row["metrics"]["outcomes"]) == ("round_3/graph.py", {"finished": 1})
    (records,) = Path("results/evaluation").glob("*.jsonl")
    assert json.loads(records.read_text())["rollout"]["workflow"] == Path("round_3/graph.py").read_text()
    Path("round_3/prompt.py").unlink()
    cli(*command)
    assert len(list(Path("results/evaluation").glob("*.jsonl"))) == 2, "another prompt.py is another evaluation"
    (row,) = saved()
    assert row["metrics"]["outcomes"] == {"invalid": 1} and "W210" in str(row["metrics"]["invalid"])


def test_an_interruption_says_how_to_continue(world: World, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    run = World.run

    async def interrupted(self: World, source: str, question: Question, seed: int | None = None) -> Execution:
        if len(self.runs) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(5)
        return await run(self, source, question, seed)

    monkeypatch.setattr(World, "run", interrupted)
    words = ["evaluate", "--data", str(data(monkeypatch, MIXED)), "--untrained"]
    cli(*words, status=143)
    assert cli.err.splitlines()[-1].endswith(f"continue with: llm-as-judge {shlex.join(words)} --resume")
    monkeypatch.setattr(World, "run", run)
    cli(*words, "--resume")
    assert world.ran == [f"p{i}" for i in range(6)]


async def test_simultaneous_evaluations_lose_no_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a dataset of its own, and takes its time between reading the file of results and writing it."""
    result = await evaluated(data(monkeypatch, MIXED[:1]))
    (template,) = result.as_json()["datasets"]
    result.file.unlink()

    def slowly(path: Path, value: Any) -> None:
        time.sleep(0.05)
        write_json(path, value)

    def end(name: str) -> None:
        told = SimpleNamespace(model="nano", as_json=lambda: {"datasets": [{**template, "dataset": name}]})
        merge(result.file, told)  # type: ignore[arg-type]

    monkeypatch.setattr("llm_as_judge.files.write_json", slowly)
    names = {f"set {i}" for i in range(8)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(end, names))
    assert {row["dataset"] for row in saved()} == names


async def test_the_same_evaluation_twice_at_once_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = data(monkeypatch, MIXED)
    run = World.run

    async def second(self: World, source: str, question: Question, seed: int | None = None) -> Execution:
        if not self.ran:
            with pytest.raises(ConfigError, match=r"written by another process \(process \d+\).*--resume"):
                await evaluated(path, resume=True)
        return await run(self, source, question, seed)

    monkeypatch.setattr(World, "run", second)
    result = await evaluated(path)
    assert result.scored == 6 and len(result.records.read_text().splitlines()) == 6


async def test_no_judge_is_asked_where_rules_decide_alone(here: Path) -> None:
    with knowing() as executor, knowing() as judge:
        roles = {"executor": executor.url, "judge": judge.url}
        settings = [f"{role}.{name}" for role, url in roles.items() for name in ("provider=openai", f"base_url={url}")]
        config = load_config(None, settings)
        async with open_services(config, judging=False) as services:
            assert (executor.asked, judge.asked) == (1, 0)
            verdict = await services.official.judge.verdict(MIXED[-1], "x")
            assert (verdict.correct, verdict.tier) == (True, "rules") and services.alone is None
        async with open_services(config):
            assert (executor.asked, judge.asked) == (2, 1)
        async with open_services(load_config(None, [*settings, "judge.mode=metric"])) as services:
            assert (executor.asked, judge.asked) == (3, 1)
            said = [await parts.judge.verdict(TWELVE, "That is 5 + 7 = 12 in all.") for parts in (
                services.training, services.official
            )]  # fmt: skip
            assert [(v.correct, v.tier, v.scores["strict-match"]) for v in said] == [(True, "metric", 0.0)] * 2


NAMED = TABLES["NAMED"]


def test_named_sets_and_whole_folders_are_rows(here: Path, cli: CommandLine) -> None:
    with knowing() as served:
        Path("w.py").write_text(SINGLE_CALL)
        settings = ("executor.provider=openai", f"executor.base_url={served.url}", "executor.model=knowing")
        command = ["evaluate", "--workflow", "w.py", *(f"--set={setting}" for setting in settings)]
        error = cli.refused(*command, "--datasets", "gsm8k")
        assert "make the test sets (llm-as-judge data process)" in error
        Path("data/test").mkdir(parents=True)
        for name, record in NAMED.items():
            Path("data/test", name).write_text(json.dumps(record) + "\n")
        for options, message in TABLES["wrong sets"]:
            assert message in cli.refused(*command, "--datasets", *options)
        for names in ("math,gsm8k", "own"):
            cli(*command, "--datasets", names)
        rows = [(row["dataset"], row["metrics"]["accuracy"]) for row in saved()]
        assert rows == [("math", 0.0), ("gsm8k", 0.0), ("own", 0.0)], "another set adds its own row"
        shutil.rmtree("results")
        Path("data/test/own.jsonl").rename("data/test/own_test.jsonl")
        cli(*command, "--data", "data/test", "--limit", 1)
        rows = sorted((row["dataset"], row["metrics"]["problems"]) for row in saved())
        assert rows == [("gsm8k", 1), ("math", 1), ("own", 1)]
