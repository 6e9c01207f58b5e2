"""GRPO training from a configuration: ``await GRPOTrainer(config_path="config/training.yaml").train(num_steps=500)``.

``GRPOTrainer`` only trains. ``run_training`` is the command ``llm-as-judge train``: held-out evaluation, training,
held-out evaluation again, the baselines, and the report (table, ``results/training/<run>.json``, learning curve).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from llm_as_judge.config.loading import load_config, resolve_model, to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation import baselines
from llm_as_judge.evaluation.evaluate import Summary, evaluate_policy, summarise
from llm_as_judge.events import EventLog
from llm_as_judge.experience.buffer import Experience, ExperienceBuffer
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.policy import Policy
from llm_as_judge.rl.report import StepReport
from llm_as_judge.rl.rollout import Engine, extract_code
from llm_as_judge.rl.trainer import Trainer, TrainerParts
from llm_as_judge.types import Domain, Group, Problem, Question, Rollout
from llm_as_judge.views.charts import learning_curve, steps_of
from llm_as_judge.views.terminal import Line, plans_table, progress_bar, result_table, shapes_table, step_line
from llm_as_judge.workbench import (
    Workbench,
    held_out_sampling,
    heldout_problems,
    load_policy,
    make_engine,
    trainer_settings,
    training_sampler,
    validation_problems,
)
from llm_as_judge.workflow.catalogue import PLANS
from llm_as_judge.workflow.prompt import Example, Prompt, system_prompt

logger = logging.getLogger(__name__)


class Experiences:
    """The experience buffer as the loop and the prompts use it; persistent where a folder is configured."""

    def __init__(self, config: Config, policy: Policy) -> None:
        self.settings = config.experience_buffer
        self.buffer = ExperienceBuffer(self.settings, _embedder(self.settings.embedder, policy))
        self.buffer.load()

    def examples(self, question: Question) -> list[Example]:
        found = self.buffer.top_k(question.statement, question.domain, problem_id=question.id)
        return [Example(e.problem_text, e.workflow) for e in found]

    def update(self, groups: Sequence[Group], step: int) -> None:
        for group in groups:
            question = group.problem.question
            for r in group.rollouts:
                if r.verdict.correct and r.reward.total is not None:
                    source = extract_code(r.completion.text)
                    self.buffer.add(
                        Experience(question.id, question.statement, source, r.reward.total, question.domain, step)
                    )
        if self.settings.max_age:
            self.buffer.expire(step - self.settings.max_age)
        self.buffer.save()

    def state_dict(self) -> Mapping[str, Any]:
        return self.buffer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.buffer.load_state_dict(state)


def _embedder(name: str, policy: Policy) -> Callable[[list[str]], list[list[float]]]:
    """How problems are compared: the policy's own hidden states, or a sentence-transformers model by name."""
    if name == "policy":
        return lambda texts: policy.embed(texts).tolist()
    from llm_as_judge.experience.embedding import SentenceEmbedder

    model = SentenceEmbedder(name)
    return lambda texts: model.embed(texts).tolist()


@dataclass(frozen=True, slots=True)
class Run:
    """One training run's parts and places."""

    config: Config
    policy: Policy
    engine: Engine
    trainer: Trainer
    log: EventLog
    checkpoints: Path
    results: Path


