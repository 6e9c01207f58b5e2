"""Several executors: workflows choose by name, each call goes to that endpoint, and counts at its price."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.cli import CommandLine
from helpers.processes import ROOT, free_port
from helpers.web import Handler, serving
from helpers.workflows import QUESTION, linted, workflow
from running import Script, Wait

from llm_as_judge.commands.doctor import checks_of, run_check
from llm_as_judge.config.identity import identity
from llm_as_judge.config.loading import load_config, to_yaml
from llm_as_judge.config.schema import RewardConfig, WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.rewards.terms import efficiency, repetition
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Completion, Execution, OperatorCall, Problem, Reference, Reward, Rollout, Verdict
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.run import Budget, Executor, WorkflowRunner

EXAMPLE = ROOT / "examples/two_executors"
BODY = "r = await self.custom(input=problem, instruction='')\nreturn r['response'], 0.0"
PRICED = (
    "executor: {model: a, provider: openai, base_url: http://a/v1, price_per_million_input: 1, "
    "price_per_million_output: 2}\n"
    "executors:\n"
    "  strong: {model: b, provider: openai, base_url: http://b/v1, price_per_million_input: 4, "
    "price_per_million_output: 4, max_tokens: 50, api_key: hush, description: the better one}\n"
)


def loaded(text: str, *overrides: str) -> Any:
    Path("c.yaml").write_text(text, encoding="utf-8")
    return load_config("c.yaml", overrides)


def named(call: str) -> str:
    """A workflow with the constructor arguments ``call``."""
    return workflow(BODY, init=f"self.custom = operator.Custom(self.llm{call})")


def rollout(execution: Execution) -> Rollout:
    problem = Problem(QUESTION, Reference(("42",)))
    return Rollout(problem, Completion("", (), (), (), "stop"), "", execution, Verdict(True, "rules"), Reward(1.0))


def test_the_section_has_names_whose_settings_are_those_of_executor(here: Path) -> None:
    third_price = (f"executors.third.price_per_million_{kind}=3" for kind in ("input", "output"))
    config = loaded(PRICED, "executors.strong.temperature=0.5", "executors.third.model=007", *third_price)
    strong, third = config.executors["strong"], config.executors["third"]
    assert (strong.model, strong.temperature, third.model) == ("b", 0.5, "007")
    assert [*config.endpoints()] == ["executor", "executors.strong", "executors.third", "judge"]
    dump = to_yaml(config)
    assert "hush" not in dump and loaded(dump).executors["third"] == third
    Path("llm.yaml").write_text("models: {b: {model_name: there, base_url: http://c/v1}}", "utf-8")
    assert (loaded(PRICED).executors["strong"].base_url, loaded("seed: 1").choices) == ("http://c/v1", {})
    Path("llm.yaml").unlink()
    # What decides results: a description, which the policy reads, but not where the model is.
    same, other = (
        loaded(PRICED, "executors.strong.base_url=http://x/v1"),
        loaded(PRICED, "executors.strong.description=x"),
    )
    assert identity(loaded(PRICED)) == identity(same) != identity(other)
    one = "executors: {%s}"
    for text, message in {
        one % "default: {model: b}": "'default' cannot be a name", one % "a b: {model: b}": "'a b' cannot be a name",
        "executors:\n  a: {model: b}\n  a: {model: c}": "c.yaml:3: not valid YAML: 'a' is set twice, first in line 2",
        one % "a: {modle: b}": "did you mean executor.model?", one % "a: {}": "executor 'a' has no settings",
        one % "a: {max_tokens: 0}": "c.yaml:1: executors.a.max_tokens = 0", "executors: [a]": "'name: value' lines",
        one % "a: {price_per_million_input: 1}": "executor has no price_per_million_input, unlike the other",
        PRICED + "  free: {model: c}": "set executors.free.price_per_million_input, or none for all",
        one % "a: {provider: local, model: m, context: 9}": "context=9 has no room",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(message)):
            loaded(text)


def test_lint_knows_the_names_and_the_prompt_lists_them(here: Path) -> None:
    find = partial(linted, executors=("fast", "strong"))
    good = ("", ", model='strong'", ", executor='fast'", ", name='x', model='fast'", ", model=None", ", model=name")
    assert not [found for call in good for found in find(named(call))]
    for call in (", model='best'", ", executor='best'", ", model=''", ", model=5"):
        (found,) = find(named(call))
        assert (found.code, found.line, found.fatal) == ("W203", 4, True), call
        assert found.message.endswith("; there are fast, strong")
    (found,) = linted(named(", model='strong'"))  # without executors, as ever
    assert "unexpected keyword argument 'model'" in found.message
    config = loaded(PRICED)
    for style in ("full", "short"):
        plain = Layer1(WorkflowConfig(prompt=style)).system
        system = Layer1(WorkflowConfig(prompt=style), config.choices).system
        assert system.startswith(plain) and Layer1(WorkflowConfig(prompt=style), {}).system == plain
        assert "- default: 1 per million tokens in, 2 out\n" in system and 'model="strong"' in system
        assert "- strong: 4 per million tokens in, 4 out; the better one" in system


def test_calls_go_to_the_named_executor_at_its_price(wait: Wait, box: Sandbox, here: Path) -> None:
    config = loaded(PRICED)
    default, strong = (Script(by=lambda prompt, who=who: who, cost=cost) for who, cost in (("a", 2e-5), ("b", 6e-5)))

    def ran(source: str, **settings: Any) -> Execution:
        others = {"strong": Executor(strong, config.executors["strong"])}
        runner = WorkflowRunner(default, box, WorkflowConfig(**settings), config.executor, named=others)
        execution: Execution = wait(runner.run(source, QUESTION))
        return execution

    both = "self.custom = operator.Custom(self.llm)\nself.other = operator.Custom(self.llm, executor=name and 'strong')"
    ask = "p, q = [await c(input=problem, instruction='') for c in (self.custom, self.other)]\n"
    execution = ran(workflow(f"{ask}return p['response'] + q['response'], 0.0", init=both))
    assert (execution.outcome, execution.answer, len(default.prompts), len(strong.prompts)) == ("finished", "ab", 1, 1)
    first, second = execution.calls
    # 10 prompt and 5 reply tokens: 20 at the default's prices, 60 at the other's.
    assert ([c.executor for c in execution.calls], first.weight, second.weight) == (["", "strong"], 1, 3)
    assert (execution.tokens, execution.weighed_tokens, execution.cost) == (30, 60, pytest.approx(8e-5))
    assert efficiency(rollout(execution), RewardConfig(token_budget=120)) == 5
    twice = replace(execution, calls=(second, second))
    assert [repetition(rollout(one), RewardConfig()) for one in (execution, twice)] == [0, 5]
    for call, error in {
        ", model=name + 'x'": "Custom: there is no executor 'workflowx'; there are strong",
        ", model=[name]": "there is no executor ['workflow']", ", model='strong', executor=name[:0]": "no executor ''",
    }.items():  # fmt: skip
        refused = ran(named(call))
        assert (refused.outcome, error in refused.error) == ("raised", True), refused
    # 6 characters and a template of 64 tokens: 70 in, then 50 out at 4 each, its own longest reply.
    budget = Budget(WorkflowConfig(max_cost=1), config.executor)
    with budget.call("123456", config.executors["strong"]):
        assert (budget.tokens, budget.cost) == (120, pytest.approx(480e-6))
    assert ran(named(", model='strong'"), max_cost=3e-4).outcome == "budget"
    assert ran(named(""), max_cost=3e-4).outcome == "finished"
    old = msgspec.json.decode(b'{"name": "Custom", "arguments": {}, "result": {}}', type=OperatorCall)
    assert (old.executor, old.weight) == ("", 1)


class Endpoint(Handler):
    """An endpoint of ``model`` that is right if a problem has at most ``steps`` sentences."""

    model, steps, asked = "", 0, list[str]()
    answers: Mapping[str, str] = {}

    def do_GET(self) -> None:
        self.send(200, {"data": [{"id": self.model}]})

    def do_POST(self) -> None:
        body = json.loads(self.raw())
        prompt = body["messages"][-1]["content"]
        known = next((problem for problem in self.answers if problem in prompt), None)
        if known:
            self.asked.append(body["model"])
        right = known is not None and known.count(". ") < self.steps
        text = f"<thought>.</thought><answer>{self.answers[known] if known and right else 'no idea'}</answer>"
        message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        self.send(200, {"choices": [message], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}})


@pytest.fixture
def example(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, type[Endpoint]]]:
    """The example's two endpoints: one is right on single steps, the other, at three times the price, on all."""
    lines = map(json.loads, (EXAMPLE / "problems.jsonl").read_text("utf-8").splitlines())
    answers = {line["problem"]: line["answer"] for line in lines}
    with ExitStack() as stack:
        kinds = {}
        for role, steps in (("FAST", 2), ("STRONG", 99)):
            fields = {"model": role.lower(), "steps": steps, "asked": [], "answers": answers}
            kinds[role] = type(role, (Endpoint,), fields)
            monkeypatch.setenv(f"{role}_BASE_URL", f"{stack.enter_context(serving(kinds[role]))}/v1")
            monkeypatch.setenv(f"{role}_MODEL", role.lower())
        yield kinds


