"""``llm-as-judge plan``: memory, tokens, time and cost of a run, estimated without loading a model.

Unknown quantities are assumed and listed; ``--log`` takes them from an earlier, shorter run. The formulae are in
``assembly.estimates``.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from llm_as_judge.assembly import estimates
from llm_as_judge.assembly.estimates import GB, TOKENS, Card, ModelSizes, Workload
from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError, DataError, refusing
from llm_as_judge.policy.limits import EVALUATED_AT_ONCE
from llm_as_judge.types import DOMAINS, Question

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config

USABLE = 0.92  # of a card's memory, without CUDA and fragmentation
MACHINES = ("1xA100-40", "1xA100-80", "2xA100-80")
#: Bytes of executors in their published precision (MXFP4), with room for their caches.
_EXECUTORS = {"gpt-oss-120b": 69e9, "gpt-oss-20b": 17e9}
_SERVER = 2e9  # of a vLLM server, in addition to weights and cache
_CHARACTERS = 4.0  # per token, without the tokenizer
_OWN_TEXT = 600  # characters of a problem, without the data
_SAMPLE = 16  # problems


def _option(least: int, help: str) -> Any:
    return typer.Option(min=least, max=1e9, help=help)


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is known only after a run."""

    latency: Annotated[float, _option(0, "Seconds per call of executor or judge.")] = 5.0
    calls: Annotated[float, _option(0, "Executor calls per workflow.")] = 3.0
    call_input: Annotated[float, _option(0, "Prompt tokens per call.")] = 400.0
    call_output: Annotated[float, _option(0, "Reply tokens per call.")] = 500.0
    completion: Annotated[float | None, _option(1, "Tokens per workflow (default: as hand-written ones).")] = None
    gpu_price: Annotated[float, _option(0, "Price of one card per hour.")] = 0.0


@dataclass(frozen=True, slots=True)
class OnMachine:
    """``fits`` is yes, or no with the settings of which each makes all fit; ``on_card`` is empty then."""

    fits: str
    memory_GB: Mapping[str, float]  # of each part
    on_card: Mapping[str, int]  # number of the card
    step_seconds: Mapping[str, float]
    run_hours: float
    run_cost: float


@dataclass(frozen=True, slots=True)
class Plan:
    policy_parameters: int
    rollouts_a_step: int
    tokens_a_step: Mapping[str, float]
    tokens_a_run: Mapping[str, float]
    assumed: str
    machines: Mapping[str, OnMachine]


def make_plan(
    config: "Config", machines: Sequence[str] = MACHINES, assumed: Assumed | None = None, log: Path | None = None
) -> Plan:
    """Plan a run; the ``log`` of another replaces assumptions. Raises ``ConfigError`` for an unknown machine or model
    and ``DataError`` for a log without rollouts.
    """
    from llm_as_judge.workflow.shapes import SHAPES

    given, shape = assumed or Assumed(), estimates.sizes_of(config)
    work, notes = workload_of(config, given)
    if log is not None:
        work, notes = _measured(work, log, config), []
    # Two held-out evaluations, and one of each single workflow; no judge is asked.
    single = {"none": 0, "single": 1, "all": len(SHAPES)}[config.evaluation.baselines]
    evaluations = work.asked(config.data.eval_problems * given.calls * (2 + single))
    steps = config.training.max_steps
    run = {name: tokens * steps + evaluations.get(name, 0.0) for name, tokens in work.tokens.items()}
    return Plan(
        policy_parameters=shape.parameters,
        rollouts_a_step=work.rollouts,
        tokens_a_step={name: round(value) for name, value in work.tokens.items()},
        tokens_a_run={name: round(value) for name, value in run.items()},
        assumed="; ".join(notes) or "nothing",
        machines={
            name: _on(config, shape, work, given, evaluations["requests"], run, *_machine(name)) for name in machines
        },
    )