def prepare(config: Config, bench: Workbench, *, resume: bool, on_step: Callable[[StepReport], None]) -> Run:
    """Everything of a run up to its first step; with ``resume``, from the last checkpoint."""
    key, output, training = resolve_model(config).key, config.output, config.training
    checkpoints = output.output_dir / key / output.run_name
    results = output.results_dir / "training"
    log_file = output.log_dir / f"{output.run_name}.jsonl"
    for folder in (checkpoints, results, output.log_dir):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13), str(folder))
    newest = checkpoint.latest(checkpoints)
    if resume and newest is None:
        raise ConfigError(f"nothing to resume in {checkpoints}; start anew without --resume")
    if not resume:
        if newest is not None:
            logger.warning("%s holds an earlier run; its checkpoints are replaced as this one goes", checkpoints)
        log_file.unlink(missing_ok=True)
    policy = load_policy(config)
    engine = make_engine(config, policy, checkpoints)
    buffer = Experiences(config, policy) if config.experience_buffer.enabled else None
    log = EventLog(log_file)
    checks = validation_problems(config) if training.eval_every else []

    async def validate(step: int) -> dict[str, float]:
        sampled = held_out_sampling(config, bench, policy, engine)
        found = summarise(await evaluate_policy(checks, sampled, bench.rollout_parts(bench.official)))
        shares = {"overall": found.overall.value, "valid_rate": found.valid_rate.value}
        return shares | {str(d): e.value for d, e in found.domains.items()}

    def build_prompt(question: Question) -> Prompt:
        examples = buffer.examples(question) if buffer else []
        prompt = bench.prompt(question, examples)
        log.log("prompt", problem=question.id, user=prompt.user, examples=len(examples))
        return prompt

    def step_done(report: StepReport) -> None:
        log.log("usage", step=report.step, **bench.usage())
        on_step(report)

    audited = bench.audited_judge()
    parts = TrainerParts(
        policy=policy,
        engine=engine,
        sampler=training_sampler(config),
        build_prompt=build_prompt,
        rollout=bench.training_parts(audited or bench.judge),
        audit=audited,
        log=log.log,
        checkpoint_dir=checkpoints,
        buffer=buffer,
        on_step=step_done,
        evaluate=validate if training.eval_every else None,
        config_text=to_yaml(config),
    )
    trainer = Trainer(parts, trainer_settings(config))
    if resume and newest is not None:
        trainer.resume(newest)
    log.log("run", config=to_yaml(config), sandbox=str(bench.sandbox.describe()), resumed_at=trainer.step)
    log.log(
        "layers",
        layer1=system_prompt(config.workflow.operators) if config.workflow.layer1 else "",
        layer2=bench.enhance.as_json(),
    )
    return Run(config, policy, engine, trainer, log, checkpoints, results)


class GRPOTrainer:
    """Trains the configured policy; ``train`` may be awaited once."""

    def __init__(
        self,
        config_path: str | Path | None = None,
        overrides: Sequence[str] = (),
        *,
        config: Config | None = None,
        resume: bool = False,
    ) -> None:
        self.config = config or load_config(config_path, overrides)
        self.resume = resume

    async def train(self, num_steps: int | None = None) -> StepReport | None:
        """Run ``num_steps`` steps (default: up to ``training.max_steps``); returns the last step's report."""
        async with Workbench(self.config) as bench:
            run = prepare(self.config, bench, resume=self.resume, on_step=lambda report: None)
            return await run.trainer.train(num_steps)


def run_training(config: Config, *, resume: bool, console: Console) -> dict[str, Any]:
    """``llm-as-judge train``; returns what ``results/training/<run>.json`` holds."""
    return asyncio.run(_train_and_report(config, resume, console))


async def _train_and_report(config: Config, resume: bool, console: Console) -> dict[str, Any]:
    begun = time.monotonic()
    async with Workbench(config) as bench:
        console.print(bench.sandbox.describe().summary, highlight=False)
        total = config.training.max_steps
        with progress_bar(console) as progress:
            task = progress.add_task("training", total=total, start=False)

            def on_step(report: StepReport) -> None:
                progress.update(task, completed=report.step)
                progress.console.print(step_line(report, total), highlight=False)

            run = prepare(config, bench, resume=resume, on_step=on_step)
            problems = heldout_problems(config)
            sampled = held_out_sampling(config, bench, run.policy, run.engine)
            official = bench.rollout_parts(bench.official)
            console.print(f"held-out evaluation of the untrained policy on {len(problems)} problems")
            before_file = run.checkpoints / "before.json"
            untrained = None
            if not (resume and before_file.exists()):
                untrained = await _measure_untrained(run, bench, problems, resumed=resume)
                before_file.write_text(json.dumps(untrained.as_json()))
            before = json.loads(before_file.read_text())
            progress.start_task(task)
            training_began = time.monotonic()
            await run.trainer.train()
            training_seconds = time.monotonic() - training_began
        console.print("held-out evaluation of the trained policy and of every workflow alone")
        rollouts = await evaluate_policy(problems, sampled, official)
        after = summarise(rollouts, sampled.special_tokens)
        matrix = await baselines.measure(problems, official)
        agreement = await judge_agreement(bench, [r for rs in matrix.rollouts.values() for r in rs])
    learned = learned_plans(after)
    rows = baselines.rows(matrix)
    result = {
        "run": config.output.run_name,
        "seed": config.training.seed,
        "before": before,
        "after": after.as_json(),
        "baselines": {row.name: row.as_json() for row in rows},
        "workflows": matrix.accuracies(),
        "learned": learned,
        "judge": agreement,
        "problems": len(problems),
        "steps": run.trainer.step,
        "sandbox": str(bench.sandbox.describe()),
        "usage": {role: asdict(usage) for role, usage in bench.usage().items()},
        "seconds": {"training": training_seconds, "all": time.monotonic() - begun},
    }
    path = run.results / f"{config.output.run_name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    picture = path.with_suffix(".png")
    learning_curve(steps_of(run.log.path), picture, before["overall"], after.overall.value)
    _print_report(console, untrained, before, after, rows, matrix, learned, agreement)
    console.print(
        f"trained {run.trainer.step} steps in {training_seconds:.0f} s; all in {time.monotonic() - begun:.0f} s"
    )
    for name, file in (
        ("adapter", f"{run.checkpoints}/step_{run.trainer.step}"),
        ("results", path),
        ("curve", picture),
    ):
        console.print(f"{name:8}{file}", highlight=False, soft_wrap=True)
    return result


