"""``llm-as-judge plan``: memory, tokens, seconds and money of a run, estimated without loading a model.

What cannot be known beforehand is assumed and listed; ``--log`` takes it from an earlier, shorter run instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from llm_as_judge.assembly.estimates import (
    BANDWIDTH_SHARE,
    BYTES,
    CARDS,
    GB,
    LOCAL_TOKEN_S,
    MFU,
    TOKENS,
    Card,
    Seconds,
    Shape,
    Workload,
    execute_seconds,
    shape_of,
    update_memory,
)
from llm_as_judge.commands.options import (
    DEFAULT_CONFIG,
    AsJson,
    ConfigPath,
    ModelName,
    Overrides,
    load_settings,
    make_console,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from llm_as_judge.config.schema import Config
    from llm_as_judge.types import Prompt

USABLE = 0.92  # of a card's memory, without CUDA and fragmentation
MACHINES = ("1xA100-40", "1xA100-80", "2xA100-80")
#: Bytes of executors in their published precision (MXFP4), with room for their caches.
_EXECUTORS = {"gpt-oss-120b": 69e9, "gpt-oss-20b": 17e9}
_SERVER = 2e9  # of a vLLM server, in addition to weights and cache
_CHARACTERS = 4.0  # per token, without the tokenizer
_OWN_TEXT = 600  # characters of a problem, without the data
_SAMPLE = 16  # problems


@dataclass(frozen=True, slots=True)
class Assumed:
    """``latency`` is in seconds per call; ``completion`` is None for the length of the hand-written workflows."""

    latency: float = 5.0
    calls: float = 3.0  # of the executor per workflow
    call_input: float = 400.0
    call_output: float = 500.0
    completion: float | None = None
    price_per_hour: float = 0.0  # of one card


@dataclass(frozen=True, slots=True)
class OnMachine:
    """``parts`` in GB with the card of each in ``cards`` (None: does not fit); any one of ``helps`` makes all fit."""

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
        tokens = self.workload.tokens
        return {
            "policy_parameters": self.parameters,
            "rollouts_a_step": self.workload.rollouts,
            "tokens_a_step": {name: round(value) for name, value in tokens.items()},
            "tokens_a_run": {name: round(value * self.steps) for name, value in tokens.items()},
            "assumed": "; ".join(self.assumed) or "nothing",
            "machines": {
                name: {
                    "fits": "yes" if found.cards is not None else f"no; helps: {found.remedy}",
                    "memory_GB": {part: round(size, 2) for part, size in found.parts.items()},
                    "on_card": dict(found.cards or {}),
                    "step_seconds": {what: round(value, 2) for what, value in found.seconds.items()},
                    "run_hours": round(found.hours, 3),
                    "run_cost": round(found.cost, 2),
                }
                for name, found in self.machines.items()
            },
        }


def make_plan(
    config: Config, machines: Sequence[str] = MACHINES, assumed: Assumed | None = None, log: Path | None = None
) -> Plan:
    """``log`` of an earlier run replaces assumptions. Raises ``ConfigError`` for an unknown machine or model and
    ``DataError`` for a log without rollouts.
    """
    given, shape = assumed or Assumed(), shape_of(config)
    work, notes = workload_of(config, given)
    if log is not None:
        work, notes = _measured(work, log), []
    found = {name: _on(config, shape, work, given, *_machine(name)) for name in machines}
    return Plan(work, shape.parameters, notes, found, config.training.max_steps)


def workload_of(config: Config, given: Assumed) -> tuple[Workload, list[str]]:
    """A step's rollouts, and what had to be assumed."""
    from llm_as_judge.assembly.problems import open_problems
    from llm_as_judge.errors import ConfigError, DataError
    from llm_as_judge.types import DOMAINS, Question
    from llm_as_judge.workflow.prompt import Layer1
    from llm_as_judge.workflow.shapes import SHAPES, workflow

    training, prompt, notes = config.training, Layer1(config.workflow), list[str]()
    count, length = _counters(config, notes)
    try:
        questions = [p.question for p in open_problems(config, measured=False).sampler.sample(_SAMPLE)]
    except (DataError, ConfigError):
        notes.append(f"problems of {_OWN_TEXT / _CHARACTERS:.0f} tokens, because the data cannot be read")
        questions = [Question("", "x" * _OWN_TEXT, domain) for domain in DOMAINS]
    completion = given.completion
    if completion is None:
        texts = [workflow(source, domain) for source in SHAPES.values() for domain in DOMAINS]
        completion = sum(map(count, texts)) / len(texts) + 1
        notes.append(f"workflows of {completion:.0f} tokens, like the hand-written ones")
    judged = 0.0 if config.judge.mode == "rules" else 1.0
    notes.append(
        f"{given.calls:g} executor calls per workflow{', and one of the judge' if judged else ''}, "
        f"{given.call_input:g} tokens in and {given.call_output:g} out each, {given.latency:g} s each"
    )
    work = Workload(
        problems=training.rollout_batch_size,
        group=training.num_return_sequences_in_group,
        shared=count(prompt.system),
        prompt=sum(length(prompt(question)) for question in questions) / len(questions),
        completion=min(completion, training.response_max_length),
        calls=given.calls + judged,
        call_input=given.call_input,
        call_output=given.call_output,
    )
    return work, notes


