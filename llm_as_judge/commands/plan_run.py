"""``llm-as-judge plan``: what a run will take, before anything is paid for. No model is loaded, no endpoint asked.

The formulae are in ``runs.formulae``. What cannot be known beforehand is assumed, and the result says so; ``log`` takes
it from an earlier, shorter run instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from llm_as_judge.assembly.budget import usage_of
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.commands import formulae_run as formulae
from llm_as_judge.commands.formulae_run import CARDS, GB, Card, Shape, Workload
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.policy.chat import chat_ids
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.runlog import read_events
from llm_as_judge.types import DOMAINS, Prompt, Question
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import SHAPES, workflow

MACHINES = ("1xA100-40", "1xA100-80", "2xA100-80")
_SHAPES = {
    "qwen25-7b": Shape(3584, 18944, 28, 28, 4, 128, 152_064, False),
    "qwen3-8b": Shape(4096, 12288, 36, 32, 8, 128, 151_936, False),
    "smollm2": Shape(576, 1536, 30, 9, 3, 64, 49_152, True),
}
#: Bytes of executors served in their published precision (MXFP4), with room for their caches.
_EXECUTORS = {"gpt-oss-120b": 69 * GB, "gpt-oss-20b": 17 * GB}
_SERVER = 2 * GB  # of a vLLM server besides weights and cache
_CHARACTERS = 4.0  # a token, where no tokenizer is at hand
_OWN_TEXT = 600  # characters of a problem, where none can be read
_SAMPLE = 16


@dataclass(frozen=True, slots=True)
class Assumed:
    """``calls`` are an executor's for each workflow, each of ``call_input`` and ``call_output`` tokens and ``latency``
    seconds; ``completion`` are tokens of a workflow, None: those of the hand-written ones.
    """

    latency: float = 5.0
    calls: float = 3.0
    call_input: float = 400.0
    call_output: float = 500.0
    completion: float | None = None
    price_per_hour: float = 0.0  # of one card


@dataclass(frozen=True, slots=True)
class OnMachine:
    """``parts`` in GB, ``cards`` the place of each; ``helps`` are settings of which each alone makes all fit."""

    parts: Mapping[str, float]
    cards: Mapping[str, int] | None
    helps: Sequence[str]
    seconds: Mapping[str, float]  # of a step
    hours: float  # of the run
    cost: float

    @property
    def remedy(self) -> str:
        return "; ".join(self.helps) or "nothing alone"


@dataclass(frozen=True, slots=True)
class Plan:
    workload: Workload
    parameters: int
    assumed: Sequence[str]
    machines: Mapping[str, OnMachine]
    steps: int

    def as_json(self) -> dict[str, Any]:
        tokens = asdict(self.workload.tokens())
        machines = {}
        for name, found in self.machines.items():
            fits = "yes" if found.cards is not None else f"no; helps: {found.remedy}"
            machines[name] = {
                "fits": fits,
                "memory_GB": {part: round(size, 2) for part, size in found.parts.items()},
                "on_card": dict(found.cards or {}),
                "step_seconds": {what: round(value, 2) for what, value in found.seconds.items()},
                "run_hours": round(found.hours, 3),
                "run_cost": round(found.cost, 2),
            }
        return {
            "policy_parameters": self.parameters,
            "rollouts_a_step": self.workload.rollouts,
            "tokens_a_step": {name: round(value) for name, value in tokens.items()},
            "tokens_a_run": {name: round(value * self.steps) for name, value in tokens.items()},
            "assumed": "; ".join(self.assumed) or "nothing",
            "machines": machines,
        }


def plan(
    config: Config, machines: Sequence[str] = MACHINES, assumed: Assumed | None = None, log: Path | None = None
) -> Plan:
    """Raises ``ConfigError`` for a machine or a model that is not known, ``DataError`` for a log without rollouts."""
    given, shape = assumed or Assumed(), shape_of(config)
    work, told = workload_of(config, given)
    if log is not None:
        work, told = _measured(work, log), []
    found = {name: _on(config, shape, work, given, *_machine(name)) for name in machines}
    return Plan(work, shape.parameters, told, found, config.training.max_steps)


def shape_of(config: Config) -> Shape:
    """Of the policy, from its folder's ``config.json`` or the table of known models."""
    entry = config.base_model
    file = Path(entry.path) / "config.json"
    if not file.is_file():
        if entry.key in _SHAPES:
            return _SHAPES[entry.key]
        raise ConfigError(
            f"model.model_name={config.model.model_name!r}: its shape is not known here; give a folder with its "
            f"config.json, or one of {', '.join(_SHAPES)}"
        )
    told = json.loads(file.read_text("utf-8"))
    heads = told["num_attention_heads"]
    return Shape(
        told["hidden_size"],
        told["intermediate_size"],
        told["num_hidden_layers"],
        heads,
        told.get("num_key_value_heads", heads),
        told.get("head_dim") or told["hidden_size"] // heads,
        told["vocab_size"],
        bool(told.get("tie_word_embeddings", True)),
    )


