"""Trains the nano policy: ``python scripts/nano/warm_start.py`` (part of ``make pretrain``).

A Qwen3 model of about a million parameters learns to write every shape of workflow about equally often for every
problem, so that the choice is left to GRPO. Two more losses let GRPO choose by the problem, without naming its kind:
the policy answers the executor's conversations, and at the tokens that decide the draft and the ending, hidden states
are as similar as the problems' worked solutions are (``alignment``). The first update of a policy moves problems with
similar hidden states together; without the loss all problems of a domain look alike there and get one workflow.

With ``--init`` and ``--config``, a policy that writes the shapes learns to name one of that configuration's executors.
"""

import argparse
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random

import corpus
import nano_tokenizer
import torch
import torch.nn.functional as F
from nano_tokenizer import ASSISTANT_ID, END_ID, PAD_ID, SYSTEM_ID, USER_ID
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from world.generate import KINDS, solved

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.policy import tree as prefix_tree
from llm_as_judge.policy.attention import ATTENTION, Tree, kernel_for, row_hidden
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import SHAPES, Shape, workflow

log = logging.getLogger("warm_start")
_SAVE_EVERY = 100  # steps
_COMMON = 0.02  # share of solutions that a token must occur in to count as a feature


@dataclass(frozen=True, slots=True)
class Round:
    """Steps with an optimizer of their own, and what is in their batches."""

    steps: int
    shapes: int  # workflows per problem
    conversations: int
    learning_rate: float
    spread: float = 0.0  # moves the names of what is learned apart by this factor, and keeps them there


#: Read, write, and write without mistakes, which the much larger gradients of conversations prevent. One long round
#: with a falling learning rate stays at twice the loss. In all of them the names become nearly the same vector, since
#: nothing tells which is wanted: GRPO would have to turn a hidden state around to prefer one. Hence the last round.
ROUNDS = (
    Round(700, 2, 6, 2e-3),
    Round(800, 3, 4, 1.5e-3),
    Round(400, 6, 0, 8e-4),
    Round(160, 4, 0, 1e-3, spread=8.0),
)
CHOOSING = (Round(180, 6, 0, 1.2e-3), Round(120, 4, 0, 1e-3, spread=8.0))  # for executors, from a policy of ROUNDS
DEFAULT = "big"  # what a comment calls the default executor


@dataclass(frozen=True, slots=True)
class Settings:
    tokenizer: Path
    out: Path
    problems: int = 9  # per batch, from the kinds in turn
    alignment: float = 1.0  # weight of the loss
    deciding: float = 0.2  # more weight for the tokens that decide, where other words than the names cling longest
    seed: int = 0
    init: Path | None = None  # a policy to start from
    config: Path | None = None  # has the executors to choose among
    pool: int = 500  # problems per kind


