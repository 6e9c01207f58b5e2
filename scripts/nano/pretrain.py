"""Trains the nano executor from scratch: ``python scripts/nano/pretrain.py`` (part of ``make pretrain``).

Stages: *recall* (look up pairs of names, then facts about names) until its accuracy passes a gate, because copying from
a passage is not learned before; *dense* conversations; conversations like real operator calls, while the learning rate
decays. Workers average their gradients (gloo). Checkpoints are written every few minutes; an interrupted run resumes
from them. It ends after ``--tokens`` or ``--minutes``, whichever is first.
"""

import argparse
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any

import corpus
import nano_tokenizer
import torch
import torch.nn.functional as F
from nano_tokenizer import ASSISTANT_ID, END_ID, PAD_ID, USER_ID
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from transformers import Lfm2Config, Lfm2ForCausalLM
from world import lexicon, reading

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.rl.ranks import Ranks, add_up_gradients, join
from llm_as_judge.types import DOMAINS, Question
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import SHAPES, workflow

log = logging.getLogger("pretrain")
#: Weight of the decisive tokens of a reply: names, verdicts, option letters.
DECISIVE_WEIGHT = 3.0
CHECKPOINTS = Path("checkpoints/nano-executor")
ROW = 352  # tokens per row; rows are packed with whole conversations
DENSE_SHARE = 0.6  # of the run; then the last part begins and the learning rate decays
RECALL_GATE = 0.95
MAX_RECALL_TOKENS = 6e6


@dataclass(frozen=True, slots=True)
class Settings:
    out: Path
    size: str = "nano"  # key of ``SIZES``
    tokens: float = 21e6
    minutes: float = 1e9
    workers: int = 1
    rows: int = 16  # per batch of a worker
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    prompt_weight: float = 0.15  # of the loss on prompt tokens in the dense part, 0 in the last
    seed: int = 0
    port: int = 29511
    init: Path | None = None  # a model folder to start from, without the recall stage


@dataclass(frozen=True, slots=True)
class Batch:
    ids: Tensor  # [B, T]
    positions: Tensor  # [B, T] position within the conversation
    documents: Tensor  # [B, T] number of the conversation in its row, -1 for padding
    targets: Tensor  # [B, T] the next token, -1 without loss
    weights: Tensor  # [B, T] weight of the target's loss
    kinds: Tensor  # [B, T] index of the conversation's kind


@dataclass(slots=True)
class Tally:
    """Loss and accuracy per kind since the last report."""

    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, kind: str, loss: float, right: float, count: int) -> None:
        row = self.sums.setdefault(kind, [0.0, 0.0, 0.0])
        row[0] += loss
        row[1] += right
        row[2] += count

    def flush(self) -> dict[str, tuple[float, float]]:
        report = {k: (round(a / n, 3), round(b / n, 3)) for k, (a, b, n) in sorted(self.sums.items()) if n}
        self.sums = {}
        return report


#: Hidden and intermediate size, layers, heads, key-value heads, layers with attention; 2.6 M and 0.5 M parameters.
SIZES = {"nano": (192, 448, 6, 6, 2, [1, 3, 5]), "small": (96, 224, 4, 3, 1, [1, 3])}


def model_config(vocabulary: int, size: str) -> Lfm2Config:
    """Configure LFM2: alternating gated short convolutions and attention."""
    hidden, intermediate, layers, heads, kv_heads, attention = SIZES[size]
    return Lfm2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=2048, conv_L_cache=4,
        block_auto_adjust_ff_dim=False, full_attn_idxs=attention, tie_word_embeddings=True, bos_token_id=USER_ID,
        eos_token_id=END_ID, pad_token_id=PAD_ID,
    )  # fmt: skip