def workload_of(config: Config, given: Assumed) -> tuple[Workload, list[str]]:
    """A step's rollouts as far as they can be known, and what is assumed of the rest."""
    training, prompt, told = config.training, Layer1(config.workflow), list[str]()
    count, lengths = _counter(config, told)
    try:
        questions = [p.question for p in open_problems(config, measured=False).sampler.sample(_SAMPLE)]
    except (DataError, ConfigError):
        told.append(f"problems of {_OWN_TEXT / _CHARACTERS:.0f} tokens, for the data cannot be read")
        questions = [Question("", "x" * _OWN_TEXT, domain) for domain in DOMAINS]
    whole = sum(lengths(prompt(question)) for question in questions) / len(questions)
    completion = given.completion
    if completion is None:
        texts = [workflow(source, domain) for source in SHAPES.values() for domain in DOMAINS]
        completion = sum(map(count, texts)) / len(texts) + 1
        told.append(f"workflows of {completion:.0f} tokens, as the hand-written ones")
    judged = 0.0 if config.judge.mode == "rules" else 1.0
    told.append(
        f"{given.calls:g} calls of the executor for each workflow{', and one of the judge' if judged else ''}, "
        f"{given.call_input:g} tokens in and {given.call_output:g} out each, {given.latency:g} s each"
    )
    work = Workload(
        training.rollout_batch_size,
        training.num_return_sequences_in_group,
        count(prompt.system),
        whole,
        min(completion, training.response_max_length),
        given.calls + judged,
        given.call_input,
        given.call_output,
    )
    return work, told


def _counter(config: Config, told: list[str]) -> tuple[Callable[[str], float], Callable[[Prompt], float]]:
    """Tokens of a text and of a prompt, by the policy's tokenizer where it is on this machine."""
    path = config.base_model.path
    if path.startswith("pip:") or Path(path).exists():
        tokenizer = load_tokenizer(locate_weights(path))
        return (
            lambda text: float(len(tokenizer.encode(text, add_special_tokens=False))),
            lambda prompt: float(len(chat_ids(tokenizer, prompt))),
        )
    told.append(f"{_CHARACTERS:g} characters a token, for the policy's tokenizer is not on this machine")

    def prompts(prompt: Prompt) -> float:
        turns = "".join(text for turn in prompt.turns for text in turn)
        return len(prompt.system + turns + prompt.user + prompt.prefill) / _CHARACTERS

    return lambda text: len(text) / _CHARACTERS, prompts


def _measured(work: Workload, log: Path) -> Workload:
    """What an earlier run's log tells of completions and calls."""
    rollouts = [event for event in read_events(log) if event["kind"] == "rollout"]
    if not rollouts:
        raise DataError(f"{log} holds no rollouts; give the log of a run, logs/MODEL/NAME.jsonl")
    usage = usage_of(log)
    calls = max(1, sum(u.calls for u in usage.values()))
    executor = usage["executor"]
    each = (executor.prompt_tokens + executor.completion_tokens) / max(1, executor.calls)
    asked = sum(r["executor_tokens"] for r in rollouts) / len(rollouts) / max(each, 1e-9)
    judges = (calls - executor.calls) / max(1, executor.calls)  # for each call of the executor
    return replace(
        work,
        completion=sum(r["completion_tokens"] for r in rollouts) / len(rollouts),
        calls=asked * (1 + judges),
        call_input=sum(u.prompt_tokens for u in usage.values()) / calls,
        call_output=sum(u.completion_tokens for u in usage.values()) / calls,
    )


