"""``llm-as-judge warmup``: cold start of a policy on generated workflows or a user's own.

It writes an adapter to train from (``model.adapter``), which is then also the reference of the KL term.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError, DataError

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.evaluation.written import Written


@dataclass(frozen=True, slots=True)
class Look:
    """The policy after some steps: loss on held-out pairs in nats per token, and samples at temperature 1."""

    step: int
    loss: float
    written: "Written"

    def __str__(self) -> str:
        return f"warm-up step {self.step}: held-out loss {self.loss:.3f} nats per token, {self.written}"

    def rank(self) -> tuple[float, float]:
        """Rank more valid workflows higher, then a lower loss."""
        return self.written.valid_rate, -self.loss

    def as_json(self) -> dict[str, Any]:
        return {"step": self.step, "loss": self.loss, "valid_rate": self.written.valid_rate, **asdict(self.written)}


@dataclass(frozen=True, slots=True)
class WarmedUp:
    adapter: Path
    looks: Sequence[Look]


def run_warmup(config: "Config", *, resume: bool = False, progress: Progress = SILENT) -> WarmedUp:
    """Train up to ``warmup.sft_steps`` steps, with a look every ``warmup.look_every``.

    Stops when ``warmup.enough_valid`` of the sampled workflows are valid, because a longer warm-up only narrows what
    GRPO can choose from, or when for two looks neither the held-out loss has fallen nor their share risen. The newest
    checkpoint is that of the most valid workflows, or else the lowest loss, from which ``resume`` continues. If a
    launcher started several processes, this is rank 0; ``assembly.follow`` is the others.

    Raises ``ConfigError``, ``DataError``.
    """
    from llm_as_judge.assembly.follow import load_together
    from llm_as_judge.assembly.policy import checkpoint_folder, make_learner
    from llm_as_judge.commands.warmup_pairs import Pairs
    from llm_as_judge.config.loading import to_yaml
    from llm_as_judge.evaluation.written import look_at
    from llm_as_judge.rl import checkpoint
    from llm_as_judge.rl.ranks import join
    from llm_as_judge.rl.warmup import WarmUp

    settings = config.warmup
    if config.generation.thinking:
        raise ConfigError("the warm-up's workflows have no thoughts: set generation.thinking to false for it")
    folder = checkpoint_folder(config).with_name(f"{config.output.run_name}_warmup")
    best = checkpoint.latest(folder, progress.say) if resume else None
    if resume and best is None:
        raise ConfigError(f"nothing to resume in {folder}; start anew without --resume")
    with join() as ranks:
        author = load_together(config, ranks, progress=progress)
        pairs = Pairs(config, author)
        learner = make_learner(author, ranks)
        loop, optimizer = WarmUp(learner, settings, config.training), learner.optimizer
        if best is not None:
            checkpoint.load(best, optimizer)
            optimizer.steps = checkpoint.step_of(best)
            for _ in range(loop.steps):
                pairs.draw()  # skip what these steps learned from
        optimizer.share()
        held_out, looks = pairs.held_out(), list[Look]()

        def look() -> bool:
            """Measure the policy; returns whether it writes enough valid workflows."""
            policy = replace(author, version=loop.steps)
            written = look_at(policy, pairs.held_out_questions, samples=3)
            looks.append(Look(loop.steps, loop.loss(held_out), written))
            progress.say(str(looks[-1]))
            return written.valid_rate >= settings.enough_valid

        since = f"after {loop.steps} steps" if loop.steps else "before the warm-up"
        progress.say(f"what the policy writes for {len(pairs.held_out_questions)} problems {since}:")
        look()
        enough = False
        while loop.steps < settings.sft_steps and not enough:
            loop.step(pairs.draw())
            progress.advance("warm-up", loop.steps, settings.sft_steps)
            if loop.steps % settings.look_every and loop.steps != settings.sft_steps:
                continue
            enough = look()
            top, least = max(looks, key=Look.rank), min(looks, key=lambda one: one.loss)
            if enough or top is looks[-1]:
                state = checkpoint.TrainingState(loop.steps, checkpoint.random_states())
                best = checkpoint.save(folder, optimizer, state, config_text=to_yaml(config))
            elif top not in looks[-2:] and least not in looks[-2:]:
                progress.say(f"stopped: neither the loss nor the valid share improves; step {top.step} is kept")
                break
    if best is None:
        raise DataError("neither the held-out loss nor the valid workflows improved; lower warmup.sft_learning_rate")
    return WarmedUp(best, looks)


@cli.grouped
def warmup(
    options: cli.ConfigOptions,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Maximum number of optimiser steps.")] = None,
    resume: cli.Resume = False,
    as_json: cli.AsJson = False,
) -> None:
    """Teach the policy to write valid workflows."""
    if cli.followed():
        return
    settings = options.load(sft_steps=steps)

    from llm_as_judge.rl.checkpoint import step_of
    from llm_as_judge.views.terminal import TerminalProgress

    console = cli.make_console(as_json)
    with TerminalProgress(console) as progress:
        result = run_warmup(settings, resume=resume, progress=progress)
    if as_json:
        cli.print_json({"adapter": str(result.adapter), "looks": [look.as_json() for look in result.looks]})
    first, last = result.looks[0].written, step_of(result.adapter)
    kept = next(look.written for look in result.looks if look.step == last)
    rates = f"{100 * first.valid_rate:.0f} % before, {100 * kept.valid_rate:.0f} % after"
    cli.show(console, f"valid workflows: {rates}{kept.reasons}", f"adapter {result.adapter}")
    cli.show(console, f"train from it with: --set model.adapter={result.adapter}")
