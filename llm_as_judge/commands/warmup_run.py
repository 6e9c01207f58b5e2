"""``llm-as-judge warmup``: the cold start of a policy, on generated workflows or a user's own.

It writes an adapter that training starts from (``model.adapter``), which is then the reference of the KL term too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from llm_as_judge.assembly.follow import load_together
from llm_as_judge.assembly.policy import checkpoint_folder
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.progress import Progress, Silent
from llm_as_judge.config.loading import to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.evaluation.written import Written, look_at
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.ranks import Ranks, join
from llm_as_judge.rl.warmup import WarmUp
from llm_as_judge.types import DOMAINS, Completion, Question
from llm_as_judge.workflow import recipes
from llm_as_judge.workflow.contract import CLASS_HEAD
from llm_as_judge.workflow.lint.check import lint

#: Workflows of each problem held back whose loss is looked at.
_HELD_OUT = 4


@dataclass(frozen=True, slots=True)
class Look:
    """The policy at one moment: its loss on pairs it does not learn from, and what it writes at temperature 1."""

    step: int
    loss: float  # nats a token
    written: Written

    def __str__(self) -> str:
        return f"warm-up step {self.step}: held-out loss {self.loss:.3f} nats a token, {self.written}"

    def as_json(self) -> dict[str, Any]:
        written = self.written
        return {
            "step": self.step,
            "loss": self.loss,
            "valid_rate": written.valid_rate,
            "entropy": written.entropy,
            **asdict(written),
        }


@dataclass(frozen=True, slots=True)
class WarmedUp:
    adapter: Path
    looks: Sequence[Look]

    def as_json(self) -> dict[str, Any]:
        return {"adapter": str(self.adapter), "looks": [look.as_json() for look in self.looks]}


def warm_up(config: Config, *, resume: bool = False, progress: Progress | None = None) -> WarmedUp:
    """Trains up to ``warmup.sft_steps`` steps, looking every ``warmup.look_every``.

    It stops where two looks in a row saw no lower held-out loss; the newest checkpoint is the best one. With ``resume``
    it goes on from that. Of several processes of a launcher this is rank 0; ``runs.follow`` is the others.

    Raises ``ConfigError``, ``DataError``.
    """
    with join() as ranks:
        return _warm_up(config, resume, progress or Silent(), ranks)


def _warm_up(config: Config, resume: bool, told: Progress, ranks: Ranks) -> WarmedUp:
    settings = config.warmup
    folder = checkpoint_folder(config).with_name(f"{config.output.run_name}_warmup")
    newest = checkpoint.latest(folder, told.say) if resume else None
    if resume and newest is None:
        raise ConfigError(f"nothing to resume in {folder}; start anew without --resume")
    author = load_together(config, ranks, warm_up=True)
    teacher = _Teacher(config, author)
    loop = WarmUp(author.policy, settings, config.training, ranks)
    if newest is not None:
        checkpoint.load(newest, author.policy, loop.optimizer, author.policy.device)
        loop.steps = checkpoint.step_of(newest)
        for _ in range(loop.steps):
            teacher.draw()  # what those steps learned from
    loop.share_state()
    checks, asked = teacher.held_out(), teacher.questions[: settings.look_problems]

    def look() -> Look:
        written = look_at(replace(author, version=loop.steps), asked, settings.look_samples)
        return Look(loop.steps, loop.loss(checks), written)

    looks = [look()]
    told.say(str(looks[-1]))
    best = newest
    while loop.steps < settings.sft_steps:
        loop.step(teacher.draw())
        told.advance("warm-up", loop.steps, settings.sft_steps)
        if loop.steps % settings.look_every == 0 or loop.steps == settings.sft_steps:
            looks.append(look())
            told.say(str(looks[-1]))
            least = min(look.loss for look in looks)
            if least not in (looks[-1].loss, looks[-2].loss):
                told.say("the held-out loss no longer falls: the checkpoint before stands")
                break
            if looks[-1].loss > least:
                continue
            state = checkpoint.TrainingState(loop.steps, checkpoint.random_states())
            best = checkpoint.save(folder, author.policy, loop.optimizer, state, config_text=to_yaml(config))
    if best is None:
        raise DataError("the held-out loss never fell; lower warmup.sft_learning_rate")
    return WarmedUp(best, looks)


class _Teacher:
    """Prompts as training has them, with workflows to be written for them."""

    def __init__(self, config: Config, author: PolicyAuthor) -> None:
        self.config, self.author = config, author
        self.operators = load_operators(config.workflow.operators)
        self.rng = Random(f"warm-up/{config.training.seed}")
        self.write = partial(recipes.write, varied=config.warmup.varied, class_first=config.workflow.prefill)
        problems = open_problems(config, measured=False)
        drawn = problems.sampler.sample(max(64, 2 * config.warmup.look_problems))
        self.questions = list({p.question.id: p.question for p in drawn}.values())
        training = self.questions[config.warmup.look_problems :]
        self.training = {d: asked for d in DOMAINS if (asked := [q for q in training if q.domain == d])}
        if not self.training:
            raise DataError(f"{len(self.questions)} training problems are too few to hold some back for the warm-up")
        self.own = list(_own(config.warmup.own_workflows)) if config.warmup.own_workflows else []
        head = CLASS_HEAD if config.workflow.prefill else ""
        if other := next((source for _, source in self.own if not source.startswith(head)), ""):
            raise DataError(
                f"{config.warmup.own_workflows}: with workflow.prefill every workflow begins as the prompt ends, with "
                f"{head!r}, but one with {other[: len(head)]!r}; write it so, or set workflow.prefill to false"
            )

    def draw(self) -> list[Completion]:
        """A step's pairs: ``warmup.workflows_per_problem`` for each of ``warmup.problems_per_step`` problems, which are
        of as many domains as there are.
        """
        settings = self.config.warmup
        domains = self.rng.sample(sorted(self.training), len(self.training))
        return [
            self._pair(question, self._workflow(question, self.rng))
            for domain in itertools.islice(itertools.cycle(domains), settings.problems_per_step)
            for question in [self.rng.choice(self.training[domain])]
            for _ in range(settings.workflows_per_problem)
        ]

    def held_out(self) -> list[Completion]:
        """Pairs of problems that no step sees, the same in every look."""
        rng = Random("warm-up, held out")
        return [
            self._pair(question, self._workflow(question, rng))
            for question in self.questions[: self.config.warmup.look_problems]
            for _ in range(_HELD_OUT)
        ]

    def _workflow(self, question: Question, rng: Random) -> str:
        own = [source for domain, source in self.own if domain == question.domain]
        if own:
            return rng.choice(own)
        recipe = recipes.draw(question.domain, rng, self.operators)
        return self.write(recipe, question.domain, rng)

    def _pair(self, question: Question, source: str) -> Completion:
        policy, workflow = self.author.policy, self.config.workflow
        fenced = workflow.layer1 and workflow.prompt == "full"
        reply, prompt = f"```python\n{source}\n```" if fenced else source, self.author.prompt(question)
        reply = reply.removeprefix(prompt.prefill)
        ids = policy.tokenizer.encode(reply, add_special_tokens=False)
        end = policy.tokenizer.eos_token_id
        return Completion(reply, tuple(policy.encode(prompt)), (*map(int, ids), int(end)), (), "stop")


def _own(path: Path) -> Iterator[tuple[str, str]]:
    """Domain and workflow of each line of a user's JSONL; raises ``DataError`` with every line that cannot be used."""
    wrong = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"warmup.own_workflows={path}: cannot be read: {error}; name a JSONL file") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            domain, source = str(record["domain"]), str(record["workflow"])
        except (ValueError, KeyError, TypeError) as error:
            wrong.append(f"{path}:{number}: needs domain and workflow ({error})")
            continue
        found = [f for f in lint(source) if f.fatal]
        if found:
            wrong.append(f"{path}:{number}: {found[0].code} line {found[0].line}: {found[0].message}")
        else:
            yield domain, source
    if wrong:
        raise DataError("\n".join(wrong[:20]))