def model_config(vocabulary: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=END_ID, pad_token_id=PAD_ID,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    prompt: list[int]
    domain: Domain
    solution: list[int]


@dataclass(slots=True)
class Drawn:
    prompts: list[list[int]] = field(default_factory=list)
    workflows: list[list[int]] = field(default_factory=list)
    decisions: list[list[int]] = field(default_factory=list)  # of each workflow: completion tokens before its names
    features: Tensor = field(default_factory=lambda: torch.zeros(0))  # [problems, d]


def features(solutions: Sequence[Sequence[int]]) -> Tensor:
    """Compute [N, d] standardised log counts of the tokens that are common in ``solutions``."""
    present = Counter(token for solution in solutions for token in set(solution))
    columns = {t: i for i, t in enumerate(t for t, n in present.items() if n >= _COMMON * len(solutions))}
    found = torch.zeros(len(solutions), len(columns))
    for row, solution in enumerate(solutions):
        for token, count in Counter(solution).items():
            if token in columns:
                found[row, columns[token]] = math.log1p(count)
    return (found - found.mean(0)) / (found.std(0) + 1e-3)


class Examples:
    """Token ids of prompts, of workflows for them, and of conversations."""

    def __init__(self, settings: Settings) -> None:
        self.tokenizer = load_tokenizer(str(settings.tokenizer))
        self.r = Random(f"warm start/{settings.seed}")
        choices = load_config(settings.config).choices if settings.config else {}
        self.executors = list(choices)
        self.layer1 = Layer1(WorkflowConfig(prompt="short"), choices=choices)
        self.pools: list[list[Example]] = []
        for domain in DOMAINS:
            for kind in KINDS[domain]:
                self.pools.append([self._example(domain, kind) for _ in range(settings.pool)])
        self.features = features([example.solution for own in self.pools for example in own])

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def _example(self, domain: Domain, kind: str) -> Example:
        problem, solution = solved(self.r, domain, "pretrain", kind)
        made = self.layer1(problem.question)
        prompt = [SYSTEM_ID, *self.ids(made.system), USER_ID, *self.ids(made.user), ASSISTANT_ID]
        return Example(prompt, domain, self.ids(solution))

    def written(self, shape: Shape, domain: Domain) -> tuple[str, list[int]]:
        """Write the shape as a workflow, of one executor if several, and the places of the names that decide."""
        source, deciding = workflow(shape, domain), [shape.draft, shape.ending]
        if self.executors:
            executor = self.r.choice(self.executors)
            deciding.insert(1, executor or DEFAULT)
            source = source.replace(f": {shape.draft}\n", f": {shape.draft}\n        # {deciding[1]}\n", 1)
            source = source.replace("(self.llm)", f"(self.llm, model={executor!r})" if executor else "(self.llm)")
        return source, [len(self.ids(source[: source.index(f" {name}\n")])) for name in deciding]

    def names(self) -> tuple[Tensor, Tensor]:
        """Return [groups, n] tokens of names that the policy knows, and of those that it learns: drafts and endings, or
        executors."""
        parts = [sorted({getattr(shape, of) for shape in SHAPES.values()}) for of in ("draft", "ending")]
        shapes = torch.tensor([[self.ids(f" {name}")[0] for name in names] for names in parts])
        chosen = torch.tensor([[self.ids(f" {name or DEFAULT}")[0] for name in self.executors]])
        return (shapes, chosen) if self.executors else (shapes[:0], shapes)

    def draw(self, count: int, shapes: int) -> Drawn:
        """Draw ``count`` problems with ``shapes`` different shapes each."""
        drawn, places = Drawn(), []
        first = self.r.randrange(len(self.pools))
        for i in range(count):
            kind, number = (first + i) % len(self.pools), self.r.randrange(len(self.pools[0]))
            example = self.pools[kind][number]
            places.append(kind * len(self.pools[0]) + number)
            for shape in self.r.sample(list(SHAPES.values()), shapes):
                drawn.prompts.append(example.prompt)
                source, decisions = self.written(shape, example.domain)
                drawn.workflows.append([*self.ids(source), END_ID])
                drawn.decisions.append(decisions)
        drawn.features = self.features[places]
        return drawn

    def conversations(self, count: int) -> tuple[list[list[int]], list[list[int]]]:
        """Build prompts and replies of the executor's training text."""
        prompts, replies = [], []
        kinds = [name for name in corpus.KINDS if name not in ("arithmetic", "judging", "formatting")]
        for kind in self.r.sample(kinds, count):
            prompt, reply = corpus.KINDS[kind][0](self.r).turns[0]
            prompts.append([USER_ID, *self.ids(prompt), ASSISTANT_ID])
            replies.append([*self.ids(reply), END_ID])
        return prompts, replies


def spread(model: Qwen3ForCausalLM, names: Tensor, factor: float) -> None:
    """Multiply the distances of the embeddings of ``names`` [groups, n] from the mean of their group."""
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        mean = weight[names].mean(1, keepdim=True)
        weight[names] = mean + factor * (weight[names] - mean)


def misalignment(hidden: Tensor, wanted: Tensor) -> Tensor:
    """Average squared differences of the cosines of ``hidden`` [B, d] and those of ``wanted`` [B, e], not below 0."""
    unit, target = F.normalize(hidden, dim=-1), F.normalize(wanted, dim=-1)
    apart = ~torch.eye(len(unit), dtype=torch.bool)
    return (unit @ unit.T - (target @ target.T).clamp(min=0))[apart].square().mean()


def train(settings: Settings) -> Qwen3ForCausalLM:
    """Train; shared prefixes (the system message, each problem) are forwarded once per batch (``policy.tree``).

    An interrupted training continues from ``checkpoint.pt`` in the output folder.
    """
    settings.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    examples = Examples(settings)
    if settings.init:
        model = Qwen3ForCausalLM.from_pretrained(settings.init)
    else:
        model = Qwen3ForCausalLM(model_config(len(examples.tokenizer)))
    model.set_attn_implementation(ATTENTION)
    checkpoint, done = settings.out / "checkpoint.pt", (0, 0)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        done = tuple(saved["done"])
        model.load_state_dict(saved["model"])
    known, learned = examples.names()
    for number, own in enumerate(CHOOSING if examples.executors else ROUNDS):
        if own.spread and done < (number, 0):
            spread(model, learned, own.spread)
        fixed = torch.cat([known.flatten(), learned.flatten()]) if own.spread else known.flatten()
        kept = model.get_input_embeddings().weight.detach()[fixed].clone()
        optimizer = torch.optim.AdamW(model.parameters(), lr=own.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
        if done[0] == number and checkpoint.exists():
            optimizer.load_state_dict(saved["optimizer"])
        for step in range(own.steps):
            if (number, step) < tuple(done):
                continue
            if step % _SAVE_EVERY == 0:
                # What is drawn follows from the step, so a resumed training draws what an uninterrupted one does.
                examples.r.seed(f"warm start/{settings.seed}/{number}/{step}")
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**states, "done": (number, step)}, checkpoint)
            loss, figures = _loss(model, examples, own, settings)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = own.learning_rate * min(1.0, (step + 1) / 20) * max(0.03, 1 - step / own.steps)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                model.get_input_embeddings().weight[fixed] = kept
            if step % 20 == 19:
                log.info("round %d step %d %s", number + 1, step + 1, figures)
    checkpoint.unlink()
    model.set_attn_implementation("sdpa")
    return model


