"""A random Qwen2 with a few thousand weights, a tokenizer of numbers, and simple components around the trainer."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from llm_as_judge import types
from llm_as_judge.config.schema import ModelConfig, TrainingConfig
from llm_as_judge.events import Event, StepReport
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.policy.scoring import Layout, TokenScores, score
from llm_as_judge.rl.pipeline import TrainerParts
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.rl.trainer import Trainer
from llm_as_judge.rl.update import Updater
from llm_as_judge.runlog import plain
from llm_as_judge.workflow.shapes import Example

VOCABULARY = 24
EOS = 1
LUCKY = "7"


class NumberTokenizer:
    """Text is numbers separated by spaces; other words are mapped to numbers."""

    eos_token_id = EOS
    chat_template = "present"
    all_special_tokens = ("<eos>",)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        words = text.split()
        return [int(w) if w.isdigit() else 3 + sum(map(ord, w)) % (VOCABULARY - 3) for w in words]

    def decode(self, token_ids: Sequence[int], **kwargs: Any) -> str:
        return " ".join(map(str, token_ids))

    def apply_chat_template(self, messages: list[dict[str, str]], **kwargs: Any) -> list[int] | str:
        if not kwargs.get("tokenize", True):
            return " ".join(m["content"] for m in messages)
        return [2, *(i for m in messages for i in self.encode(m["content"])), 3]


FAMILIES = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}


def tiny_policy(
    *,
    perturb: float = 0.0,
    rank: int = 4,
    vocabulary: int = VOCABULARY,
    hidden: int = 32,
    family: str = "qwen2",
    more: Mapping[str, Any] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Policy:
    """``perturb`` > 0 gives the adapter random weights; ``more`` are arguments of the model's configuration.

    ``family`` is one of ``FAMILIES`` or any model type of transformers.
    """
    values: dict[str, Any] = {
        "hidden_size": hidden, "num_hidden_layers": 2, "intermediate_size": 2 * hidden, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": vocabulary, "max_position_embeddings": 512, "initializer_range": 0.2,
        "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": EOS, "pad_token_id": 2,
    }  # fmt: skip
    made = {**values, **(more or {})}
    config = FAMILIES[family](**made) if family in FAMILIES else AutoConfig.for_model(family, **made)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        base = AutoModelForCausalLM.from_config(config)
    options = {"lora_rank": rank, "lora_alpha": 2 * rank, "device": "cpu", "dtype": "float32", **settings}
    policy = Policy(base, NumberTokenizer(), ModelConfig(**options), seed=seed)
    if perturb:
        generator = torch.Generator().manual_seed(5)
        for parameter in policy.trainable_parameters:
            parameter.data.copy_(torch.empty(parameter.shape).normal_(0, perturb, generator=generator))
    return policy


def logprobs_of(
    policy: Policy,
    completions: Sequence[types.Completion],
    sampling: Sampling = PLAIN,
    *,
    reference: bool = False,
    shared_prefix: bool = False,
) -> TokenScores:
    """Scores of ``completions`` in one forward pass, with gradient; ``reference``: of the KL reference, without."""
    layout: Layout = "tree" if shared_prefix else "padded"
    policy._refuse(layout, completions)
    with policy._reference() if reference else nullcontext():
        return score(policy.base, completions, sampling, layout)


def random_completions(
    prompts: int = 3, group: int = 3, vocabulary: int = VOCABULARY, seed: int = 0
) -> list[types.Completion]:
    """Prompts of different lengths with a common beginning, and completions of different lengths."""
    draw = random.Random(seed)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(draw.randrange(4, vocabulary) for _ in range(n))

    system = ids(9)
    found = []
    for _ in range(prompts):
        prompt = system + ids(draw.randint(1, 8))
        for _ in range(group):
            tokens = ids(draw.randint(1, 12))
            found.append(types.Completion("", prompt, tokens, tuple(-1.0 for _ in tokens), "stop"))
    return found


def greedy(base: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy tokens by the model's own forward passes of whole sequences."""
    ids, training = list(prompt), base.training
    base.eval()
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(base(torch.tensor([ids], device=base.device), use_cache=False).logits[0, -1].argmax()))
    base.train(training)
    return ids[len(prompt) :]


def prompt(question: types.Question, examples: Sequence[Example] = ()) -> types.Prompt:
    return types.Prompt("4 5 6 7 8", " ".join([question.text, *(example.workflow for example in examples)]))


