"""Makes the nano policy: ``python -m llm_as_judge.embedded.warm_start`` (part of ``make pretrain``).

A Qwen2 model of about a million parameters learns from the real Layer 1 prompt to write each of the ten plans about
equally often in every domain, so that GRPO has everything to find. A decorrelation loss keeps the hidden states of
the three domains apart at the token that decides the plan; without it every update moves all domains together.
"""

from __future__ import annotations

import argparse
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from llm_as_judge.embedded.tasks.generate import problems
from llm_as_judge.embedded.tokenizer import ASSISTANT_ID, END_ID, PAD_ID, SYSTEM_ID, USER_ID
from llm_as_judge.operators import catalog
from llm_as_judge.types import DOMAINS, Problem
from llm_as_judge.workflow.plans import PLANS, workflow
from llm_as_judge.workflow.prompt import DEFAULT_GUIDANCE, build_prompt

log = logging.getLogger("warm_start")


@dataclass(frozen=True, slots=True)
class Settings:
    tokenizer: Path
    out: Path
    steps: int = 260
    batch: int = 15
    learning_rate: float = 2e-3
    decorrelation: float = 1.0
    seed: int = 0
    pool: int = 1500  # problems of each domain


def model_config(vocabulary: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=END_ID, pad_token_id=PAD_ID,
    )  # fmt: skip


class Examples:
    """Token ids of prompts and workflows; ``decision`` is the position whose hidden state picks the plan."""

    def __init__(self, folder: Path, seed: int, pool: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.r = Random(f"warm start/{seed}")
        self.pools = {d: problems(d, "pretrain", pool, seed) for d in DOMAINS}

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def prompt(self, problem: Problem) -> list[int]:
        made = build_prompt(problem.question, operators=list(catalog.OPERATORS), guidance=DEFAULT_GUIDANCE)
        return [SYSTEM_ID, *self._ids(made.system), USER_ID, *self._ids(made.user), ASSISTANT_ID]

    def draw(self, index: int) -> tuple[list[int], int, int, int]:
        """(ids, length of the prompt, decision position, domain number)."""
        number = index % len(DOMAINS)
        domain = DOMAINS[number]
        prompt = self.prompt(self.r.choice(self.pools[domain]))
        text = workflow(self.r.choice(list(PLANS.values())), domain)
        decision = len(prompt) + len(self._ids(f"# {domain}:")) - 1
        return [*prompt, *self._ids(text), END_ID], len(prompt), decision, number


def decorrelation(hidden: Tensor, domains: Tensor) -> Tensor:
    """Mean squared cosine between hidden states [B, d] of different domains [B]."""
    unit = F.normalize(hidden, dim=-1)
    cosines = unit @ unit.T
    apart = domains[:, None] != domains[None]
    return cosines[apart].square().mean()


def train(settings: Settings) -> Qwen2ForCausalLM:
    torch.manual_seed(settings.seed)
    examples = Examples(settings.tokenizer, settings.seed, settings.pool)
    model = Qwen2ForCausalLM(model_config(len(examples.tokenizer)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(settings.steps):
        drawn = [examples.draw(i) for i in range(settings.batch)]
        longest = max(len(ids) for ids, *_ in drawn)
        ids = torch.full((settings.batch, longest), PAD_ID)
        targets = torch.full((settings.batch, longest), -100)
        for i, (tokens, start, _, _) in enumerate(drawn):
            ids[i, : len(tokens)] = torch.tensor(tokens)
            targets[i, start - 1 : len(tokens) - 1] = torch.tensor(tokens[start:])
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        chosen = targets >= 0
        language = F.cross_entropy(model.lm_head(hidden[chosen]), targets[chosen])
        at_decision = hidden[torch.arange(settings.batch), torch.tensor([d for *_, d, _ in drawn])]
        apart = decorrelation(at_decision, torch.tensor([n for *_, n in drawn]))
        (language + settings.decorrelation * apart).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        progress = step / settings.steps
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (step + 1) / 20) * max(0.05, 1 - progress)
        optimiser.step()
        optimiser.zero_grad()
        if step % 20 == 19:
            log.info("step %d loss %.4f squared cosine %.3f", step + 1, language.item(), apart.item())
    return model


def main() -> None:
    from llm_as_judge.embedded.server import EXECUTOR, WEIGHTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, default=EXECUTOR)
    parser.add_argument("--out", type=Path, default=WEIGHTS / "policy")
    parser.add_argument("--steps", type=int, default=Settings.__dataclass_fields__["steps"].default)
    parser.add_argument("--seed", type=int, default=0)
    settings = Settings(**vars(parser.parse_args()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    model = train(settings)
    model.save_pretrained(settings.out)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(settings.tokenizer / name, settings.out / name)


if __name__ == "__main__":
    main()
