"""Several executors: workflows choose by name, each call goes to that endpoint, and counts at its price."""

import asyncio
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.cli import CommandLine
from helpers.knowing import Knowing, knowing
from helpers.processes import ROOT, free_port
from helpers.rollouts import problem, rollout
from helpers.run_logs import write
from helpers.workflows import QUESTION, linted, workflow
from rich.console import Console
from running import Script, Wait

from llm_as_judge.assembly import recording
from llm_as_judge.assembly.hosted import HostedModels
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.run_folder import _changes, _deciding
from llm_as_judge.assembly.services import open_services
from llm_as_judge.commands.compare import run_comparison
from llm_as_judge.commands.doctor import checks_of, run_check
from llm_as_judge.commands.plan import make_plan
from llm_as_judge.config.identity import identity
from llm_as_judge.config.loading import load_config, to_yaml
from llm_as_judge.config.schema import RewardConfig, WorkflowConfig
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.evaluation import voting
from llm_as_judge.evaluation.analysis import analyze_log
from llm_as_judge.evaluation.evaluate import Given
from llm_as_judge.events import RolloutEvent, UsageEvent
from llm_as_judge.rewards.terms import efficiency, repetition
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Exchange, Execution, OperatorCall
from llm_as_judge.views.watch import analysis_tables
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.run import Budget, Executor, WorkflowRunner

EXAMPLE = ROOT / "examples/two_executors"
TWO = """
executor: {model: a, provider: openai, base_url: http://a/v1, price_per_million_input: 1, price_per_million_output: 2}
executors:
  strong: {model: b, provider: openai, base_url: http://b/v1, price_per_million_input: 4, price_per_million_output: 4,
           max_tokens: 50, api_key: hush, description: the better one}
"""


def loaded(text: str, *overrides: str) -> Any:
    Path("c.yaml").write_text(text, encoding="utf-8")
    return load_config("c.yaml", overrides)


def named(call: str) -> str:
    return workflow(init=f"self.custom = operator.Custom(self.llm{call})")


def test_the_section_has_names_whose_settings_are_those_of_executor(here: Path) -> None:
    third_price = (f"executors.third.price_per_million_{kind}=3" for kind in ("input", "output"))
    config = loaded(TWO, "executors.strong.temperature=0.5", "executors.third.model=007", *third_price)
    third = config.executors["third"]
    assert (config.executors["strong"].temperature, third.model) == (0.5, "007")
    assert "hush" not in to_yaml(config) and loaded(to_yaml(config)).executors["third"] == third
    Path("llm.yaml").write_text("models: {b: {model_name: there, base_url: http://c/v1}}", "utf-8")
    assert (loaded(TWO).executors["strong"].base_url, loaded("seed: 1").choices) == ("http://c/v1", {})
    Path("llm.yaml").unlink()
    # What decides results: a description, which the policy reads, but not where the model is.
    same, other = (loaded(TWO, f"executors.strong.{change}") for change in ("base_url=http://x/v1", "description=x"))
    assert identity(loaded(TWO)) == identity(same) != identity(other)
    dearer = loaded(TWO, "executor.price_per_million_input=9")  # tokens are weighed by it
    first, *changed = (_deciding(one) for one in (loaded(TWO), same, other, dearer))
    assert "hush" not in str(first), "it is written beside the checkpoints"
    added = _deciding(load_config(None)), _deciding(load_config(None, ["executors.strong.model=a"]))
    whats = [next(_changes(was, now), "").partition(" was ")[0] for was, now in (*((first, c) for c in changed), added)]
    assert whats == ["", "executors", "executor.price_per_million_input", "executors"]
    one = "executors: {%s}"
    for text, message in {
        one % "default: {model: b}": "c.yaml:1: 'executors.default.model': 'default' cannot be a name",
        one % "'': {model: b}": "'' cannot be a name", one % "a b: {model: b}": "'a b' cannot be a name",
        "executors:\n  a: {model: b}\n  a: {model: c}": "c.yaml:3: not valid YAML: 'a' is set twice, first in line 2",
        one % "a: {modle: b}": "did you mean executor.model?", one % "a: {}": "executor 'a' has no settings",
        one % "a: {max_tokens: 0}": "c.yaml:1: executors.a.max_tokens = 0", "executors: [a]": "'name: value' lines",
        one % "a: {provider: local, model: m, context: 9}": "context=9 has no room",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(message)):
            loaded(text)
    with pytest.raises(ConfigError, match=r"--set executors\.strong: .*write executors\.NAME\.model"):
        loaded(TWO, "executors.strong=b")
    assert loaded(one % "schön: {model: b}").executors["schön"].model == "b"