def _counters(config: Config, notes: list[str]) -> tuple[Callable[[str], float], Callable[[Prompt], float]]:
    """Tokens of a text and of a prompt, by the policy's tokenizer if it is on this machine."""
    path = config.base_model.path
    if path.startswith("pip:") or Path(path).exists():
        from llm_as_judge.config.loading import locate_weights
        from llm_as_judge.policy.chat import chat_ids
        from llm_as_judge.policy.weights import load_tokenizer

        tokenizer = load_tokenizer(locate_weights(path))
        return (
            lambda text: float(len(tokenizer.encode(text, add_special_tokens=False))),
            lambda prompt: float(len(chat_ids(tokenizer, prompt))),
        )
    notes.append(f"{_CHARACTERS:g} characters per token, because the policy's tokenizer is not on this machine")

    def length(prompt: Prompt) -> float:
        turns = "".join(text for turn in prompt.turns for text in turn)
        return len(prompt.system + turns + prompt.user + prompt.prefill) / _CHARACTERS

    return lambda text: len(text) / _CHARACTERS, length


def _measured(work: Workload, log: Path) -> Workload:
    """The workload with the completions and calls of an earlier run."""
    from llm_as_judge.errors import DataError
    from llm_as_judge.events import RolloutEvent
    from llm_as_judge.runlog import LogReader

    reader = LogReader(log)
    lengths = [(e.executor_tokens, e.completion_tokens) for e in reader.new() if isinstance(e, RolloutEvent)]
    if not lengths:
        raise DataError(f"{log} holds no rollouts; give the log of a run, logs/MODEL/NAME.jsonl")
    usage, executor = reader.usage.values(), reader.usage["executor"]
    calls, own = max(1, sum(u["calls"] for u in usage)), max(1, executor["calls"])
    each = (executor["prompt_tokens"] + executor["completion_tokens"]) / own
    asked = sum(tokens for tokens, _ in lengths) / len(lengths) / max(each, 1e-9)
    return replace(
        work,
        completion=sum(tokens for _, tokens in lengths) / len(lengths),
        calls=asked * (1 + (calls - executor["calls"]) / own),  # the judge's calls per call of the executor
        call_input=sum(u["prompt_tokens"] for u in usage) / calls,
        call_output=sum(u["completion_tokens"] for u in usage) / calls,
    )


