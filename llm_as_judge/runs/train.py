"""``llm-as-judge train``: held-out evaluation, GRPO, held-out evaluation again, the baselines, and the results."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation import baselines
from llm_as_judge.evaluation.evaluate import Summary, evaluate
from llm_as_judge.events import EventLog
from llm_as_judge.experience.buffer import Embed
from llm_as_judge.experience.recall import Recall
from llm_as_judge.files import write_json
from llm_as_judge.judging.audit import AuditedJudge
from llm_as_judge.judging.judge import Judge
from llm_as_judge.llm import Usage
from llm_as_judge.rewards.custom import CustomRewards, load_function
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.policy import Policy
from llm_as_judge.rl.report import StepReport
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.rl.trainer import Trainer, TrainerParts
from llm_as_judge.runs.policy import author_of, checkpoint_folder, load_author, load_policy, make_engine, prompt_builder
from llm_as_judge.runs.problems import heldout_problems, training_sampler, validation_problems
from llm_as_judge.runs.progress import Progress, Silent
from llm_as_judge.runs.services import Services, open_services
from llm_as_judge.types import Domain, Problem, Question, Rollout
from llm_as_judge.views.charts import learning_curve, steps_of
from llm_as_judge.workflow.catalogue import PLANS
from llm_as_judge.workflow.prompt import Prompt, system_prompt

logger = logging.getLogger(__name__)

#: Answers on which the configured judge is compared with the rules at the end of a run.
_AGREEMENT_OF = 200


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the configured LLM judge alone agrees with the rules on answers whose truth the rules know."""

    pairs: int
    agreement: float | None  # of the pairs that were decided
    false_accepts: int
    false_rejects: int
    abstained: int


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run came to; ``as_json`` is what its results file holds."""

    config: Config
    before: Summary
    after: Summary
    baselines: Sequence[baselines.Baseline]
    workflows: Mapping[str, Mapping[Domain, float]]  # accuracy of each workflow of the catalogue alone
    learned: Mapping[Domain, str]  # what the policy writes most; '' for a shape outside the catalogue
    judge: Agreement | None
    problems: int
    steps: int
    sandbox: str
    usage: Mapping[str, Usage]  # of each model asked
    seconds: Mapping[str, float]
    adapter: Path
    results: Path

    @property
    def curve(self) -> Path:
        return self.results.with_suffix(".png")

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.config.output.run_name,
            "seed": self.config.training.seed,
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "baselines": {row.name: row.as_json() for row in self.baselines},
            "workflows": self.workflows,
            "learned": self.learned,
            "judge": asdict(self.judge) if self.judge else {},
            "problems": self.problems,
            "steps": self.steps,
            "sandbox": self.sandbox,
            "usage": {role: asdict(usage) for role, usage in self.usage.items()},
            "seconds": self.seconds,
        }


async def train(config: Config, *, resume: bool = False, progress: Progress | None = None) -> TrainResult:
    """Trains up to ``training.max_steps``, measures before and after, and writes results and learning curve."""
    begun, progress = time.monotonic(), progress or Silent()
    total = config.training.max_steps
    async with open_services(config) as services:
        progress.say(services.sandbox.describe().summary)
        run = prepare(config, services, resume=resume, on_step=lambda report: progress.step(report, total))
        problems, official = heldout_problems(config), services.rollout_parts(services.official)

        def watch(what: str, count: int) -> Callable[[int], None]:
            return lambda done: progress.advance(what, done, count)

        progress.say(f"held-out evaluation of the untrained policy on {len(problems)} problems")
        before = await _untrained(run, problems, official, watch("untrained policy", len(problems)))
        training_began = time.monotonic()
        await run.trainer.train()
        training_seconds = time.monotonic() - training_began
        progress.say("held-out evaluation of the trained policy and of every workflow alone")
        author = author_of(config, run.policy, run.trainer.parts.engine, run.trainer.step)
        after = (await evaluate(problems, author, official, watch("trained policy", len(problems)))).summary
        matrix = await baselines.measure(problems, official, watch("workflows alone", len(PLANS)))
        judge = await _agreement(config, services, [r for rs in matrix.rollouts.values() for r in rs])
        result = TrainResult(
            config=config,
            before=before,
            after=after,
            baselines=baselines.rows(matrix),
            workflows=matrix.accuracies(),
            learned=learned_plans(after),
            judge=judge,
            problems=len(problems),
            steps=run.trainer.step,
            sandbox=str(services.sandbox.describe()),
            usage=services.usage(),
            seconds={"training": training_seconds, "all": time.monotonic() - begun},
            adapter=run.trainer.parts.checkpoint_dir / f"step_{run.trainer.step}",
            results=config.output.results_dir / "training" / f"{config.output.run_name}.json",
        )
    write_json(result.results, result.as_json())
    learning_curve(steps_of(run.log.path), result.curve, before.overall.value, after.overall.value)
    return result


@dataclass(frozen=True, slots=True)
class Run:
    """A training run up to its first step."""

    config: Config
    policy: Policy
    trainer: Trainer
    log: EventLog
    resumed: bool


def prepare(
    config: Config, services: Services, *, resume: bool = False, on_step: Callable[[StepReport], None] | None = None
) -> Run:
    """Policy, engine, sampler, buffer and log put together; with ``resume``, from the last checkpoint."""
    output, training = config.output, config.training
    checkpoints = checkpoint_folder(config)
    log_file = output.log_dir / f"{output.run_name}.jsonl"
    for folder in (checkpoints, output.results_dir / "training", output.log_dir):
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
    engine = make_engine(config, policy)
    recall = None
    if config.experience_buffer.enabled:
        recall = Recall(config.experience_buffer, _embedder(config.experience_buffer.embedder, policy))
    log, layer1 = EventLog(log_file), prompt_builder(config)
    checks = validation_problems(config) if training.eval_every else []

    async def validate(step: int) -> dict[str, float]:
        author = author_of(config, policy, engine, step)
        summary = (await evaluate(checks, author, services.rollout_parts(services.official))).summary
        shares = {"overall": summary.overall.value, "valid_rate": summary.valid_rate.value}
        return shares | {str(d): e.value for d, e in summary.domains.items()}

    def build_prompt(question: Question) -> Prompt:
        examples = recall.examples(question) if recall else []
        prompt = layer1(question, examples)
        log.log("prompt", problem=question.id, user=prompt.user, examples=len(examples))
        return prompt

    def step_done(report: StepReport) -> None:
        log.log("usage", step=report.step, **services.usage())
        if on_step is not None:
            on_step(report)

    audited = audited_judge(config, services)
    parts = TrainerParts(
        policy=policy,
        engine=engine,
        sampler=training_sampler(config),
        build_prompt=build_prompt,
        rollout=replace(
            services.rollout_parts(audited or services.judge),
            truncated="mask" if training.mask_truncated_completions else "floor",
            extra=custom_rewards(config, services),
        ),
        audit=audited,
        log=log.log,
        checkpoint_dir=checkpoints,
        buffer=recall,
        on_step=step_done,
        evaluate=validate if training.eval_every else None,
        config_text=to_yaml(config),
    )
    trainer = Trainer(parts, config)
    if resume and newest is not None:
        trainer.resume(newest)
    log.log("run", config=to_yaml(config), sandbox=str(services.sandbox.describe()), resumed_at=trainer.step)
    log.log(
        "layers",
        layer1=system_prompt(config.workflow.operators) if config.workflow.layer1 else "",
        layer2=services.enhance.as_json(),
    )
    return Run(config, policy, trainer, log, resume)


def audited_judge(config: Config, services: Services) -> AuditedJudge | None:
    """The judge with the reward-hacking alarm; None where no model judges or nothing is to be checked."""
    if services.judge_model is None or not config.judge.audit_share:
        return None
    return AuditedJudge(config.judge, services.judge, services.second_model)


def custom_rewards(config: Config, services: Services) -> CustomRewards | None:
    """The user's own reward functions, held within what the five terms promise."""
    functions = config.reward.functions
    if not functions:
        return None
    loaded = {name: (load_function(name), weight) for name, weight in functions.items()}
    return CustomRewards(loaded, services.reward.slack / 2)


