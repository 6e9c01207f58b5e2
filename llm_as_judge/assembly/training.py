"""A training run with all its parts, opened from a configuration; for ``train``, ablations and ``GRPOTrainer``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from msgspec import to_builtins

from llm_as_judge.assembly.budget import budget
from llm_as_judge.assembly.check import check_before, check_context
from llm_as_judge.assembly.follow import load_together
from llm_as_judge.assembly.policy import make_learner, probe_policy
from llm_as_judge.assembly.problems import Problems, open_problems
from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.assembly.recording import tell_untrained
from llm_as_judge.assembly.run_folder import Started, open_folder
from llm_as_judge.assembly.services import Services, open_services
from llm_as_judge.assembly.tracking import Tracking, tracking
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.evaluate import PolicyAuthor, evaluate
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.evaluation.summary import Summary, summarise
from llm_as_judge.evaluation.written import NEEDS_WARM_UP
from llm_as_judge.events import Event, LayersEvent, RolloutEvent, RunEvent, StepReport, UsageEvent
from llm_as_judge.llm.client import Usage
from llm_as_judge.policy.device import on_device
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.buffer import ExperienceBuffer
from llm_as_judge.rl.pipeline import TrainerParts
from llm_as_judge.rl.ranks import ALONE, Ranks
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.types import Group
from llm_as_judge.views.terminal import validation_line


@dataclass
class Training:
    """An open run; the trainer is at its first step until ``train``."""

    run: Started
    services: Services
    author: PolicyAuthor
    problems: Problems
    tracked: Tracking
    progress: Progress
    ranks: Ranks

    def __post_init__(self) -> None:
        """Begin the log."""
        folder, services, author = self.run.folder, self.services, self.author
        config, generation = folder.config, folder.config.generation
        resumed = str(folder.resumed_from) if folder.resumed_from else None
        sandbox = str(services.sandbox.describe())
        self.log(RunEvent(id=self.run.id, config=folder.config_text, sandbox=sandbox, resumed_from=resumed))
        self.log(LayersEvent(layer1=author.prompt.system, layer2=services.enhance.instructions))
        parts = TrainerParts(
            policy=author.policy,
            learner=make_learner(author, self.ranks),
            engine=author.engine,
            sampling=Sampling(generation.temperature, generation.top_p, generation.top_k),
            sampler=self.problems.sampler,
            prompt=author.prompt,
            buffer=ExperienceBuffer(config.experience_buffer, author.policy.embed, folder.buffer),
            rollout=services.training,
            log=self.log,
            checkpoint_dir=folder.checkpoints,
            on_step=self._step_done,
            evaluate=self._validate if config.training.eval_every else None,
            config_text=folder.config_text,
            run_id=self.run.id,
            load=services.executor_load,
            spent=budget(config.budget, self.run.log.path, self.usage),
        )
        self.trainer = Trainer(parts, config.training)

    async def train(self, steps: int | None = None) -> StepReport | None:
        """Train ``steps`` steps (default: up to ``training.max_steps``), from the checkpoint if the run is resumed."""
        if (newest := self.run.folder.resumed_from) is not None:
            self.trainer.resume(newest)
        return await self.trainer.train(steps)

    @property
    def trained(self) -> PolicyAuthor:
        return replace(self.author, version=self.trainer.step)

    def usage(self) -> dict[str, Usage]:
        return {**self.services.usage(), **self.author.policy.usage()}

    async def measure(self, name: str, author: PolicyAuthor, resume: bool = False) -> list[Group]:
        """Run a held-out evaluation, recorded where ``view`` finds it; ``resume`` reuses a session's records."""
        problems = self.problems.heldout
        output, key = self.run.folder.config.output, self.run.folder.config.base_model.key
        file = output.results_dir / "evaluation" / f"{key}_{output.run_name}_{name.replace(' ', '_')}.jsonl"
        with Ledger(file, resume) as ledger:
            if not (recorded := len(ledger.known) == len(problems)):
                self.progress.say(f"held-out evaluation of the {name} on {len(problems)} problems")
            advance = partial(self.progress.advance, name)
            groups = await evaluate(problems, author, self.services.official, advance, log=ledger)
        if not recorded:
            self.tracked.evaluation(author.version, summarise(groups), "heldout/")
        return groups

    async def measure_untrained(self) -> Summary:
        """Run the held-out evaluation before the first step."""
        if not (resumed := self.run.folder.resumed_from is not None):
            await on_device(self.trainer.learner.optimizer.share)  # what a server refuses is said before it evaluates
            written = await on_device(probe_policy, self.author, self.problems)
            self.progress.say(f"policy before training: {written}{f'; {NEEDS_WARM_UP}' if written.too_few else ''}")
        return summarise(await self.measure("untrained policy", self.author, resumed))

    def log(self, event: Event) -> None:
        """Log ``event``, to the trackers too if it is a rollout."""
        self.run.log.log(event)
        if isinstance(event, RolloutEvent):
            self.tracked.rollout(event)

    def _step_done(self, report: StepReport) -> None:
        self.log(UsageEvent(step=report.step, models=to_builtins(self.usage())))
        self.tracked.step(report)
        self.progress.step(report, self.trainer.config.max_steps)

    async def _validate(self, step: int) -> dict[str, float]:
        author = replace(self.author, version=step)
        summary = summarise(await evaluate(self.problems.validation, author, self.services.official))
        self.tracked.evaluation(step, summary)
        self.progress.say(validation_line(step, summary))
        shares = {"overall": summary.overall.value, "valid_rate": summary.valid_rate.value}
        return shares | {str(d): e.value for d, e in summary.domains.items()}


@asynccontextmanager
async def open_training(
    config: Config, *, resume: bool = False, measured: bool = False, progress: Progress = SILENT, ranks: Ranks = ALONE
) -> AsyncIterator[Training]:
    """Open folder, services, policy and problems of a run, with held-out problems if it is ``measured``.

    Raises ``ConfigError``, ``DataError``, ``ProviderError`` or ``OSError`` before any work is done.
    """
    trackers = tracking(config.tracking, config.training.save_every)
    with trackers as tracked, open_folder(config, resume=resume, progress=progress) as folder:
        async with open_services(config, progress) as services:
            progress.say(services.sandbox.describe().summary)
            problems = open_problems(config, measured=measured)  # a missing file is reported before minutes of loading
            judges = services.training.judge, services.official.judge
            await check_before(problems, services.sandbox, *judges, extra=services.training.extra)
            author = await on_device(load_together, config, ranks, progress=progress)
            await services.hosted.share(author)
            await check_context(problems, services.runner.executors.values())
            await tell_untrained(config, [problems.validation, problems.heldout], services, progress, author)
            if problems.seen:
                progress.say(
                    f"{problems.seen} of {len(problems.heldout)} held-out problems are also training problems, so that "
                    "the evaluation measures memory too; split the files with llm-as-judge data process"
                )
            run = folder.begin(problems.digest, progress)
            tracked.begin(run)
            yield Training(run, services, author, problems, tracked, progress, ranks)
