"""``llm-as-judge train``: held-out evaluation, GRPO, held-out evaluation again, the baselines, and the results."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.evaluation import baselines
from llm_as_judge.evaluation.agreement import Agreement, agreement
from llm_as_judge.evaluation.evaluate import PolicyAuthor, evaluate
from llm_as_judge.evaluation.metrics import Estimate, number, paired_difference
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.events import EventLog
from llm_as_judge.experience.recall import Recall
from llm_as_judge.files import write_json
from llm_as_judge.llm import Usage
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.report import StepReport
from llm_as_judge.rl.trainer import Trainer, TrainerParts
from llm_as_judge.runs.policy import checkpoint_folder, load_author
from llm_as_judge.runs.problems import Problems, open_problems
from llm_as_judge.runs.progress import Progress, Silent
from llm_as_judge.runs.services import Services, open_services
from llm_as_judge.types import Domain, Prompt, Question
from llm_as_judge.views.charts import learning_curve, steps_of
from llm_as_judge.workflow.catalogue import PLANS

logger = logging.getLogger(__name__)


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
    def gain(self) -> Estimate:
        """Trained minus untrained on the same problems, paired."""
        return paired_difference(self.after.by_problem, self.before.by_problem)

    @property
    def curve(self) -> Path:
        return self.results.with_suffix(".png")

    def as_json(self) -> dict[str, Any]:
        gain = self.gain
        return {
            "run": self.config.output.run_name,
            "seed": self.config.training.seed,
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "gain": {"value": number(gain.value), "interval": [gain.low, gain.high], "problems": gain.n},
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
    begun, told = time.monotonic(), progress or Silent()
    total = config.training.max_steps
    run = open_run(config, resume=resume)
    async with open_services(config) as services:
        told.say(services.sandbox.describe().summary)
        author, problems = load_author(config), open_problems(config)
        trainer = assemble(run, services, author, problems, lambda report: told.step(report, total))

        def watch(what: str, count: int) -> Callable[[int], None]:
            return lambda done: told.advance(what, done, count)

        measured = problems.heldout
        if run.before.exists() and run.resumed_from is not None:
            before = Summary.load(run.before)
        else:
            told.say(f"held-out evaluation of the untrained policy on {len(measured)} problems")
            watching = watch("untrained policy", len(measured))
            before = (await evaluate(measured, author, services.official, watching)).summary
            before.save(run.before)
        training_began = time.monotonic()
        if run.resumed_from is not None:
            trainer.resume(run.resumed_from)
        await trainer.train()
        training_seconds = time.monotonic() - training_began
        told.say("held-out evaluation of the trained policy and of every workflow alone")
        author = replace(author, version=trainer.step)
        after = (await evaluate(measured, author, services.official, watch("trained policy", len(measured)))).summary
        matrix = await baselines.measure(measured, services.official, watch("workflows alone", len(PLANS)))
        alone = [r for rollouts in matrix.rollouts.values() for r in rollouts]
        result = TrainResult(
            config=config,
            before=before,
            after=after,
            baselines=baselines.rows(matrix),
            workflows=matrix.accuracies(),
            learned=learned_plans(after),
            judge=await agreement(services.alone, alone) if services.alone else None,
            problems=len(measured),
            steps=trainer.step,
            sandbox=str(services.sandbox.describe()),
            usage=services.usage(),
            seconds={"training": training_seconds, "all": time.monotonic() - begun},
            adapter=run.checkpoints / f"step_{trainer.step}",
            results=run.results,
        )
    write_json(result.results, result.as_json())
    learning_curve(steps_of(run.log.path), result.curve, before.overall.value, after.overall.value)
    return result


@dataclass(frozen=True, slots=True)
class Run:
    """Where a training run keeps what it makes, and the checkpoint that it goes on from."""

    config: Config
    config_text: str
    checkpoints: Path
    results: Path
    log: EventLog
    resumed_from: Path | None

    @property
    def before(self) -> Path:
        """The held-out evaluation of the policy as it was before the first step."""
        return self.checkpoints / "before.json"


def open_run(config: Config, *, resume: bool = False) -> Run:
    """Makes the run's folders and its log. Raises ``ConfigError`` where there is nothing to resume."""
    output, checkpoints = config.output, checkpoint_folder(config)
    results = output.results_dir / "training" / f"{output.run_name}.json"
    log_file = output.log_dir / f"{output.run_name}.jsonl"
    for folder in (checkpoints, results.parent, output.log_dir):
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
    return Run(config, to_yaml(config), checkpoints, results, EventLog(log_file), newest if resume else None)


def assemble(
    run: Run,
    services: Services,
    author: PolicyAuthor,
    problems: Problems,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> Trainer:
    """The training loop with all its parts, at its first step."""
    config, log = run.config, run.log
    recall = Recall(config.experience_buffer, author.policy) if config.experience_buffer.enabled else None

    async def validate(step: int) -> dict[str, float]:
        writer = replace(author, version=step)
        summary = (await evaluate(problems.validation, writer, services.official)).summary
        shares = {"overall": summary.overall.value, "valid_rate": summary.valid_rate.value}
        return shares | {str(d): e.value for d, e in summary.domains.items()}

    def build_prompt(question: Question) -> Prompt:
        examples = recall.examples(question) if recall else []
        prompt = author.prompt(question, examples)
        log.log("prompt", problem=question.id, user=prompt.user, examples=len(examples))
        return prompt

    def step_done(report: StepReport) -> None:
        log.log("usage", step=report.step, **services.usage())
        on_step(report)

    parts = TrainerParts(
        policy=author.policy,
        engine=author.engine,
        sampler=problems.sampler,
        build_prompt=build_prompt,
        rollout=services.training,
        audit=services.audited,
        log=log.log,
        checkpoint_dir=run.checkpoints,
        buffer=recall,
        on_step=step_done,
        evaluate=validate if config.training.eval_every else None,
        config_text=run.config_text,
    )
    resumed = str(run.resumed_from) if run.resumed_from else None
    log.log("run", config=run.config_text, sandbox=str(services.sandbox.describe()), resumed_from=resumed)
    log.log("layers", layer1=author.prompt.system, layer2=services.enhance.as_json())
    return Trainer(parts, config)


def learned_plans(after: Summary) -> dict[Domain, str]:
    """The plan the policy writes most in each domain ('' for a shape that is no plan's)."""
    tops = {domain: next(iter(shapes)) for domain, shapes in after.shapes.items()}
    return {domain: top if top in PLANS else "" for domain, top in tops.items()}
