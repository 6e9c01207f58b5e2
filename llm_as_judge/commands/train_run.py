"""``llm-as-judge train``: held-out evaluation, GRPO, held-out evaluation again, the baselines, and the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.budget import Budget, added, usage_of
from llm_as_judge.assembly.folder import Started, open_folder
from llm_as_judge.assembly.follow import load_together
from llm_as_judge.assembly.probe import PROBLEMS, probe_examples, probe_policy
from llm_as_judge.assembly.problems import Problems, open_problems
from llm_as_judge.assembly.progress import Progress, Silent
from llm_as_judge.assembly.services import Services, open_services
from llm_as_judge.assembly.tracking import tracking
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import DataError
from llm_as_judge.evaluation import baselines
from llm_as_judge.evaluation.agreement import Agreement, agreement
from llm_as_judge.evaluation.evaluate import Evaluation, PolicyAuthor, evaluate
from llm_as_judge.evaluation.metrics import Estimate, number, paired_difference
from llm_as_judge.evaluation.summary import Summary
from llm_as_judge.evaluation.written import NEEDS_WARM_UP
from llm_as_judge.experience.recall import Recall
from llm_as_judge.files import write_json
from llm_as_judge.llm.client import Usage
from llm_as_judge.policy.device import Device
from llm_as_judge.rl.parts import TrainerParts
from llm_as_judge.rl.ranks import ALONE, Ranks, join
from llm_as_judge.rl.report import StepReport
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.runlog import steps_of
from llm_as_judge.types import Domain, Problem, Prompt, Question
from llm_as_judge.views.charts import learning_curve
from llm_as_judge.views.terminal import validation_line
from llm_as_judge.workflow.shapes import SHAPES, Example

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run came to; ``as_json`` is what its results file holds."""

    run: Started
    before: Summary
    after: Summary
    baselines: Sequence[baselines.Row]
    workflows: Mapping[str, Mapping[Domain, float]]  # accuracy of each workflow of the catalogue alone
    learned: Mapping[Domain, str]  # what the policy writes most; '' for a shape outside the catalogue
    judge: Agreement | None
    problems: int
    steps: int
    sandbox: str
    usage: Mapping[str, Usage]  # of each model asked
    seconds: Mapping[str, float]

    @property
    def gain(self) -> Estimate:
        """Trained minus untrained on the same problems, paired."""
        return paired_difference(self.after.by_problem, self.before.by_problem)

    @property
    def adapter(self) -> Path:
        return self.run.folder.checkpoints / f"step_{self.steps}"

    def as_json(self) -> dict[str, Any]:
        config, gain = self.run.folder.config, self.gain
        return {
            "run": config.output.run_name,
            "run_id": self.run.id,
            "model": config.base_model.key,
            "seed": config.training.seed,
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "gain": {"value": number(gain.value), "interval": [gain.low, gain.high], "problems": gain.n},
            "baselines": {row.name: row.as_json() for row in self.baselines},
            "workflows": {p: {d: number(v) for d, v in cells.items()} for p, cells in self.workflows.items()},
            "learned": self.learned,
            "judge": asdict(self.judge) if self.judge else {},
            "problems": self.problems,
            "steps": self.steps,
            "sandbox": self.sandbox,
            "usage": {role: asdict(usage) for role, usage in self.usage.items()},
            "seconds": self.seconds,
        }


async def train(config: Config, *, resume: bool = False, progress: Progress | None = None) -> TrainResult:
    """Trains up to ``training.max_steps``, measures before and after, and writes results and learning curve.

    Of several processes that a launcher has started this is rank 0; ``runs.follow`` is the others.
    """
    begun, told = time.monotonic(), progress or Silent()

    def step_done(report: StepReport) -> None:
        tracked.step(report)
        told.step(report, config.training.max_steps)

    def validated(step: int, summary: Summary) -> None:
        tracked.validation(step, summary)
        told.say(validation_line(step, summary))

    with (
        join() as ranks,
        tracking(config.tracking) as tracked,
        open_folder(config, resume=resume, progress=told) as folder,
    ):
        async with open_services(config, told) as services:
            told.say(services.sandbox.describe().summary)
            problems = open_problems(config)  # a missing file is told before minutes of loading
            author = load_together(config, ranks)
            if problems.seen:
                told.say(
                    f"{problems.seen} of {len(problems.heldout)} held-out problems are among the training problems: "
                    "they tell what is remembered, not what was learned; split files by llm-as-judge data process"
                )
            run = folder.begin(problems.digest, told)
            tracked.begin(run)
            earlier = usage_of(folder.log_file)
            trainer = assemble(
                run,
                services,
                author,
                problems,
                step_done,
                validated,
                told.say,
                ranks,
            )
            if folder.resumed_from is None:
                written = probe_policy(author, problems)
                told.say(f"what the policy writes before the first step: {written}")
                if written.too_few:
                    told.say(NEEDS_WARM_UP)
            measure = Measurement(problems.heldout, services, told)
            before = await _before(run, author, measure)
            training_began = time.monotonic()
            if folder.resumed_from is not None:
                trainer.resume(folder.resumed_from)
            await trainer.train()
            training_seconds = time.monotonic() - training_began
            told.say(f"held-out evaluation of the trained policy on {len(problems.heldout)} problems")
            trained = await measure.author("trained policy", replace(author, version=trainer.step))
            after, settings = trained.summary, config.evaluation
            plans = tuple(SHAPES) if settings.plan_matrix else (baselines.SINGLE_CALL,) * settings.baselines
            matrix = await measure.workflows(plans)
            judged = matrix.rollouts or trained.rollouts
            agreed = await agreement(services.alone, judged) if services.alone else None
            run.log.log("usage", step=trainer.step, **services.usage())
            result = TrainResult(
                run=run,
                before=before,
                after=after,
                baselines=baselines.rows(matrix) if settings.baselines else [],
                workflows=matrix.accuracies() if settings.plan_matrix else {},
                learned=learned_plans(after),
                judge=agreed,
                problems=len(problems.heldout),
                steps=trainer.step,
                sandbox=str(services.sandbox.describe()),
                usage=added(earlier, services.usage()),
                seconds={"training": training_seconds, "all": time.monotonic() - begun},
            )
        write_json(folder.results, result.as_json())
        steps, validations = steps_of(folder.log_file), steps_of(folder.log_file, "eval")
        learning_curve(steps, folder.curve, before.overall.value, after.overall.value, validations)
    return result