def _machine(name: str) -> tuple[int, Card]:
    """``2x80`` (A100) or ``4xH100-80``."""
    from llm_as_judge.errors import ConfigError

    if found := re.fullmatch(r"(\d+)x([\w-]+)", name):
        count, card = int(found[1]), CARDS.get(found[2]) or CARDS.get(f"A100-{found[2]}")
        if count and card:
            return count, card
    raise ConfigError(f"machine {name!r}: write COUNTxCARD, such as 2x80 or 4xH100-80; cards are {', '.join(CARDS)}")


def _dtype(config: Config) -> str:
    return "float32" if config.model.dtype == "float32" else "bfloat16"


def _forwarded(config: Config, work: Workload) -> float:
    """Tokens that an update forwards: each prefix once, unless prefix sharing is off."""
    return work.tokens["padded" if config.training.shared_prefix is False else "unique"]


def _parts(config: Config, shape: Shape, work: Workload) -> dict[str, float]:
    """Bytes of everything that must be on a card."""
    model, dtype, total = config.model, _dtype(config), _forwarded(config, work)
    forwarded = min(total, config.training.micro_batch_tokens)
    update = update_memory(
        shape, model.lora_target_modules, model.lora_rank, dtype, forwarded,
        forwarded * work.tokens["generated"] / total, checkpointing=model.gradient_checkpointing,
    )  # fmt: skip
    trainer, cache = sum(asdict(update).values()), shape.cache_bytes(work.tokens["unique"], dtype)
    if config.generation.engine == "vllm":
        parts = {"trainer": trainer, "policy server": update.weights + cache + _SERVER}
    else:
        parts = {"trainer": max(trainer, update.weights + update.adapter + cache)}
    local = urlsplit(config.executor.base_url).hostname in ("localhost", "127.0.0.1", "::1")
    if local and config.executor.provider == "openai" and config.executor.model in _EXECUTORS:
        parts["executor"] = _EXECUTORS[config.executor.model]
    return parts


def _placed(parts: Mapping[str, float], count: int, card: Card) -> dict[str, int] | None:
    """A card for each part, the largest first; None if they do not fit."""
    left, found = [card.memory * USABLE] * count, dict[str, int]()
    for name, size in sorted(parts.items(), key=lambda part: -part[1]):
        place = max(range(count), key=left.__getitem__)
        if size > left[place]:
            return None
        left[place] -= size
        found[name] = place
    return found


def _on(config: Config, shape: Shape, work: Workload, given: Assumed, count: int, card: Card) -> OnMachine:
    training, executor, parts = config.training, config.executor, _parts(config, shape, work)
    cards, tokens = _placed(parts, count, card), work.tokens
    helps = []
    if cards is None:
        changes = _changes(config).items()
        helps = [name for name, other in changes if _placed(_parts(other, shape, work), count, card) is not None]
    weights, speed = shape.parameters * BYTES[_dtype(config)], card.flops * MFU
    token = LOCAL_TOKEN_S if config.generation.engine == "local" else weights / (card.bandwidth * BANDWIDTH_SHARE)
    passes = 6 if config.model.gradient_checkpointing else 4
    seconds = Seconds(
        # All sequences decode together, after a forward pass over the prompts.
        work.completion * token + 2 * shape.parameters * (tokens["unique"] - tokens["generated"]) / speed,
        training.ppo_epochs * passes * shape.parameters * _forwarded(config, work) / speed,
        *execute_seconds(work, given.latency, executor.concurrency),
    )
    step = seconds.step(training.lookahead)
    hours = step * training.max_steps / 3600
    asked = tokens["executor_input"] * executor.price_per_million_input
    asked += tokens["executor_output"] * executor.price_per_million_output
    return OnMachine(
        {name: size / GB for name, size in parts.items()},
        cards,
        helps,
        {**asdict(seconds), "step": step},
        hours,
        asked / 1e6 * training.max_steps + hours * count * given.price_per_hour,
    )