def _embedder(name: str, policy: Policy) -> Embed:
    """How problems are compared: the policy's own hidden states, or a sentence-transformers model by name."""
    if name == "policy":
        return lambda texts: policy.embed(texts).tolist()
    from llm_as_judge.experience.embedding import SentenceEmbedder

    model = SentenceEmbedder(name)
    return lambda texts: model.embed(texts).tolist()


async def _untrained(
    run: Run, problems: Sequence[Problem], official: RolloutParts, progress: Callable[[int], None]
) -> Summary:
    """Held-out evaluation of the policy as it was before the first step; a resumed run has it on disk already."""
    file = run.trainer.parts.checkpoint_dir / "before.json"
    if run.resumed and file.exists():
        return Summary.load(file)
    if run.resumed:  # the run's own policy is trained already
        author = load_author(run.config, None)
    else:
        author = author_of(run.config, run.policy, run.trainer.parts.engine, 0)
    summary = (await evaluate(problems, author, official, progress)).summary
    summary.save(file)
    return summary


def learned_plans(after: Summary) -> dict[Domain, str]:
    """The plan the policy writes most in each domain ('' for a shape that is no plan's)."""
    tops = {domain: next(iter(shapes)) for domain, shapes in after.shapes.items()}
    return {domain: top if top in PLANS else "" for domain, top in tops.items()}


async def _agreement(config: Config, services: Services, rollouts: Sequence[Rollout]) -> Agreement | None:
    if services.judge_model is None:
        return None
    alone = Judge(config.judge.model_copy(update={"mode": "llm"}), services.judge_model)
    known = [r for r in rollouts if r.execution.answer and not r.problem.reference.tests]
    asked = known[:: max(1, len(known) // _AGREEMENT_OF)][:_AGREEMENT_OF]
    verdicts = await asyncio.gather(*(alone.verdict(r.problem, r.execution.answer) for r in asked))
    pairs = Counter((r.verdict.correct, v.correct) for r, v in zip(asked, verdicts, strict=True))
    decided = sum(n for (_, v), n in pairs.items() if v is not None)
    return Agreement(
        pairs=len(asked),
        agreement=(pairs[True, True] + pairs[False, False]) / decided if decided else None,
        false_accepts=pairs[False, True],
        false_rejects=pairs[True, False],
        abstained=len(asked) - decided,
    )
