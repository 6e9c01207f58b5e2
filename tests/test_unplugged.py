"""Every part is in use: a named test for each, over the log of one short training run.

The run is the embedded default with three changes: examples are shown, the buffer takes any right workflow, and the
judge audits all its verdicts. Removing a part from the assembly makes its test fail.
"""

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.finished import run_settings
from helpers.run_logs import read_events

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.operators import catalog
from llm_as_judge.types import DOMAINS, Exchange

ROOT = Path(__file__).parents[1]
NANO = ROOT / "config/operator_descriptions/nano.yaml"


@dataclass
class Trace:
    config: Config
    events: list[dict[str, Any]]
    asked: list[str]  # prompts to executor and judge
    folder: Path

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]


@pytest.fixture(scope="module")
def trace(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    folder = tmp_path_factory.mktemp("unplugged")
    settings = run_settings(
        folder, address, max_steps=3, rollout_batch_size=6, num_return_sequences_in_group=4, prompt_max_length=2048,
        max_problems=6, eval_every=0, **{"experience_buffer.top_k": 1, "judge.audit_share": 1.0},
    )  # fmt: skip
    config = load_config(ROOT / "config/embedded.yaml", settings)
    asked: list[str] = []
    chat = LLMClient.chat

    async def recorded(self: LLMClient, prompt: str, **options: Any) -> Exchange:
        asked.append(prompt)
        return await chat(self, prompt, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LLMClient, "chat", recorded)
        asyncio.run(GRPOTrainer(config=config).train())
    yield Trace(config, list(read_events(folder / "logs/nano/grpo_mixed.jsonl")), asked, folder)


def test_layer_1_shows_the_policy_operators_guidance_and_problem(trace: Trace) -> None:
    (layers,) = trace.of("layers")
    for name in catalog.OPERATORS:
        assert f"{catalog.call_line(catalog.OPERATORS[name])} -> " in layers["layer1"]
    guidance = yaml.safe_load((ROOT / "config/guidance.yaml").read_text(encoding="utf-8"))
    prompts = trace.of("prompt")
    assert len(prompts) == 3 * 6
    for prompt in prompts:
        assert any(guidance[domain] in prompt["user"] for domain in DOMAINS)
        assert "Problem: " in prompt["user"] and prompt["user"].endswith("Workflow:\n")


def test_layer_2_precedes_the_operators_own_prompts(trace: Trace) -> None:
    instructions = yaml.safe_load(NANO.read_text(encoding="utf-8"))
    lines = {line for by_domain in instructions.values() for line in by_domain.values()}
    assert {prompt.partition("\n")[0] for prompt in trace.asked} & lines
    assert trace.of("layers")[0]["layer2"] == instructions


def test_the_buffer_fills_persists_and_comes_back_as_an_example_frozen_within_a_step(trace: Trace) -> None:
    prompts, size = trace.of("prompt"), 6
    assert not any(prompt["examples"] for prompt in prompts[:size])  # the buffer is empty until the first step ends
    shown = [prompt for prompt in prompts[size:] if prompt["examples"]]
    assert shown and all("Example workflow:\nclass Workflow" in prompt["user"] for prompt in shown)
    kept = [json.loads(line) for path in (trace.folder / "buffer").rglob("*.jsonl") for line in path.open()]
    right = {event["problem"] for event in trace.of("rollout") if event["correct"]}
    assert kept and {entry["problem_id"] for entry in kept} <= right


def test_every_reward_term_moves_the_reward(trace: Trace) -> None:
    weights = trace.config.reward.reward_weights
    signs = {"repetition": -1.0}
    scored = [event for event in trace.of("rollout") if event["reward"] is not None]
    assert scored
    for event in scored:
        parts = {name: signs.get(name, 1.0) * weights[name] * event["terms"][name] for name in weights}
        assert event["reward"] == pytest.approx(sum(parts.values()))
    for term in weights:
        assert len({event["terms"][term] for event in scored}) > 1, f"{term} is constant"


def test_the_judges_tiers_decide_and_are_named(trace: Trace) -> None:
    tiers = {event["tier"] for event in trace.of("rollout") if event["outcome"] == "finished"}
    assert {"rules", "tests", "llm"} <= tiers
    assert any(prompt.startswith("Question: ") and "<true_false>" in prompt for prompt in trace.asked)


def test_judged_and_checked_accuracy_are_logged_side_by_side(trace: Trace) -> None:
    audits = trace.of("audit")
    assert [audit["step"] for audit in audits] == [1, 2, 3]
    for audit in audits:
        for figures in audit["domains"].values():
            assert set(figures) == {"judged", "checked", "by_llm", "checks", "failed_checks"}


def test_truncation_and_temperature_are_counted_and_logged(trace: Trace) -> None:
    for step in trace.of("step"):
        assert step["temperature"] == 1.0
        cut = [e for e in trace.of("rollout") if e["step"] == step["step"] and e["finish_reason"] == "length"]
        assert math.isclose(step["truncated"], len(cut) / 24)
        assert all(event["outcome"] == "invalid" for event in cut)


def test_the_tokens_of_executor_and_judge_are_logged_with_every_step(trace: Trace) -> None:
    usage = trace.of("usage")
    assert [event["step"] for event in usage] == [1, 2, 3]
    for role in ("executor", "judge"):
        totals = [event["models"][role]["prompt_tokens"] for event in usage]
        assert 0 < totals[0] <= totals[1] <= totals[2]
    asked = sum(len(call["exchanges"]) for event in trace.of("rollout") for call in event["calls"])
    spent = sum(event["executor_tokens"] for event in trace.of("rollout"))
    executor = usage[-1]["models"]["executor"]
    # Equal requests of a group are sent once, and count in full in each rollout.
    assert executor["cached"] > 0 and executor["calls"] + executor["cached"] >= asked > 0
    assert 0 < executor["prompt_tokens"] + executor["completion_tokens"] < spent