def problem(number: int, text: str | None = None) -> types.Problem:
    question = types.Question(f"p{number}", text or f"{4 + number % 5} 9 {5 + number % 7}", ("math", "qa")[number % 2])
    return types.Problem(question, types.Reference((LUCKY,)))


class CountingSampler:
    def __init__(self) -> None:
        self.position = 0

    def sample(self, n: int) -> list[types.Problem]:
        start, self.position = self.position, self.position + n
        return [problem(i) for i in range(start, start + n)]

    def state_dict(self) -> Mapping[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = state["position"]


class ListBuffer:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def update(self, groups: Sequence[types.Group], step: int) -> None:
        self.texts += [r.completion.text for g in groups for r in g.rollouts if r.verdict.correct]

    def examples(self, question: types.Question) -> list[Example]:
        return []

    def save(self) -> None: ...

    def state_dict(self) -> Mapping[str, Any]:
        return {"texts": list(self.texts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.texts = list(state["texts"])


class EchoRunner:
    """Answers with the workflow's text."""

    async def run(self, source: str, question: types.Question, seed: int | None = None) -> types.Execution:
        return types.Execution("finished", source)


class LuckyJudge:
    async def verdict(self, problem: types.Problem, answer: str | None, cut_off: bool = False) -> types.Verdict:
        return types.Verdict(LUCKY in (answer or "").split(), "rules")


@dataclass
class Runs(EchoRunner):
    """Does what ``instead`` returns or raises for the number of runs before, if it is not None."""

    instead: Callable[[int], types.Execution | None]
    calls: int = 0

    async def run(self, source: str, question: types.Question, seed: int | None = None) -> types.Execution:
        self.calls += 1
        return self.instead(self.calls - 1) or await super().run(source, question)


@dataclass
class Judges(LuckyJudge):
    """The same for verdicts, by the number of verdicts before and the problem's number."""

    instead: Callable[[int, int], types.Verdict | None]
    calls: int = 0

    async def verdict(self, problem: types.Problem, answer: str | None, cut_off: bool = False) -> types.Verdict:
        self.calls += 1
        number = int(problem.question.id.removeprefix("p"))
        return self.instead(self.calls - 1, number) or await super().verdict(problem, answer)


def ten_or_minus_five(rollout: types.Rollout) -> types.Reward:
    if rollout.verdict.correct is None:
        return types.Reward(None)
    total = 10.0 if rollout.verdict.correct else -5.0
    return types.Reward(total - len(rollout.attempts), {"correctness": total})


@dataclass
class Events:
    """A log in memory."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def log(self, event: Event) -> None:
        self.lines.append(plain(event))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.lines if e["kind"] == kind]


def bandit_trainer(
    directory: Path,
    *,
    events: Events | None = None,
    reports: list[StepReport] | None = None,
    runner: Any = None,
    judge: Any = None,
    policy: Policy | None = None,
    buffer: ListBuffer | None = None,
    evaluate: Any = None,
    **settings: Any,
) -> Trainer:
    """A trainer on a trivial task: a completion is right if it contains the lucky number."""
    policy = policy or tiny_policy(rank=8)
    defaults: dict[str, Any] = {
        "rollout_batch_size": 4, "num_return_sequences_in_group": 6, "learning_rate": 1e-2, "response_max_length": 4,
        "save_every": 0,
    }  # fmt: skip
    config = TrainingConfig(**{**defaults, **settings})
    return Trainer(
        TrainerParts(
            policy=policy,
            learner=Updater(policy, config),
            engine=LocalEngine(policy, policy.tokenizer),
            sampling=PLAIN,
            sampler=CountingSampler(),
            prompt=prompt,
            buffer=buffer or ListBuffer(),
            rollout=RolloutParts(runner or EchoRunner(), judge or LuckyJudge(), ten_or_minus_five),
            log=(events or Events()).log,
            checkpoint_dir=directory,
            on_step=(reports if reports is not None else []).append,
            evaluate=evaluate,
        ),
        config,
    )


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.parts.policy.trainable_parameters]


def equal(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors have the same bits."""
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def alike(clean: Trainer, resumed: Trainer) -> bool:
    """Whether weights, buffer and sampler are the same."""
    states = [[part.state_dict() for part in (t.parts.buffer, t.parts.sampler)] for t in (clean, resumed)]
    return equal(weights(clean), weights(resumed)) and states[0] == states[1]