def _changes(config: Config) -> dict[str, Config]:
    """Settings that free memory, each with the changed configuration."""
    longest = config.training.prompt_max_length + config.training.response_max_length
    values: dict[str, Any] = {
        "generation.engine": "local",
        "model.gradient_checkpointing": True,
        "training.shared_prefix": True,
        "training.micro_batch_tokens": longest,
        "model.lora_rank": 16,
        "executor.base_url": "http://elsewhere/v1",
    }
    found = {}
    for name, value in values.items():
        section, leaf = name.split(".")
        other = config.model_copy(update={section: getattr(config, section).model_copy(update={leaf: value})})
        if other != config:
            found[f"{name} of another machine" if leaf == "base_url" else f"{name}={str(value).lower()}"] = other
    return found


def plan_tables(plan: Plan) -> Iterator[RenderableType]:
    """The machines next to each other, the tokens, and the assumptions."""
    from rich.text import Text

    from llm_as_judge.views.terminal import make_table

    size, rollouts = plan.parameters / 1e9, plan.workload.rollouts
    yield Text(f"A policy of {size:.2f} billion parameters, {rollouts} workflows a step, {plan.steps} steps")
    machines = plan.machines.values()
    table = make_table("Memory, seconds of a step, and the run", "", *plan.machines)

    table.add_row("fits", *("no" if found.cards is None else "yes" for found in machines))
    first = next(iter(machines))  # all have the same parts and phases
    for part, size in first.parts.items():
        cards = (f" (card {found.cards[part]})" if found.cards else "" for found in machines)
        table.add_row(f"{part}, GB", *(f"{size:.1f}{card}" for card in cards))
    for phase in first.seconds:
        table.add_row(f"{phase}, s", *(f"{found.seconds[phase]:.1f}" for found in machines))
    table.add_row("the run, hours", *(f"{found.hours:.1f}" for found in machines))
    table.add_row("the run, cost", *(f"{found.cost:.2f}" for found in machines))
    yield table
    for name, found in plan.machines.items():
        if found.cards is None:
            yield Text(f"{name} is too small; what helps: {found.remedy}")
    table = make_table("Tokens", "", "a step", "the run")
    for name, title in TOKENS.items():
        value = plan.workload.tokens[name]
        table.add_row(title, f"{value:,.0f}", f"{value * plan.steps:,.0f}")
    yield table
    yield Text(f"Assumed: {'; '.join(plan.assumed) or 'nothing'}.")


def plan(
    config: ConfigPath = DEFAULT_CONFIG,
    model: ModelName = None,
    overrides: Overrides = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--gpus", metavar="NxCARD", help="Machine, such as 2x80 or 4xH100-80; repeatable."),
    ] = None,
    latency: Annotated[float, typer.Option("--latency", min=0, help="Seconds per call of executor or judge.")] = 5.0,
    calls: Annotated[float, typer.Option("--calls", min=0, help="Executor calls per workflow.")] = 3.0,
    call_input: Annotated[float, typer.Option("--call-input", min=0, help="Prompt tokens per call.")] = 400.0,
    call_output: Annotated[float, typer.Option("--call-output", min=0, help="Reply tokens per call.")] = 500.0,
    completion: Annotated[
        float | None, typer.Option("--completion", min=1, help="Tokens per workflow (default: as hand-written ones).")
    ] = None,
    gpu_price: Annotated[float, typer.Option("--gpu-price", min=0, help="Price of one card per hour.")] = 0.0,
    log: Annotated[
        Path | None,
        typer.Option("--log", exists=True, dir_okay=False, help="Log of an earlier run, for calls and lengths."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what a run will take, what does not fit, and which setting helps."""
    settings = load_settings(config, overrides, model, None)
    assumed = Assumed(latency, calls, call_input, call_output, completion, gpu_price)
    found = make_plan(settings, tuple(machine or MACHINES), assumed, log)
    if as_json:
        print_json(found.as_json())
        return
    console = make_console(False)
    for part in plan_tables(found):
        console.print(part)