def workload_of(config: "Config", given: Assumed) -> tuple[Workload, list[str]]:
    """Return a step's rollouts, and what had to be assumed."""
    from llm_as_judge.assembly.problems import open_problems
    from llm_as_judge.workflow.prompt import Layer1
    from llm_as_judge.workflow.shapes import SHAPES, workflow

    training, prompt, notes = config.training, Layer1(config.workflow, config.data.domains, config.choices), list[str]()
    count = _counter(config, notes)
    limit, buffer = training.prompt_max_length, config.experience_buffer

    def length(question: Question) -> float:
        shown = prompt(question)
        return count("".join([shown.system, *sum(shown.turns, ()), shown.user]))

    try:
        problems = open_problems(config)
        questions = [p.question for p in problems.sampler.sample(_SAMPLE)]
        longest = max((length(p.question) for p in problems.heldout), default=0.0)
    except (DataError, ConfigError) as error:
        notes.append(f"problems of {_OWN_TEXT / _CHARACTERS:.0f} tokens, because the data cannot be read: {error}")
        questions = [Question("", "x" * _OWN_TEXT, domain) for domain in DOMAINS]
        longest = limit
    texts = [workflow(source, domain) for source in SHAPES.values() for domain in DOMAINS]
    written = sum(map(count, texts)) / len(texts) + 1
    if given.completion is None:
        notes.append(f"workflows of {written:.0f} tokens, like the hand-written ones")
    shown = buffer.top_k if config.workflow.layer1 else 0
    if shown:
        notes.append(f"{shown} examples from the buffer in a prompt where they fit")

    def with_examples(question: Question) -> float:
        size, example = length(question), count(question.statement) + written
        return size + min(shown, max(0, (limit - size) // example)) * example

    judged = config.judge.asks_model
    notes.append(
        f"{given.calls:g} executor calls per workflow{', and one of the judge' if judged else ''}, "
        f"{given.call_input:g} tokens in and {given.call_output:g} out each, {given.latency:g} s each"
    )
    if config.executors:
        times = {name: own.cost(given.call_input, given.call_output) for name, own in config.choices.items()}
        dearer = [f"{name} costs {times[name] / times['']:.3g} times as much" for name in config.executors if times[""]]
        notes.append(", ".join(["all calls to the default executor", *dearer]))
    if config.generation.engine == "tinker":
        notes.append(f"no time for {config.engine.base_url}")
    work = Workload(
        problems=training.rollout_batch_size,
        group=training.num_return_sequences_in_group,
        shared=count(prompt.system),
        prompt=sum(map(with_examples, questions)) / len(questions),
        completion=min(given.completion or written, training.response_max_length),
        calls=given.calls + judged,
        call_input=given.call_input,
        call_output=min(given.call_output, config.executor.max_tokens),
        longest=min(longest, limit),
    )
    return work, notes


def _counter(config: "Config", notes: list[str]) -> Callable[[str], float]:
    """Return a counter of a text's tokens, by the policy's tokenizer if it is on this machine."""
    path = config.base_model.path
    if path.startswith("pip:") or Path(path).exists():
        from llm_as_judge.config.loading import locate_weights
        from llm_as_judge.policy.weights import load_tokenizer

        with refusing(ConfigError, f"{path} has no tokenizer that can be read", "name another model"):
            tokenizer = load_tokenizer(locate_weights(path))
        return lambda text: float(len(tokenizer.encode(text, add_special_tokens=False)))
    notes.append(f"{_CHARACTERS:g} characters per token, because the policy's tokenizer is not on this machine")
    return lambda text: len(text) / _CHARACTERS


def _measured(work: Workload, log: Path, config: "Config") -> Workload:
    """Return the workload with the completions and calls of an earlier run, and what its choice of executors cost."""
    from llm_as_judge.events import RolloutEvent
    from llm_as_judge.runlog import LogReader

    reader = LogReader(log)
    rollouts = [event.rollout for event in reader.new() if isinstance(event, RolloutEvent)]
    if not rollouts:
        raise DataError(f"{log} holds no rollouts; give the log of a run, logs/MODEL/NAME.jsonl")
    kinds = ("prompt_tokens", "completion_tokens", "calls")
    models = [usage for role, usage in reader.usage.items() if role != "policy"]
    read, answered, calls = (sum(usage[name] for usage in models) for name in kinds)
    asked = {
        role: (reader.usage[role][kinds[0]], reader.usage[role][kinds[1]])
        for role in config.endpoints()
        if role.startswith("executor") and role in reader.usage
    }
    executor, usual = sum(map(sum, asked.values())), sum(config.executor.cost(*tokens) for tokens in asked.values())
    scale = sum(rollout.tokens for rollout in rollouts) / max(executor, 1)  # without checks and evaluations
    return replace(
        work,
        completion=sum(rollout.completion.written for rollout in rollouts) / len(rollouts),
        calls=calls * scale / len(rollouts),
        call_input=read / max(calls, 1),
        call_output=answered / max(calls, 1),
        dearer=sum(config.endpoints()[role].cost(*tokens) for role, tokens in asked.items()) / usual if usual else 1.0,
    )


def _machine(name: str) -> tuple[int, Card]:
    """Read ``4xH100-80``, or a number of cards of other bytes in GB with the speed of an A100, such as ``2x80``."""
    cards, found = estimates.known()[0], re.fullmatch(r"([1-9]\d{0,3})x(?:(\d{1,4}(?:\.\d+)?)|([\w-]+))", name)
    if found and (found[2] or found[3] in cards):
        card = replace(cards["A100-80"], memory=float(found[2]) * GB) if found[2] else cards[found[3]]
        return int(found[1]), card
    raise ConfigError(f"machine {name!r}: write COUNTxCARD, such as 2x80 or 4xH100-80; cards are {', '.join(cards)}")


def _dtype(config: "Config") -> str:
    return "float32" if config.model.dtype == "float32" else "bfloat16"


def _forwarded(config: "Config", work: Workload) -> float:
    """Count the tokens that an update forwards: each prefix once, unless prefix sharing is off."""
    return work.tokens["padded" if config.training.shared_prefix is False else "unique"]


def _parts(config: "Config", shape: ModelSizes, work: Workload, card: Card) -> dict[str, float]:
    """Size all that must be on a card, in bytes: peaks of an update, of sampling and of the held-out evaluation."""
    from llm_as_judge.config.schema import POLICY

    model, dtype, total = config.model, _dtype(config), _forwarded(config, work)
    forwarded = min(total, config.training.micro_batch_tokens)
    update = estimates.update_memory(shape, model, dtype, forwarded, forwarded * work.tokens["generated"] / total)
    parts = {"trainer": sum(asdict(update).values())}
    if config.generation.engine == "vllm":
        least = update.weights + shape.cache_bytes(work.tokens["unique"], dtype) + _SERVER
        own = not config.engine.base_url  # then vLLM takes its share, whatever it needs
        parts["policy server"] = max(least, config.engine.gpu_memory_utilization * card.memory if own else 0.0)
    elif config.generation.engine == "tinker":
        parts = {}
    else:  # one after the other, in the same process
        evaluated, response = min(EVALUATED_AT_ONCE, config.data.eval_problems), config.training.response_max_length
        more = config.longest_episode - config.training.prompt_max_length - response
        needed = max(
            estimates.sampling_memory(shape, dtype, prompts, group, work.shared, longest + more, response)
            for prompts, group, longest in ((work.problems, work.group, work.prompt), (evaluated, 1, work.longest))
        )
        parts["trainer"] = max(parts["trainer"], update.weights + update.adapter + needed)
        parts["trainer"] += shape.weight_bytes(dtype, model.quantization, model.device == "cpu") - update.weights
    for name, roles in config.local_roles(served=False).items():  # kept while the policy is sampled and updated
        sizes = shape if name == POLICY else estimates.sizes_of(config, name)
        kept = sizes.cache_bytes(max(one.concurrency for one in roles) * max(one.context for one in roles), dtype)
        kept += 0.0 if name == POLICY else sizes.weight_bytes(dtype, packed=model.device == "cpu")
        parts["trainer"] = parts.get("trainer", 0.0) + kept
    for role, one in config.endpoints().items():
        local = urlsplit(one.base_url).hostname in ("localhost", "127.0.0.1", "::1")
        if role.startswith("executor") and local and one.provider == "openai" and one.model in _EXECUTORS:
            parts[role] = _EXECUTORS[one.model]
    return parts


def _placed(config: "Config", parts: Mapping[str, float], count: int, card: Card) -> dict[str, int] | None:
    """Choose a card for each part, largest first; None if they do not fit. The run's own server is with the trainer."""
    together = not (config.engine.gpus or config.engine.base_url)
    groups = [["trainer", "policy server"]] if together else [["trainer"], ["policy server"]]
    groups = [[name for name in names if name in parts] for names in groups]
    groups += [[name] for name in parts if name.startswith("executor")]
    left, found = [card.memory * USABLE] * count, dict[str, int]()
    for size, names in sorted(((sum(parts[name] for name in names), names) for names in groups), reverse=True):
        place = max(range(count), key=left.__getitem__)
        if size > left[place]:
            return None
        left[place] -= size
        found |= dict.fromkeys(names, place)
    return found


def _on(
    config: "Config", shape: ModelSizes, work: Workload, given: Assumed, evaluations: float, run: Mapping[str, float],
    count: int, card: Card,
) -> OnMachine:  # fmt: skip
    """Predict a run on a machine; ``evaluations``: requests of the held-out evaluations; ``run``: tokens of the run."""
    training, executor, tokens = config.training, config.executor, work.tokens

    def placed(config: "Config") -> tuple[dict[str, float], dict[str, int] | None]:
        parts = _parts(config, shape, work, card)
        return parts, _placed(config, parts, count, card)

    parts, cards = placed(config)
    changed = {name: placed(other) for name, other in _changes(config)} if cards is None else {}
    helps = [name for name, (_, found) in changed.items() if found]
    most = min(changed, key=lambda name: sum(changed[name][0].values()), default="")
    fits = "yes" if cards else f"no; helps: {'; '.join(helps) or f'nothing alone, most {most}'}"
    if _dtype(config) == "bfloat16" and not card.bfloat16:
        fits, cards = "no; the card has no bfloat16: set model.dtype=float32", None
    weights, speed = shape.weight_bytes(_dtype(config), config.model.quantization), card.flops * estimates.MFU
    read = weights / (card.bandwidth * estimates.BANDWIDTH_SHARE)
    token = estimates.LOCAL_TOKEN_S if config.generation.engine == "local" else read
    passes = 6 if config.model.gradient_checkpointing else 4
    seconds = {
        # All sequences decode together, after a forward pass over the prompts.
        "generate": work.completion * token + 2 * shape.parameters * (tokens["unique"] - tokens["generated"]) / speed,
        "update": training.ppo_epochs * passes * shape.parameters * _forwarded(config, work) / speed,
        "execute": math.ceil(work.calls) * given.latency,
        "served": tokens["requests"] / executor.concurrency * given.latency,
    }
    lookahead, asked = training.lookahead, executor.cost(run["executor_input"], run["executor_output"]) * work.dearer
    if config.generation.engine == "tinker":
        scored, passes = run["padded"], training.ppo_epochs
        read = run["unique"] - run["generated"] + scored * (passes + (training.beta > 0))
        asked += config.engine.cost(read, run["generated"], scored * passes)
        seconds |= {"generate": 0.0, "update": 0.0}
    if config.local_roles(served=False):  # by the same card, one after the other
        read = 2 * shape.parameters * tokens["executor_input"] / speed
        seconds |= {"execute": 0.0, "served": read + tokens["executor_output"] / executor.concurrency * token}
        lookahead = 0
    step = estimates.step_seconds(**seconds, lookahead=lookahead)
    hours = (step * training.max_steps + evaluations / executor.concurrency * given.latency) / 3600
    return OnMachine(
        fits=fits,
        memory_GB={name: round(size / GB, 2) for name, size in parts.items()},
        on_card=cards or {},
        step_seconds={name: round(value, 2) for name, value in {**seconds, "step": step}.items()},
        run_hours=round(hours, 3),
        run_cost=round(asked + hours * count * given.gpu_price, 2),
    )


def _changes(config: "Config") -> "Iterator[tuple[str, Config]]":
    """Yield settings that free memory, each with the changed configuration."""
    for name, value, shown in (
        ("generation.engine", "local", "=local"),
        ("model.gradient_checkpointing", True, "=true"),
        ("model.quantization", "nf4", "=nf4"),
        ("training.shared_prefix", True, "=true"),
        ("training.micro_batch_tokens", config.longest_episode, f"={config.longest_episode}"),
        ("data.eval_problems", 16, "=16"),
        ("model.lora_rank", 16, "=16"),
        ("executor.concurrency", 8, "=8"),
        ("executor.base_url", "http://elsewhere/v1", " of another machine"),
    ):
        section, leaf = name.split(".")
        other = config.model_copy(update={section: getattr(config, section).model_copy(update={leaf: value})})
        if other != config:
            yield name + shown, other


@cli.grouped
def plan(
    options: cli.ConfigOptions,
    assumed: Assumed,
    machine: Annotated[
        list[str] | None,
        typer.Option("--gpus", metavar="NxCARD", help="Machine, such as 2x80 or 4xH100-80; repeatable."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--log", metavar="RUN", help="Earlier run, or its log, for calls and lengths.")
    ] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Estimate what a run will take, what does not fit, and which setting helps."""
    from llm_as_judge.runlog import find_log
    from llm_as_judge.views.terminal import make_table

    config = options.load()
    log = find_log(config, run) if run is not None else None
    found = make_plan(config, tuple(machine or MACHINES), assumed, log)
    if as_json:
        cli.print_json(found)
        return
    console = cli.make_console(False)
    size = found.policy_parameters
    amount = f"{size / 1e9:.2f} billion" if size >= 1e9 else f"{size / 1e6:.1f} million"
    cli.show(console, f"A policy of {amount} parameters, {found.rollouts_a_step} workflows a step")
    table = make_table("Memory, card of each part, seconds of a step, and the run", "", *found.machines)
    facts = [dict(cli.flat(asdict(on))) for on in found.machines.values()]
    for name in dict.fromkeys(name for of in facts for name in of if name != "fits"):
        table.add_row(name, *(of.get(name, "") for of in facts))
    console.print(table)
    for name, on in found.machines.items():
        cli.show(console, f"{name} fits: {on.fits}")
    table = make_table("Tokens", "", "a step", "the run")
    for name, title in TOKENS.items():
        table.add_row(title, f"{found.tokens_a_step[name]:,}", f"{found.tokens_a_run[name]:,}")
    console.print(table)
    cli.show(console, f"Assumed: {found.assumed}.")
