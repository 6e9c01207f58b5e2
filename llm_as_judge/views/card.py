"""Model card of an exported policy, in the format of the Hugging Face hub; only known facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from llm_as_judge.config.schema import Config
from llm_as_judge.types import DOMAINS


@dataclass(frozen=True, slots=True)
class CardFacts:
    """``training`` is the run's results file, ``rows`` are those of evaluations, ``mix`` are line counts of
    ``data process``; all are empty if unknown for this adapter.
    """

    name: str
    base_model: str
    on_hub: bool
    merged: bool
    dtype: str
    step: int
    config: Config
    training: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    mix: Mapping[str, Any] = field(default_factory=dict)


def model_card(facts: CardFacts) -> str:
    sections = (_heading, _summary, _use, _data, _reward, _settings, _scores)
    return "\n\n".join("\n".join(section(facts)) for section in sections) + "\n"


def _heading(facts: CardFacts) -> Iterator[str]:
    about: dict[str, Any] = {"base_model": facts.base_model} if facts.on_hub else {}
    if facts.on_hub:
        about["base_model_relation"] = "merge" if facts.merged else "adapter"
    about |= {"library_name": "transformers" if facts.merged else "peft", "pipeline_tag": "text-generation"}
    about["tags"] = ["llm-as-judge", "grpo", "agent-workflows", *([] if facts.merged else ["lora"])]
    yield f"---\n{yaml.safe_dump(about, sort_keys=False)}---"


def _summary(facts: CardFacts) -> Iterator[str]:
    kind = "with its LoRA adapter merged in" if facts.merged else "as a LoRA adapter"
    base = f"[{facts.base_model}](https://huggingface.co/{facts.base_model})" if facts.on_hub else facts.base_model
    trained = f"trained for {facts.step} steps of GRPO" if facts.step else "trained"
    yield (
        f"# {facts.name}\n\nA policy that reads a problem and writes an agentic workflow for it, a Python class that "
        f"calls operators; {trained} by llm-as-judge. This is {base} {kind}, in {facts.dtype}. The workflow runs in "
        "llm-as-judge's sandbox, where its operators call an executor model of your own: the policy alone does not "
        "answer problems."
    )


def _use(facts: CardFacts) -> Iterator[str]:
    yield "## Use\n"
    base = facts.base_model if facts.on_hub else "BASE_MODEL"
    yield "```python"
    if facts.merged:
        yield "from transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM.from_pretrained(FOLDER)"
    else:
        yield "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n"
        yield f'model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), FOLDER)'
    yield "```\n\n```bash"
    if facts.merged:
        yield "vllm serve FOLDER\nllm-as-judge solve --model FOLDER --untrained PROBLEM"
    else:
        rank = facts.config.model.lora_rank
        yield f"vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules policy=FOLDER"
        yield f"llm-as-judge solve --model {base if facts.on_hub else facts.base_model} --checkpoint FOLDER PROBLEM"
    yield "```"


def _data(facts: CardFacts) -> Iterator[str]:
    data = facts.config.data
    yield "## Training data\n"
    ratios = ", ".join(f"{domain} {data.domain_ratios[domain]:g}" for domain in DOMAINS)
    if data.source == "embedded":
        yield f"Generated problems of llm-as-judge's own small world; shares in a batch: {ratios}."
        return
    file = data.train_dataset.name if data.train_dataset else ""
    yield f"`{file}`; shares in a batch: {ratios}."
    if facts.mix:
        yield "\n| dataset | training lines |\n|---|---|"
        for name, lines in facts.mix.items():
            yield f"| {name} | {lines} |"


def _reward(facts: CardFacts) -> Iterator[str]:
    config = facts.config
    yield "## Reward\n"
    weights = ", ".join(f"{term} {weight:g}" for term, weight in config.reward.reward_weights.items())
    yield f"Weighted terms: {weights}."
    if config.reward.functions:
        names = (f"{name.rpartition('/')[2]} {weight:g}" for name, weight in config.reward.functions.items())
        yield f"User reward functions: {', '.join(names)}."
    judge = config.judge
    model = "" if judge.mode == "rules" else f", model {judge.model}"
    yield f"Judge: {judge.mode}{model}. Executor: {config.executor.model}."


def _settings(facts: CardFacts) -> Iterator[str]:
    training, model = facts.config.training, facts.config.model
    yield "## Settings\n\n| setting | value |\n|---|---|"
    names = (
        "seed", "rollout_batch_size", "num_return_sequences_in_group", "ppo_epochs", "learning_rate", "beta",
        "loss_type", "scale_rewards", "epsilon", "epsilon_high", "importance_sampling",
    )  # fmt: skip
    for name in names:
        yield f"| training.{name} | {getattr(training, name)} |"
    for name in ("lora_rank", "lora_alpha", "lora_target_modules"):
        yield f"| model.{name} | `{getattr(model, name)}` |"
    yield f"| generation.temperature | {facts.config.generation.temperature} |"


def _scores(facts: CardFacts) -> Iterator[str]:
    yield "## Scores\n"
    if not facts.training and not facts.rows:
        yield "No scores are recorded for this adapter."
        return
    yield "Percent, with 95 % intervals."
    if facts.training:
        after, before = facts.training["after"], facts.training["before"]
        executor = facts.config.executor.model
        yield f"\nOn {after['problems']} held-out problems, right by tests and rules, with the executor {executor}:\n"
        yield "| | before training | after training |\n|---|---|---|"
        for name in ("overall", *(d for d in DOMAINS if d in after), "valid_rate"):
            title = "valid workflows" if name == "valid_rate" else name
            yield f"| {title} | {_percent(before, name)} | {_percent(after, name)} |"
    for row in facts.rows:
        for official in row["metrics"]["official"].values():
            if row is facts.rows[0]:
                yield "\n| dataset | metric | score | problems | executor |\n|---|---|---|---|---|"
            for name in official["interval"]:
                cells = (row["dataset"], name, _percent(official, name), official["problems"][name], row["executor"])
                yield f"| {' | '.join(map(str, cells))} |"


def _percent(scores: Mapping[str, Any], name: str) -> str:
    value = scores.get(name)
    if value is None:
        return "-"
    low, high = scores["interval"][name]
    return f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