def _loss(model: Qwen3ForCausalLM, examples: Examples, own: Round, settings: Settings) -> tuple[Tensor, str]:
    """Compute the loss of one batch, and write its parts in words."""
    drawn = examples.draw(settings.problems, own.shapes)
    asked, replies = examples.conversations(own.conversations)
    tree = prefix_tree.plan(drawn.prompts + asked, drawn.workflows + replies)
    states = row_hidden(model, tree, Tree(tree.layout, kernel_for(model.device)))
    hidden = states[tree.rows[tree.edge]]
    losses = F.cross_entropy(model.lm_head(hidden), tree.targets[tree.edge], reduction="none")
    starts = torch.tensor([0, *map(len, drawn.workflows + replies)]).cumsum(0)
    split = int(starts[len(drawn.prompts)])
    writing, reading = losses[:split].mean(), losses[split:].sum() / max(1, len(losses) - split)
    decisions = (starts[: len(drawn.prompts), None] + torch.tensor(drawn.decisions))[:: own.shapes]
    apart = torch.stack([misalignment(hidden[tokens], drawn.features) for tokens in decisions.T]).mean()
    deciding = losses[decisions].mean()
    figures = f"workflows {writing:.4f} decisions {deciding:.3f} conversations {reading:.3f} misalignment {apart:.3f}"
    return writing + reading + settings.deciding * deciding + settings.alignment * apart, figures


def main() -> None:
    from llm_as_judge.embedded.server import EXECUTOR, WEIGHTS

    parser = argparse.ArgumentParser(description=__doc__)
    places = {"tokenizer": EXECUTOR, "out": WEIGHTS / "policy", "init": None, "config": None}
    for option in fields(Settings):
        flag = "--" + option.name.replace("_", "-")
        if option.name in places:
            parser.add_argument(flag, type=Path, default=places[option.name])
        else:
            parser.add_argument(flag, type=type(option.default), default=option.default)
    settings = Settings(**vars(parser.parse_args()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model = train(settings)
    (model.half() if settings.config else model).save_pretrained(settings.out)  # half as large a package
    nano_tokenizer.copy(settings.tokenizer, settings.out)


if __name__ == "__main__":
    main()