async def test_a_price_that_is_missing_is_told(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text, warnings in {TWO: 0, TWO + "  free: {model: c}": 1}.items():
        nowhere = "executor.base_url=http://127.0.0.1:9/v1"
        with pytest.raises(ProviderError):
            async with open_services(loaded(text, nowhere), judging=False):
                pass
        assert caplog.text.count("executor free has no price, unlike others") == warnings


def test_lint_knows_the_names_and_the_prompt_lists_them(here: Path) -> None:
    good = ("", ", model='strong'", ", executor='fast'", ", name='x', model='fast'", ", model=None", ", model=name")
    assert not [found for call in good for found in linted(named(call), executors=("fast", "strong"))]
    for call in (", model='best'", ", executor='best'", ", model=''", ", model=5"):
        (found,) = linted(named(call), executors=("fast", "strong"))
        assert (found.code, found.line, found.fatal) == ("W203", 4, True), call
        assert found.message.endswith("; there are fast, strong")
    (found,) = linted(named(", model='strong'"))  # without executors, as ever
    assert "unexpected keyword argument 'model'" in found.message
    for style in ("full", "short"):
        plain = Layer1(WorkflowConfig(prompt=style)).system
        system = Layer1(WorkflowConfig(prompt=style), {}, loaded(TWO).choices).system
        assert system.startswith(plain) and Layer1(WorkflowConfig(prompt=style), {}).system == plain
        assert "- default: 1 per million tokens in, 2 out\n" in system and 'model="strong"' in system
        assert "- strong: 4 per million tokens in, 4 out; the better one" in system
    assert load_author(loaded("executors.strong.model: b")).prompt.system.endswith("\n- default\n- strong\n")


def test_calls_go_to_the_named_executor_at_its_price(wait: Wait, box: Sandbox, here: Path) -> None:
    config = loaded(TWO)
    default, strong = (Script(by=lambda prompt, who=who: who, cost=cost) for who, cost in (("a", 2e-5), ("b", 6e-5)))

    def ran(source: str, **settings: Any) -> Any:
        others = {"strong": Executor(strong, config.executors["strong"])}
        runner = WorkflowRunner(default, box, WorkflowConfig(**settings), config.executor, named=others)
        return wait(runner.run(source, QUESTION))

    both = "self.custom = operator.Custom(self.llm)\nself.other = operator.Custom(self.llm, executor=name and 'strong')"
    ask = "p, q = [(await c(problem, ''))['response'] for c in (self.custom, self.other)]\nreturn p + q, 0.0"
    execution = ran(workflow(ask, init=both))
    assert (execution.outcome, execution.answer, len(default.prompts), len(strong.prompts)) == ("finished", "ab", 1, 1)
    first, second = execution.calls
    # 10 prompt and 5 reply tokens: 20 at the default's prices, 60 at the other's.
    assert ([c.executor for c in execution.calls], first.weight, second.weight) == (["", "strong"], 1, 3)
    made = replace(rollout(problem("q", "math"), True), execution=execution)
    assert (execution.tokens, made.weighed_tokens, execution.cost) == (30, 60, pytest.approx(8e-5))
    assert efficiency(made, RewardConfig(token_budget=120)) == 5 and repetition(made, RewardConfig()) == 0
    for call, error in {
        ", model=name + 'x'": "Custom: there is no executor 'workflowx'; there are strong",
        ", model=[name]": "there is no executor ['workflow']", ", model='strong', executor=name[:0]": "no executor ''",
    }.items():  # fmt: skip
        refused = ran(named(call))
        assert (refused.outcome, error in refused.error) == ("raised", True), refused
    # 6 characters and a template of 64 tokens: 70 in, then 50 out at 4 each, its own longest reply.
    budget = Budget(WorkflowConfig(max_cost=1))
    with budget.call("123456", config.executors["strong"]):
        assert (budget.tokens, budget.cost) == (120, pytest.approx(480e-6))
    assert [ran(named(c), max_cost=3e-4).outcome for c in (", model='strong'", "")] == ["budget", "finished"]
    assert msgspec.json.decode(b'{"name": "", "arguments": {}, "result": {}}', type=OperatorCall).executor == ""


def test_log_analysis_and_plan_know_the_executors(here: Path) -> None:
    call = OperatorCall("Custom", {}, {}, (Exchange("", "", "stop", 90, 10, 0, 0),))
    execution = Execution("finished", "42", (call, *[replace(call, executor="strong", weight=3.0)] * 2))
    event = RolloutEvent(step=1, rollout=replace(rollout(problem("q", "math"), True), execution=execution))
    used, twice = ({"calls": n, "prompt_tokens": 90 * n, "completion_tokens": 10 * n, "cost": 0.0} for n in (1, 2))
    write(Path("log.jsonl"), event, UsageEvent(models={"executor": used, "executors.strong": twice}))
    found, shown = analyze_log(Path("log.jsonl")), io.StringIO()
    assert found.total.executors == {"": (1, 100), "strong": (2, 200)} and [*found.by["executor"]] == ["strong"]
    Console(width=200, file=shown).print(*analysis_tables(found))
    assert all(text in shown.getvalue() for text in ("default, calls/tokens", "strong, calls/tokens", "2/200"))
    config = loaded(TWO, "data.eval_problems=1")
    assert "all calls to the default executor, strong costs 2.57 times as much" in make_plan(config, ["1x80"]).assumed
    told = make_plan(config, ["1x80"], log=Path("log.jsonl"))
    # 270 tokens in and 30 out cost 330 at the default's prices, and 110 + 2 * 400 as they were asked.
    usual = (told.tokens_a_run["executor_input"] + 2 * told.tokens_a_run["executor_output"]) / 1e6
    assert told.machines["1x80"].run_cost == pytest.approx(usual * 910 / 330, abs=0.01) and usual > 0.1


@dataclass
class Endpoint(Knowing):
    steps: int = 1  # sentences of the longest problem that it solves

    def reply(self, prompt: str, seed: int | None = None) -> str:
        known = next((text for text in self.answers if text in prompt), None)
        self.asked += known is not None
        return f"<answer>{self.answers[known] if known and known.count('. ') < self.steps else 'no idea'}</answer>"


@pytest.fixture
def example(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sequence[Endpoint]]:
    """The example's two endpoints: one is right on single steps, the other, at three times the price, on all."""
    lines = (EXAMPLE / "problems.jsonl").read_text("utf-8").splitlines()
    answers = {line["problem"]: line["answer"] for line in map(json.loads, lines)}
    fast, strong = Endpoint(answers=answers, steps=2), Endpoint(answers=answers, steps=99)
    with knowing(fast), knowing(strong):
        for role, endpoint in (("FAST", fast), ("STRONG", strong)):
            monkeypatch.setenv(f"{role}_BASE_URL", endpoint.url)
            monkeypatch.setenv(f"{role}_MODEL", role.lower())
        yield fast, strong


def test_the_example_asks_both_endpoints_and_choosing_pays(example: Sequence[Endpoint], cli: CommandLine) -> None:
    choosing, given = (EXAMPLE / "workflow.py").read_text("utf-8"), ("--config", EXAMPLE / "config.yaml")
    texts = {"choosing": choosing, "fast": choosing.replace(', model="strong"', "")}
    texts["strong"] = choosing.replace("AnswerGenerate(self.llm)", "AnswerGenerate(self.llm, executor='strong')")
    found, (fast, strong) = {}, (3e-6, 9e-6)  # of 20 and 10 tokens, at 0.05 and 0.2 or 0.15 and 0.6 per million
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text, "utf-8")
        before = [endpoint.asked for endpoint in example]
        out = cli.json("evaluate", *given, "--data", EXAMPLE / "problems.jsonl", "--workflow", f"{name}.py")
        (row,) = out["datasets"]
        calls = tuple(endpoint.asked - was for endpoint, was in zip(example, before, strict=True))
        assert out["usage"]["executors.strong"]["calls"] == calls[1] + 1  # the check before
        found[name] = row["metrics"]["accuracy"], *calls, pytest.approx(row["metrics"]["cost"])
    assert found == {
        "choosing": (1, 4, 4, 4 * fast + 4 * strong), "fast": (0.5, 8, 0, 8 * fast), "strong": (1, 0, 8, 8 * strong),
    }  # fmt: skip
    assert row["executor"] == "fast, strong=strong"
    cli("workflow", "lint", EXAMPLE / "workflow.py", *given)  # without errors
    closed = f"executors.strong.base_url=http://127.0.0.1:{free_port()}/v1"
    for more, ok in ((), True), ((closed, "executors.strong.max_retries=0"), False):
        wanted = checks_of(load_config(EXAMPLE / "config.yaml", more))
        assert [run_check(name, wanted[name]).ok for name in ("executor", "executors.strong")] == [True, ok]


@pytest.mark.usefixtures("example")
def test_self_consistency_costs_what_the_policys_executors_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy's one call to the strong executor costs three of the drafts."""
    text = (EXAMPLE / "workflow.py").read_text("utf-8").replace("(self.llm)", "(self.llm, model='strong')")
    monkeypatch.setattr(recording, "load_author", lambda *_, **__: Given(lambda _: text))
    monkeypatch.setattr(HostedModels, "share", lambda *_: asyncio.sleep(0))
    monkeypatch.setattr(voting, "FEWEST", 1)
    Path("one.jsonl").write_text((EXAMPLE / "problems.jsonl").read_text("utf-8").splitlines()[-1], "utf-8")
    config = load_config(EXAMPLE / "config.yaml", ["workflow.operators=[AnswerGenerate]"])
    result = asyncio.run(run_comparison(config, data=Path("one.jsonl")))
    voted = [(row["shape"], row["cost"]) for row in result["rows"] if row["name"] == "self-consistency"]
    assert voted == [({"math": "3 x answer"}, pytest.approx(9e-6))]
    assert result["usage_by_executor"]["executors.strong"].calls == 2