@dataclass(frozen=True, slots=True)
class Measurement:
    """Held-out evaluations of a run."""

    problems: Sequence[Problem]
    services: Services
    progress: Progress

    async def author(self, name: str, author: PolicyAuthor) -> Evaluation:
        watch = partial(self.progress.advance, name, total=len(self.problems))
        return await evaluate(self.problems, author, self.services.official, lambda done: watch(done=done))

    async def workflows(self, plans: Sequence[str]) -> baselines.Matrix:
        if plans:
            self.progress.say(f"held-out evaluation of {', '.join(plans)} alone")
        watch = partial(self.progress.advance, "workflows alone", total=len(plans))
        return await baselines.measure(self.problems, self.services.official, lambda done: watch(done=done), plans)


async def _before(run: Started, author: PolicyAuthor, measure: Measurement) -> Summary:
    """How good the policy was before the first step; a resumed run has it on disk."""
    file = run.folder.before
    if file.exists():
        try:
            found = Summary.load(file)
            if len(found.by_problem) == len(measure.problems):
                return found
            measure.progress.say(f"{file} is of {len(found.by_problem)} problems: it is made again now")
        except DataError as error:
            measure.progress.say(f"{error}: it is made again now")
    measure.progress.say(f"held-out evaluation of the untrained policy on {len(measure.problems)} problems")
    summary = (await measure.author("untrained policy", author)).summary
    summary.save(file)
    return summary


def assemble(
    run: Started,
    services: Services,
    author: PolicyAuthor,
    problems: Problems,
    on_step: Callable[[StepReport], None] = lambda report: None,
    on_validation: Callable[[int, Summary], None] = lambda step, summary: None,
    warn: Callable[[str], None] = logger.warning,
    ranks: Ranks = ALONE,
) -> Trainer:
    """The training loop with all its parts, at its first step. ``warn`` is told where examples harm the policy."""
    folder, log = run.folder, run.log
    config = folder.config
    recall = Recall(config.experience_buffer, author.policy) if config.experience_buffer.enabled else None
    device = Device()

    async def validate(step: int) -> dict[str, float]:
        writer = replace(author, version=step)
        summary = (await evaluate(problems.validation, writer, services.official, device=device)).summary
        on_validation(step, summary)
        shares = {"overall": summary.overall.value, "valid_rate": summary.valid_rate.value}
        return shares | {str(d): e.value for d, e in summary.domains.items()}

    def build_prompt(question: Question) -> Prompt:
        prompt, shown = prompt_within(author, question, recall.examples(question) if recall else [])
        log.log("prompt", problem=question.id, question=question.statement, user=prompt.user, examples=shown)
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
        checkpoint_dir=folder.checkpoints,
        buffer=recall,
        on_step=step_done,
        evaluate=validate if config.training.eval_every else None,
        config_text=folder.config_text,
        run_id=run.id,
        load=services.clients["executor"].load,
        device=device,
        spent=Budget(config.budget, log.path, services.usage).spent,
        ranks=ranks,
    )
    resumed = str(folder.resumed_from) if folder.resumed_from else None
    sandbox = str(services.sandbox.describe())
    log.log("run", id=run.id, config=folder.config_text, sandbox=sandbox, resumed_from=resumed)
    log.log("layers", layer1=author.prompt.system, layer2=services.enhance.as_json())
    if folder.resumed_from is None and (probe := probe_examples(config, author, problems.sampler.peek(PROBLEMS))):
        log.log("examples_probe", valid=probe.shown.value, valid_without=probe.without.value, harmful=probe.harmful)
        if probe.harmful:
            warn(str(probe))
    return Trainer(parts, config)


def prompt_within(author: PolicyAuthor, question: Question, examples: Sequence[Example]) -> tuple[Prompt, int]:
    """The prompt with as many of ``examples`` as fit ``training.prompt_max_length``, the best first, and how many.

    An example brings its own problem's context. Were all of them always shown, problems with long contexts would no
    longer be drawn once there are examples for them.
    """
    limit = author.config.training.prompt_max_length
    for shown in range(len(examples), 0, -1):
        prompt = author.prompt(question, examples[:shown])
        if len(author.policy.encode(prompt)) <= limit:
            return prompt, shown
    return author.prompt(question), 0


def learned_plans(after: Summary) -> dict[Domain, str]:
    """The plan the policy writes most in each domain ('' for a shape that is no plan's)."""
    tops = {domain: next(iter(shapes)) for domain, shapes in after.shapes.items()}
    return {domain: top if top in SHAPES else "" for domain, top in tops.items()}