class Source:
    """Endless stream of tokenised conversations for one worker, packed into batches."""

    def __init__(self, tokenizer: Tokenizer, r: Random, rows: int) -> None:
        self.tokenizer, self.r, self.rows = tokenizer, r, rows
        self.kinds = ["recall", *corpus.KINDS]
        verdicts = ["True", "False", *"ABCDE"]
        self.decisive = torch.zeros(tokenizer.get_vocab_size(), dtype=torch.bool)
        self.decisive[[tokenizer.encode(v).ids[0] for v in verdicts]] = True
        self.names = [i for w in lexicon.everything() for i in tokenizer.encode(" " + w).ids]
        self.phrases = [tokenizer.encode(phrase).ids for phrase in reading.PHRASES]
        self.stop = tokenizer.encode(".").ids[0]
        self.lengths = {
            k: sum(len(self._encode(KIND[0](r))[0]) for _ in range(20)) / 20 for k, KIND in corpus.KINDS.items()
        }
        self.decisive[self.names] = True
        self.pending: list[tuple[int, list[int], list[int]]] = []

    def _encode(self, talk: corpus.Conversation) -> tuple[list[int], list[int]]:
        """Encode as token ids, and 1 for each that belongs to a reply."""
        ids: list[int] = []
        reply: list[int] = []
        parts = self.tokenizer.encode_batch([t for turn in talk.turns for t in turn])
        for prompt, answer in zip(parts[::2], parts[1::2], strict=True):
            ids += [USER_ID, *prompt.ids, ASSISTANT_ID, *answer.ids, END_ID]
            reply += [0] * (len(prompt.ids) + 2) + [1] * (len(answer.ids) + 1)
        return ids, reply

    def _recall(self, length: int) -> tuple[list[int], list[int]]:
        """Draw pairs of names, then the pairs again in any order; every second value is a target."""
        if self.r.random() < 0.35:
            part = [self.r.choice(self.names) for _ in range(self.r.randint(3, length // 2))]
            ids = (part * (length // len(part) + 1))[:length]
            return ids, [0] * len(part) + [1] * (length - len(part))
        keys = self.r.sample(self.names, self.r.randint(2, max(2, length // 6)))
        values = [self.r.choice(self.names) for _ in keys]
        ids = [t for pair in zip(keys, values, strict=True) for t in pair]
        asked = [0] * len(ids)
        while len(ids) < length:
            for i in self.r.sample(range(len(keys)), len(keys)):
                ids += [keys[i], values[i]]
                asked += [0, 1]
        return ids[:length], asked[:length]

    def _statements(self, length: int) -> tuple[list[int], list[int]]:
        """Draw facts about names in the words of the passages, then the same facts in any order.

        The target is some tokens behind the name that it belongs to, so copying the next token does not find it.
        """
        facts = []
        for key in self.r.sample(self.names, self.r.randint(2, 7)):
            first = [self.r.choice(self.names)] if self.r.random() < 0.5 else []
            for phrase in self.r.sample(self.phrases, self.r.choice((1, 1, 2))):
                facts.append([*first, key, *phrase, self.r.choice(self.names), self.stop])
        self.r.shuffle(facts)
        ids = [t for fact in facts for t in fact]
        asked = [0] * len(ids)
        while len(ids) < length:
            for fact in self.r.sample(facts, len(facts)):
                ids += fact
                asked += [0] * (len(fact) - 2) + [1, 0]
        return ids[:length], asked[:length]

    def _draw(self, stage: str, longest: int) -> tuple[int, list[int], list[int]]:
        if stage == "recall":
            length = self.r.choice([n for n in (24, 48, 96, 140) if n <= longest])
            stated = longest > 48 and self.r.random() < 0.7
            return (0, *(self._statements(max(length, 96)) if stated else self._recall(length)))
        talk = corpus.draw(self.r, stage == "last", self.lengths)
        return (self.kinds.index(talk.kind), *self._encode(talk))

    def batch(self, stage: str, prompt_weight: float, longest: int = ROW) -> Batch:
        rows: list[list[tuple[int, list[int], list[int]]]] = [[] for _ in range(self.rows)]
        free = [ROW] * self.rows
        misses, left = 0, []
        while misses < 12:
            item = self.pending.pop() if self.pending else self._draw(stage, longest)
            size = len(item[1])
            if size > ROW:
                continue
            row = next((i for i in range(self.rows) if free[i] >= size), None)
            if row is None:
                misses += 1
                left.append(item)
            else:
                rows[row].append(item)
                free[row] -= size
        self.pending = left
        shape = (self.rows, ROW)
        ids, positions = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        documents, targets = torch.full(shape, -1), torch.full(shape, -1)
        weights, kinds = torch.zeros(shape), torch.zeros(shape, dtype=torch.long)
        for i, row_items in enumerate(rows):
            at = 0
            for number, (kind, tokens, asked) in enumerate(row_items):
                end = at + len(tokens)
                ids[i, at:end] = torch.tensor(tokens)
                positions[i, at:end] = torch.arange(len(tokens))
                documents[i, at:end] = number
                kinds[i, at:end] = kind
                weight = torch.tensor(asked[1:], dtype=torch.float)
                weight[weight == 0] = 0.0 if kind == 0 else prompt_weight
                weight[self.decisive[tokens[1:]] & (weight == 1)] = DECISIVE_WEIGHT
                weights[i, at : end - 1] = weight
                targets[i, at : end - 1] = torch.tensor(tokens[1:])
                at = end
        targets[weights == 0] = -1
        return Batch(ids, positions, documents, targets, weights, kinds)


def forward(model: Lfm2ForCausalLM, body: Callable[..., Any], batch: Batch) -> tuple[Tensor, Tensor]:
    """Compute losses [N] of target tokens, and whether each was predicted [N]; ``body`` is ``model.model``."""
    length = batch.ids.shape[1]
    same = batch.documents[:, :, None] == batch.documents[:, None]
    allowed = same & torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(allowed.shape).masked_fill_(~allowed, -1e9)[:, None]
    hidden = body(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask={"full_attention": mask, "conv": None},
        use_cache=False,
    ).last_hidden_state
    chosen = batch.targets.reshape(-1) >= 0
    logits = model.lm_head(hidden.reshape(-1, hidden.shape[-1])[chosen]).float()
    wanted = batch.targets.reshape(-1)[chosen]
    return F.cross_entropy(logits, wanted, reduction="none"), (logits.argmax(-1) == wanted).float().detach()


def _optimiser(model: Lfm2ForCausalLM, settings: Settings) -> torch.optim.AdamW:
    """Make AdamW with weight decay on the matrices inside the blocks only."""
    inner = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "embed" not in n)]
    groups = [{"params": inner, "weight_decay": settings.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=True)


def _save(path: Path, state: dict[str, Any]) -> None:
    aside = path.with_suffix(".tmp")
    torch.save(state, aside)
    os.replace(aside, path)


def _factor(progress: float, step: int) -> float:
    warm = min(1.0, (step + 1) / 60)
    return warm * (1.0 if progress < DENSE_SHARE else max(0.02, 1 - (progress - DENSE_SHARE) / (1 - DENSE_SHARE)))


def _start_from(model: Lfm2ForCausalLM, folder: Path) -> None:
    """Load the weights in ``folder``; a narrower convolution is padded with zeros and computes the same."""
    given = load_file(folder / "model.safetensors")
    for name, own in model.state_dict().items():
        if name in given:
            own.copy_(F.pad(given[name].float(), (own.shape[-1] - given[name].shape[-1], 0)))


def run(rank: int, settings: Settings) -> None:
    """Train one worker; rank 0 writes ``checkpoint.pt`` and ``log.jsonl``."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(settings.workers))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(settings.port))
    with join() as ranks:
        _train(ranks, settings)


def _train(ranks: Ranks, settings: Settings) -> None:
    torch.set_num_threads(1)
    rank = ranks.rank
    tokenizer = Tokenizer.from_file(str(settings.out / "tokenizer.json"))
    torch.manual_seed(settings.seed)
    model = Lfm2ForCausalLM(model_config(tokenizer.get_vocab_size(), settings.size))
    optimiser = _optimiser(model, settings)
    state: dict[str, Any] = {"tokens": 0, "step": 0, "stage": "recall", "seconds": 0.0, "recall": 0.0}
    checkpoint = settings.out / "checkpoint.pt"
    if settings.init:
        _start_from(model, settings.init)
        state["stage"] = "dense"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        state = saved["state"]
    # Both together take 0.57 of the time; without instructions for it bfloat16 would take three times as long.
    body = torch.compile(model.model, dynamic=False) if shutil.which("c++") else model.model
    able = torch.cpu.get_capabilities()
    half = torch.autocast("cpu", torch.bfloat16, enabled=bool(able.get("avx512_bf16") or able.get("amx_bf16")))
    source = Source(tokenizer, Random(f"{settings.seed}/{rank}/{state['tokens']}"), settings.rows)
    tally, begun, saved_at = Tally(), time.time() - state["seconds"], time.time()
    while True:
        progress = max(state["tokens"] / settings.tokens, state["seconds"] / (60 * settings.minutes))
        if progress >= 1:
            break
        stage = state["stage"]
        if stage == "dense" and progress >= DENSE_SHARE:
            stage = state["stage"] = "last"
            source.pending = []
        longest = 24 if state["tokens"] < 0.3e6 else 48 if state["tokens"] < 0.7e6 else 140
        batch = source.batch(stage, settings.prompt_weight if stage == "dense" else 0.0, longest)
        with half:
            losses, right = forward(model, body, batch)
        asked = batch.targets.reshape(-1) >= 0
        weight = batch.weights.reshape(-1)[asked]
        ((losses * weight).sum() / weight.sum() / ranks.size).backward()
        add_up_gradients(ranks, list(model.parameters()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * _factor(progress, state["step"])
        optimiser.step()
        optimiser.zero_grad()
        state["step"] += 1
        kinds = batch.kinds.reshape(-1)[asked]
        for k in set(kinds[weight >= 1].tolist()):
            of = (kinds == k) & (weight >= 1)
            tally.add(source.kinds[k], losses[of].sum().item(), right[of].sum().item(), int(of.sum()))
        numbers = torch.tensor(
            [float((batch.documents >= 0).sum()), right.mean().item(), time.time() - begun],
            dtype=torch.float64,
        )
        numbers = ranks.add_up(numbers)
        state["tokens"] += int(numbers[0])
        state["seconds"] = numbers[2].item() / ranks.size
        if stage == "recall":
            state["recall"] = 0.9 * state["recall"] + 0.1 * numbers[1].item() / ranks.size
            if longest == 140 and (state["recall"] > RECALL_GATE or state["tokens"] > MAX_RECALL_TOKENS):
                state["stage"] = "dense"
                source.pending = []
        if rank == 0 and state["step"] % 20 == 0:
            line = {**state, "seconds": round(state["seconds"]), "kinds": tally.flush()}
            with (settings.out / "log.jsonl").open("a") as f:
                f.write(json.dumps(line) + "\n")
            log.info(json.dumps(line))
        if rank == 0 and time.time() - saved_at > 180:
            saved_at = time.time()
            _save(checkpoint, {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "state": state})
    if rank == 0:
        _save(checkpoint, {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "state": state})


def export(folder: Path, out: Path, size: str) -> None:
    """Write the model of ``folder/checkpoint.pt`` as a Hugging Face folder in float16, with its tokenizer."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = Lfm2ForCausalLM(model_config(tokenizer.get_vocab_size(), size))
    model.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True)["model"])
    model.to(dtype=torch.float16).save_pretrained(out)
    nano_tokenizer.copy(folder, out)


def vocabulary_texts() -> Iterator[str]:
    """Yield texts whose pieces become single tokens: conversations, Layer 1 prompts, workflows, Layer 2."""
    yield from corpus.samples(Random("vocabulary"), 13000)
    layer1 = Layer1(WorkflowConfig(prompt="short"))
    for domain in DOMAINS:
        question = Question("", "", domain, entry_point="f")
        made = layer1(question)
        yield from (made.system, made.user)
        for shape in SHAPES.values():
            yield workflow(shape, domain)
    yield from corpus.ENHANCEMENTS.values()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in fields(Settings):
        flag, default = "--" + option.name.replace("_", "-"), option.default
        if option.name in ("out", "init"):
            parser.add_argument(flag, type=Path, default=None if option.name == "init" else CHECKPOINTS)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    parser.add_argument("--export", type=Path, help="write the last checkpoint to this folder instead of training")
    given = vars(parser.parse_args())
    destination = given.pop("export")
    settings = Settings(**given)
    if destination:
        export(settings.out, destination, settings.size)
        return
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if not (settings.out / "tokenizer.json").exists():
        if settings.init:
            nano_tokenizer.copy(settings.init, settings.out)
        else:
            nano_tokenizer.save(nano_tokenizer.build(vocabulary_texts(), lexicon.everything()), settings.out)
    if settings.workers == 1:
        run(0, settings)
    else:
        spawn(run, args=(settings,), nprocs=settings.workers)


if __name__ == "__main__":
    main()