async def _measure_untrained(run: Run, bench: Workbench, problems: Sequence[Problem], *, resumed: bool) -> Summary:
    """Held-out evaluation of the policy as it was before the first step."""
    policy, engine = run.policy, run.engine
    if resumed:  # the run's own policy is trained already
        policy = load_policy(run.config)
        engine = make_engine(run.config, policy, run.checkpoints)
    sampled = held_out_sampling(run.config, bench, policy, engine)
    rollouts = await evaluate_policy(problems, sampled, bench.rollout_parts(bench.official))
    return summarise(rollouts, sampled.special_tokens)


def learned_plans(after: Summary) -> dict[Domain, str]:
    """The plan the policy writes most in each domain ('' for a shape that is no plan's)."""
    tops = {domain: next(iter(shapes)) for domain, shapes in after.shapes.items()}
    return {domain: top if top in PLANS else "" for domain, top in tops.items()}


async def judge_agreement(bench: Workbench, rollouts: Sequence[Rollout], limit: int = 200) -> dict[str, Any]:
    """How often the configured LLM judge alone agrees with the rules on answers whose truth the rules know."""
    if bench.config.judge.mode == "rules":
        return {}
    from llm_as_judge.judging.judge import Judge

    alone = Judge(bench.config.judge.model_copy(update={"mode": "llm"}), bench.judge_model)
    known = [r for r in rollouts if r.execution.answer and not r.problem.reference.tests]
    chosen = known[:: max(1, len(known) // limit)][:limit]
    verdicts = await asyncio.gather(*(alone.verdict(r.problem, r.execution.answer) for r in chosen))
    pairs = Counter((r.verdict.correct, v.correct) for r, v in zip(chosen, verdicts, strict=True))
    said = sum(n for (_, v), n in pairs.items() if v is not None)
    return {
        "pairs": len(chosen),
        "agreement": (pairs[True, True] + pairs[False, False]) / said if said else None,
        "false_accepts": pairs[False, True],
        "false_rejects": pairs[True, False],
        "abstained": len(chosen) - said,
    }


def _print_report(
    console: Console,
    untrained: Summary | None,
    before: Mapping[str, Any],
    after: Summary,
    rows: Sequence[baselines.Row],
    matrix: baselines.Matrix,
    learned: Mapping[Domain, str],
    agreement: Mapping[str, Any],
) -> None:
    lines = [Line("trained policy", after.overall, after.domains, after.valid_rate, after.tokens)]
    if untrained is not None:
        lines.insert(
            0,
            Line(
                "untrained policy",
                untrained.overall,
                untrained.domains,
                untrained.valid_rate,
                untrained.tokens,
            ),
        )
    lines += [Line(row.name, row.overall, row.domains, None, row.tokens) for row in rows]
    console.print(result_table(lines, after.overall.n))
    console.print(shapes_table(before["shapes"], after.shapes))
    console.print(plans_table(matrix.accuracies(), learned))
    if agreement and agreement["agreement"] is not None:
        console.print(
            f"The LLM judge alone agrees with the truth on {100 * agreement['agreement']:.1f} % of "
            f"{agreement['pairs']} answers ({agreement['false_accepts']} false accepts, "
            f"{agreement['false_rejects']} false rejects, {agreement['abstained']} abstained)."
        )