def _machine(name: str) -> tuple[int, Card]:
    """``2x80`` (A100) or ``4xH100-80``."""
    if found := re.fullmatch(r"(\d+)x([\w-]+)", name):
        count, card = int(found[1]), CARDS.get(found[2]) or CARDS.get(f"A100-{found[2]}")
        if count and card:
            return count, card
    raise ConfigError(f"machine {name!r}: write COUNTxCARD, such as 2x80 or 4xH100-80; cards are {', '.join(CARDS)}")


def _parts(config: Config, shape: Shape, work: Workload) -> dict[str, float]:
    """Bytes of what must be in cards' memory."""
    training, dtype = config.training, _dtype(config)
    tokens, size = work.tokens(), formulae.BYTES[dtype]
    total = _forwarded(config, work)
    forwarded = min(total, training.micro_batch_tokens)
    update = formulae.update_memory(
        shape,
        config.model.lora_target_modules if isinstance(config.model.lora_target_modules, str)
        else list(config.model.lora_target_modules),
        config.model.lora_rank,
        dtype,
        forwarded,
        forwarded * tokens.generated / total,
        checkpointing=config.model.gradient_checkpointing,
    )  # fmt: skip
    resting = update.weights + update.adapter
    if config.generation.engine == "vllm":
        cache = shape.cache_bytes(tokens.unique, size)
        parts = {"trainer": update.total, "policy server": shape.parameters * size + cache + _SERVER}
    else:
        parts = {"trainer": max(update.total, resting + shape.cache_bytes(tokens.unique, size))}
    host = urlsplit(config.executor.base_url).hostname
    here = config.executor.provider == "openai" and host in ("localhost", "127.0.0.1", "::1")
    if here and config.executor.model in _EXECUTORS:
        parts["executor"] = _EXECUTORS[config.executor.model]
    return parts


def _forwarded(config: Config, work: Workload) -> float:
    """Tokens that an update forwards: each prefix once, unless that is switched off."""
    tokens = work.tokens()
    return tokens.padded if config.training.shared_prefix is False else tokens.unique


def _dtype(config: Config) -> str:
    return "bfloat16" if config.model.dtype in ("auto", "float16") else config.model.dtype


def _on(config: Config, shape: Shape, work: Workload, given: Assumed, count: int, card: Card) -> OnMachine:
    parts, dtype, training = _parts(config, shape, work), _dtype(config), config.training
    cards = formulae.placed(list(parts.items()), count, card.memory)
    helps = []
    if cards is None:
        for name, changed in _knobs(config).items():
            if formulae.placed(list(_parts(changed, shape, work).items()), count, card.memory) is not None:
                helps.append(name)
    seconds = formulae.Seconds(
        formulae.generate_seconds(shape, card, dtype, work, local=config.generation.engine == "local"),
        formulae.update_seconds(
            shape,
            card,
            _forwarded(config, work),
            checkpointing=config.model.gradient_checkpointing,
            epochs=training.ppo_epochs,
            cards=1,
        ),
        *formulae.execute_seconds(work, given.latency, config.executor.concurrency),
    )
    step = seconds.step(training.lookahead)
    hours = step * training.max_steps / 3600
    executor = config.executor
    asked = formulae.money(work, executor.price_per_million_input, executor.price_per_million_output)
    return OnMachine(
        {name: size / GB for name, size in parts.items()},
        cards,
        helps,
        {**asdict(seconds), "step": step},
        hours,
        asked * training.max_steps + hours * count * given.price_per_hour,
    )


def _knobs(config: Config) -> dict[str, Config]:
    """Changes of which each frees memory, by what one would type."""

    def changed(section: str, **values: Any) -> Config:
        return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})

    training = config.training
    longest = training.prompt_max_length + training.response_max_length
    found = {
        "generation.engine=local": changed("generation", engine="local"),
        "model.gradient_checkpointing=true": changed("model", gradient_checkpointing=True),
        "training.shared_prefix=true": changed("training", shared_prefix=True),
        f"training.micro_batch_tokens={longest}": changed("training", micro_batch_tokens=longest),
        "model.lora_rank=16": changed("model", lora_rank=16),
        "executor.base_url of another machine": changed("executor", base_url="http://elsewhere/v1"),
    }
    return {name: other for name, other in found.items() if other != config}