def test_the_example_asks_both_endpoints_and_choosing_pays(
    example: Mapping[str, type[Endpoint]], cli: CommandLine
) -> None:
    choosing = (EXAMPLE / "workflow.py").read_text("utf-8")
    texts = {"choosing": choosing, "fast": choosing.replace(', model="strong"', "")}
    texts["strong"] = choosing.replace("AnswerGenerate(self.llm)", "AnswerGenerate(self.llm, executor='strong')")
    found = {}
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text, "utf-8")
        for endpoint in example.values():
            endpoint.asked.clear()
        given = ("--config", EXAMPLE / "config.yaml", "--data", EXAMPLE / "problems.jsonl")
        out = cli.json("evaluate", *given, "--workflow", f"{name}.py")
        (row,) = out["datasets"]
        calls = tuple(len(endpoint.asked) for endpoint in example.values())
        assert all({*endpoint.asked} <= {endpoint.model} for endpoint in example.values())
        found[name] = row["metrics"]["accuracy"], *calls, pytest.approx(row["metrics"]["cost"])
    fast, strong = 70e-6, 210e-6  # a call of 1000 and 100 tokens, at 0.05 and 0.2 or 0.15 and 0.6 per million
    assert found == {
        "choosing": (1, 4, 4, 4 * fast + 4 * strong), "fast": (0.5, 8, 0, 8 * fast), "strong": (1, 0, 8, 8 * strong),
    }  # fmt: skip
    assert cli("workflow", "lint", EXAMPLE / "workflow.py", "--config", EXAMPLE / "config.yaml").endswith(
        "no findings\n"
    )
    assert "there is no executor 'strong'" not in cli("workflow", "lint", EXAMPLE / "workflow.py", status=1)
    closed = f"executors.strong.base_url=http://127.0.0.1:{free_port()}/v1"
    for given, ok in ((), True), ((closed, "executors.strong.max_retries=0"), False):
        wanted = checks_of(load_config(EXAMPLE / "config.yaml", given))
        checks = [run_check(name, wanted[name]) for name in ("executor", "executors.strong")]
        assert [check.ok for check in checks] == [True, ok], checks
