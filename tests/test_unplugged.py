"""Every part is in use: a named test for each, over the log of ``finished_run``.

Removing a part from the assembly makes its test fail.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.finished import EMBEDDED, FinishedRun
from helpers.run_logs import read_events, read_rollouts

from llm_as_judge.config.loading import load_config
from llm_as_judge.operators import catalog
from llm_as_judge.types import DOMAINS, Exchange, Rollout

ROOT = Path(__file__).parents[1]
NANO = ROOT / "config/operator_descriptions/nano.yaml"


@dataclass
class Trace:
    run: FinishedRun
    events: list[dict[str, Any]]
    rollouts: list[Rollout]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def asked(self) -> list[str]:
        """Prompts to executor and judge."""
        judged = [exchange for rollout in self.rollouts for exchange in rollout.verdict.exchanges]
        return [exchange.prompt for exchange in [*judged, *exchanges(self.rollouts)]]


def exchanges(rollouts: list[Rollout]) -> list[Exchange]:
    """Those with the executor."""
    return [exchange for rollout in rollouts for call in rollout.calls for exchange in call.exchanges]


@pytest.fixture(scope="module")
def trace(finished_run: FinishedRun) -> Trace:
    rollouts = [event.rollout for event in read_rollouts(finished_run.log)]
    return Trace(finished_run, list(read_events(finished_run.log)), rollouts)


def test_layer_1_shows_the_policy_operators_guidance_and_problem(trace: Trace) -> None:
    (layers,) = trace.of("layers")
    for name in catalog.OPERATORS:
        assert f"{catalog.call_line(catalog.OPERATORS[name])} -> " in layers["layer1"]
    guidance = yaml.safe_load((ROOT / "config/guidance.yaml").read_text(encoding="utf-8"))
    prompts = trace.of("prompt")
    assert len(prompts) == 2 * 3
    for prompt in prompts:
        assert any(guidance[domain] in prompt["user"] for domain in DOMAINS)
        assert "Problem: " in prompt["user"] and prompt["user"].endswith("Workflow:\n")


def test_layer_2_precedes_the_operators_own_prompts(trace: Trace) -> None:
    instructions = yaml.safe_load(NANO.read_text(encoding="utf-8"))
    lines = {line for by_domain in instructions.values() for line in by_domain.values()}
    assert {prompt.partition("\n")[0] for prompt in trace.asked} & lines
    assert trace.of("layers")[0]["layer2"] == instructions


def test_the_buffer_fills_persists_and_comes_back_as_an_example_frozen_within_a_step(trace: Trace) -> None:
    prompts, size = trace.of("prompt"), 3
    ran = {(e["step"], e["rollout"]["problem"]["question"]["id"]) for e in trace.of("rollout")}
    assert {(p["step"], p["problem"]) for p in prompts} == ran
    assert not any(prompt["examples"] for prompt in prompts[:size])  # the buffer is empty until the first step ends
    shown = [prompt for prompt in prompts[size:] if prompt["examples"]]
    assert shown and all("Example workflow:\nclass Workflow" in prompt["user"] for prompt in shown)
    kept = [json.loads(line) for path in (trace.run.folder / "buffer").rglob("*.jsonl") for line in path.open()]
    right = {rollout.problem.question.id for rollout in trace.rollouts if rollout.verdict.correct}
    assert kept and {entry["problem_id"] for entry in kept} <= right


def test_every_reward_term_moves_the_reward(trace: Trace) -> None:
    weights = load_config(EMBEDDED, trace.run.overrides).reward.reward_weights
    signs = {"repetition": -1.0}
    scored = [rollout.reward for rollout in trace.rollouts if rollout.reward.total is not None]
    assert scored
    for reward in scored:
        parts = {name: signs.get(name, 1.0) * weights[name] * reward.terms[name] for name in weights}
        assert reward.total == pytest.approx(sum(parts.values()))
    for term in weights:
        assert len({reward.terms[term] for reward in scored}) > 1, f"{term} is constant"


def test_the_judges_tiers_decide_and_are_named(trace: Trace) -> None:
    tiers = {rollout.verdict.tier for rollout in trace.rollouts if rollout.valid}
    assert {"rules", "tests", "llm"} <= tiers
    assert any(prompt.startswith("Question: ") and "<true_false>" in prompt for prompt in trace.asked)


def test_the_tokens_of_executor_and_judge_are_logged_with_every_step(trace: Trace) -> None:
    first, second, whole = trace.of("usage")  # the last one is of the whole command
    assert [first["step"], second["step"]] == [1, 2]
    for role in ("executor", "judge"):
        totals = [event["models"][role]["prompt_tokens"] for event in (first, second, whole)]
        assert 0 < totals[0] <= totals[1] <= totals[2]
    executor = {name: n - first["models"]["executor"][name] for name, n in second["models"]["executor"].items()}
    asked = exchanges(trace.rollouts[9:])
    assert executor["calls"] + executor["cached"] >= len(asked) > 0 and executor["prompt_tokens"] > 0
    # Equal requests of a group are sent once, and count in full in each rollout.
    assert first["models"]["executor"]["cached"] > 0
    sent = exchanges(trace.rollouts)
    assert len({exchange.prompt for exchange in sent}) < len(sent)
    assert all(exchange.prompt_tokens and exchange.completion_tokens for exchange in sent)
