"""Trains the nano policy: ``python scripts/nano/warm_start.py`` (part of ``make pretrain``).

A Qwen2 model of about a million parameters learns to write each of the ten plans about equally often in every domain,
so that the choice of the plan is left to GRPO. A decorrelation loss separates the three domains at the token that
decides the plan, in the last hidden state and in the input of the adapted layer (``ADAPTED``): the gradient there is an
outer product with that input, so without the loss every update would move all domains together.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random

import nano_tokenizer
import torch
import torch.nn.functional as F
from nano_tokenizer import ASSISTANT_ID, END_ID, PAD_ID, SYSTEM_ID, USER_ID
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from llm_as_judge.embedded.tasks.generate import problems
from llm_as_judge.policy import tree as prefix_tree
from llm_as_judge.policy.attention import ATTENTION, Tree, kernel_for, row_hidden
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.types import DOMAINS, Problem
from llm_as_judge.workflow.prompt import DEFAULT_GUIDANCE, short_prompt, system_prompt
from llm_as_judge.workflow.shapes import SHAPES, workflow

#: The linear layer that carries the nano policy's adapter (``config/models.yaml``).
ADAPTED = "model.layers.3.mlp.down_proj"
log = logging.getLogger("warm_start")


@dataclass(frozen=True, slots=True)
class Settings:
    tokenizer: Path
    out: Path
    steps: int = 420
    problems: int = 3  # per batch, from the domains in turn
    plans: int = 5  # workflows per problem
    learning_rate: float = 2e-3
    decorrelation: float = 1.0
    seed: int = 0
    init: Path | None = None  # a policy to start from
    pool: int = 1500  # problems per domain


def model_config(vocabulary: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=END_ID, pad_token_id=PAD_ID,
    )  # fmt: skip


class Examples:
    """Token ids of prompts and of workflows for them."""

    def __init__(self, folder: Path, seed: int, pool: int) -> None:
        self.tokenizer = load_tokenizer(str(folder))
        self.r = Random(f"warm start/{seed}")
        self.pools = {d: problems(d, "pretrain", pool, seed) for d in DOMAINS}

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def prompt(self, problem: Problem) -> list[int]:
        made = short_prompt(problem.question, system=system_prompt(), guidance=DEFAULT_GUIDANCE)
        return [SYSTEM_ID, *self._ids(made.system), USER_ID, *self._ids(made.user), ASSISTANT_ID]

    @property
    def decision(self) -> int:
        """Number of completion tokens before the one that names the plan; the same in every domain."""
        heads = {len(self._ids(workflow(SHAPES["vote"], d).partition(" vote\n")[0])) for d in DOMAINS}
        assert len(heads) == 1, "every domain's name must be one token"
        return heads.pop()

    def draw(self, count: int, plans: int) -> tuple[list[list[int]], list[list[int]], list[int]]:
        """(prompts, workflows, domain numbers) of ``count`` problems with ``plans`` different plans each."""
        prompts, workflows, domains = [], [], []
        for i in range(count):
            domain = DOMAINS[i % len(DOMAINS)]
            prompt = self.prompt(self.r.choice(self.pools[domain]))
            for plan in self.r.sample(list(SHAPES.values()), plans):
                prompts.append(prompt)
                workflows.append([*self._ids(workflow(plan, domain)), END_ID])
                domains.append(i % len(DOMAINS))
        return prompts, workflows, domains


def decorrelation(hidden: Tensor, domains: Tensor) -> Tensor:
    """Mean squared cosine between hidden states [B, d] of different domains [B]."""
    unit = F.normalize(hidden, dim=-1)
    cosines = unit @ unit.T
    apart = domains[:, None] != domains[None]
    return cosines[apart].square().mean()


@contextmanager
def inputs_of(layer: torch.nn.Module) -> Iterator[list[Tensor]]:
    """The inputs of ``layer`` in each forward pass inside the block."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    try:
        yield seen
    finally:
        hook.remove()


def train(settings: Settings) -> Qwen2ForCausalLM:
    """Shared prefixes (the system message, each problem) are forwarded once per batch (``policy.tree``)."""
    torch.manual_seed(settings.seed)
    examples = Examples(settings.tokenizer, settings.seed, settings.pool)
    if settings.init:
        model = Qwen2ForCausalLM.from_pretrained(settings.init)
    else:
        model = Qwen2ForCausalLM(model_config(len(examples.tokenizer)))
    model.set_attn_implementation(ATTENTION)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(settings.steps):
        prompts, workflows, domains = examples.draw(settings.problems, settings.plans)
        tree = prefix_tree.plan(prompts, workflows)
        with inputs_of(model.get_submodule(ADAPTED)) as read:
            states = row_hidden(model, tree, Tree(tree.layout, kernel_for(model.device)))
        rows = tree.rows[tree.edge]
        hidden = states[rows]
        language = F.cross_entropy(model.lm_head(hidden), tree.targets[tree.edge])
        starts = torch.tensor([0, *tree.lengths[:-1]]).cumsum(0)
        decisions = (starts + examples.decision)[:: settings.plans]
        numbers = torch.tensor(domains[:: settings.plans])
        apart = decorrelation(hidden[decisions], numbers)
        apart_inside = decorrelation(read[0][0, rows][decisions], numbers)
        (language + settings.decorrelation * (apart + apart_inside)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        progress = step / settings.steps
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (step + 1) / 20) * max(0.03, 1 - progress)
        optimiser.step()
        optimiser.zero_grad()
        if step % 20 == 19:
            cosines = apart.item(), apart_inside.item()
            log.info("step %d loss %.4f squared cosines %.3f %.3f", step + 1, language.item(), *cosines)
    model.set_attn_implementation("sdpa")
    return model


def main() -> None:
    from llm_as_judge.embedded.server import EXECUTOR, WEIGHTS

    parser = argparse.ArgumentParser(description=__doc__)
    places = {"tokenizer": EXECUTOR, "out": WEIGHTS / "policy", "init": None}
    for option in fields(Settings):
        flag = "--" + option.name.replace("_", "-")
        if option.name in places:
            parser.add_argument(flag, type=Path, default=places[option.name])
        else:
            parser.add_argument(flag, type=type(option.default), default=option.default)
    settings = Settings(**vars(parser.parse_args()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model = train(settings)
    model.save_pretrained(settings.out)
    nano_tokenizer.copy(settings.tokenizer, settings.out)


if __name__ == "__main__":
    main()
