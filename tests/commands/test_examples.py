"""Examples in the prompt: harmful ones are found before the first step, and another run's are used only on request."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.finished import run_settings

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.probe import ExamplesProbe, probe_examples
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.training import prompt_within
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import BufferConfig
from llm_as_judge.evaluation.metrics import accuracy
from llm_as_judge.experience.buffer import Experience, ExperienceBuffer
from llm_as_judge.runlog import read_events
from llm_as_judge.types import DOMAINS, Prompt, Question
from llm_as_judge.workflow.shapes import SHAPES, Example, workflow

ROOT = Path(__file__).parents[2]
EMBEDDED = ROOT / "config/embedded.yaml"


def probe(*overrides: str) -> ExamplesProbe | None:
    config = load_config(EMBEDDED, [*overrides, f"guidance={ROOT}/config/guidance.yaml"])
    return probe_examples(config, load_author(config), open_problems(config, measured=False).sampler.peek(4))


@pytest.mark.slow
def test_the_probe_finds_examples_that_harm_and_passes_others() -> None:
    found = probe("experience_buffer.top_k=1")
    assert found is not None and found.harmful
    assert found.without.n == found.shown.n == 3 * 4 * 2
    assert found.without.value > 0.9, found
    assert "top_k=0" in str(found)
    found = probe("experience_buffer.top_k=2", "layer1=false")  # the bare prompt shows no examples
    assert found is not None and found.shown == found.without and not found.harmful


def test_nothing_is_probed_without_examples_or_with_prompts_that_are_too_long() -> None:
    assert probe("experience_buffer.top_k=0") is None
    assert probe("experience_buffer.top_k=1", "experience_buffer.enabled=false") is None
    assert probe("experience_buffer.top_k=3", "prompt_max_length=500") is None


def test_examples_are_dropped_until_the_prompt_fits() -> None:
    author = load_author(load_config(EMBEDDED, ["workflow.prompt=full"]))
    question = Question("q", "Who wrote it?", "qa", context="It was written by Ann. " * 40)
    examples = [
        Example(f"Context: {'The Ilse is a river. ' * 40}\nQuestion: What is {name}?", workflow(SHAPES["direct"], "qa"))
        for name in ("first", "second", "third")
    ]

    def within(limit: int) -> tuple[Prompt, int]:
        training = author.config.training.model_copy(update={"prompt_max_length": limit})
        changed = author.config.model_copy(update={"training": training})
        return prompt_within(replace(author, config=changed), question, examples)

    lengths = [len(author.policy.encode(author.prompt(question, examples[:n]))) for n in range(4)]
    assert within(lengths[3]) == (author.prompt(question, examples), 3)
    prompt, shown = within(lengths[3] - 1)
    assert shown == 2 and "first" in str(prompt.turns) and "third" not in str(prompt.turns)
    assert within(lengths[1]) == (author.prompt(question, examples[:1]), 1)
    assert within(lengths[0]) == (author.prompt(question), 0)


def test_harm_is_less_than_half_by_more_than_chance() -> None:
    for shown, without, harmful in [(0, 24, True), (11, 24, True), (13, 24, False), (0, 2, False)]:
        rates = (accuracy([i < right for i in range(24)]) for right in (shown, without))
        assert ExamplesProbe(1, *rates).harmful == harmful, (shown, without)


@pytest.mark.slow
def test_a_new_run_uses_workflows_of_another_only_on_request(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def trained(**more: object) -> tuple[int, str]:
        """Number of examples in the first step's prompts, and what was printed."""
        small = {"num_return_sequences_in_group": 2, "baselines": "false", "plan_matrix": "false", "eval_every": 0}
        one = {"max_steps": 1, "judge.mode": "rules", "experience_buffer.top_k": 1, "prompt_max_length": 2048}
        settings = run_settings(tmp_path, address, **{**small, **one, **more})
        assert main(["train", *(word for setting in settings for word in ("--set", setting))]) == 0
        events = read_events(tmp_path / "logs/nano/grpo_mixed.jsonl")
        return sum(e["examples"] for e in events if e["kind"] == "prompt"), capsys.readouterr().out

    def kept() -> list[str]:
        files = (tmp_path / "buffer").glob("*_top_samples.jsonl")
        return [json.loads(line)["workflow"] for file in files for line in file.open(encoding="utf-8")]

    mine = [Experience(f"mine/{d}", "What is it?", workflow(SHAPES["direct"], d), 99.0, d, 1) for d in DOMAINS]
    before = ExperienceBuffer(BufferConfig(persistence_dir=tmp_path / "buffer"), lambda texts: [])
    assert all(map(before.add, mine))
    before.save()
    shown, printed = trained()
    assert shown == 0
    assert kept() and not {e.workflow for e in mine} & set(kept())
    assert "_top_samples.jsonl of the earlier run" in printed.replace("\n", "")
    assert len(list((tmp_path / "buffer").glob("*_top_samples.*.jsonl"))) == len(DOMAINS)
    assert re.search(r"\d+% of the policy's workflows are valid without", printed)
    assert "experience_buffer.top_k=0" in printed.replace("\n", " ")
    shown, printed = trained(reuse="true", seed=1)  # other problems: none is an example for itself
    assert shown > 0 and "begins with the workflows in" in printed
