"""Forward and backward pass of one GRPO step: TRL's GRPOTrainer, padded rows, sharing within groups, the whole tree.

Same weights and sequences for all, one thread, LoRA of rank 64 on every linear layer, float32. Padded rows take the
fused causal attention without a mask: the strongest padded way there is on a CPU. TRL runs its own ``training_step``;
only its generation is replaced by the prepared batch. "ours" is what the trainer would choose by itself. Every step
runs in a process of its own, in turn, after a small one; its gradient is compared with the padded one. On a GPU
seconds are those on the clock.

    python benchmarks/update.py [--rounds 2] [--row NAME ...] [--device cuda:0] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
from measure import Claim, command_line, peak_bytes, report, seconds
from transformers import AutoModelForCausalLM, Qwen2Config

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import ModelConfig, TrainingConfig
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout, cheaper_layout
from llm_as_judge.policy.tree import padded_tokens, plan
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.rl.loss import LossInputs, Normaliser, policy_loss
from llm_as_judge.types import Completion
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import SHAPES, workflow

ROOT = Path(__file__).parents[1]
BUDGET = TrainingConfig().micro_batch_tokens
LOSS = TrainingConfig(loss_type="grpo", epsilon=0.2, epsilon_high=0.2)


@dataclass(frozen=True, slots=True)
class Workload:
    """Random tokens: ``system`` ones common to all, ``own`` ones a problem, then completions."""

    problems: int
    group: int
    system: int
    own: int
    shortest: int
    longest: int

    def completions(self, vocabulary: int) -> list[Completion]:
        draw = Random(0)

        def ids(n: int) -> tuple[int, ...]:
            return tuple(draw.randrange(3, vocabulary) for _ in range(n))

        system, found = ids(self.system), []
        for _ in range(self.problems):
            prompt = system + ids(self.own)
            for _ in range(self.group):
                tokens = ids(draw.randint(self.shortest, self.longest))
                found.append(Completion("", prompt, tokens, (0.0,) * len(tokens), "stop"))
        return found


ROWS = {
    "reference": Workload(4, 6, 1500, 300, 150, 300),
    "no system prompt": Workload(4, 6, 0, 300, 150, 300),
    "long completions": Workload(2, 3, 1500, 300, 1500, 2500),
    "nothing shared": Workload(8, 1, 0, 300, 150, 300),
}
SMALL = Workload(2, 2, 20, 5, 5, 9)


def random_policy(device: str = "cpu") -> Policy:
    """Make a Qwen2 with hidden size 256, 4 layers, 8.2 million weights."""
    config = Qwen2Config(
        hidden_size=256,
        num_hidden_layers=4,
        intermediate_size=704,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=4096,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    tokenizer = load_tokenizer(str(ROOT / "llm_as_judge/embedded/weights/policy"))
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    policy = Policy(base, tokenizer, ModelConfig(device=device, dtype="float32"))
    generator = torch.Generator().manual_seed(1)
    for parameter in policy.trainable_parameters:
        parameter.data.copy_(torch.empty(parameter.shape).normal_(0, 0.02, generator=generator))
    return policy


def embedded_batch(policy: Policy) -> list[Completion]:
    """Return eight workflows for each of eight problems of the embedded run, with its prompts."""
    config, draw = load_config(ROOT / "config/embedded.yaml"), Random(0)
    layer1 = Layer1(config.workflow)
    found = []
    for problem in open_problems(config).sampler.sample(8):
        question = problem.question
        prompt = policy.encode(layer1(question))
        for chosen in draw.choices(list(SHAPES.values()), k=8):
            text = workflow(chosen, question.domain)
            ids = policy.tokenizer(text, add_special_tokens=False).input_ids
            found.append(Completion(text, tuple(prompt), tuple(ids), (0.0,) * len(ids), "stop"))
    return found


def advantages_of(completions: Sequence[Completion]) -> torch.Tensor:
    return torch.randn(len(completions), generator=torch.Generator().manual_seed(2))


def step(policy: Policy, completions: Sequence[Completion], layout: Layout, by_group: bool = False) -> None:
    """Add the gradient of one optimiser step."""
    advantages = advantages_of(completions).to(policy.device)
    normaliser = Normaliser(len(completions), sum(len(c.token_ids) for c in completions))
    batches = [list(range(len(completions)))]
    if by_group:
        prompts = dict.fromkeys(c.prompt_ids for c in completions)
        batches = [[i for i, c in enumerate(completions) if c.prompt_ids == p] for p in prompts]
    for rows in batches:
        for members, scores in policy.micro_batches([completions[i] for i in rows], Sampling(), layout, BUDGET):
            chosen = advantages[[rows[i] for i in members]]
            inputs = LossInputs(scores.logprobs, chosen, scores.mask)
            policy_loss(inputs, LOSS, normaliser).loss.backward()  # type: ignore[no-untyped-call]


def trl_step(policy: Policy, completions: Sequence[Completion]) -> Callable[[], None]:
    """Return TRL's training step on the same model and batch."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    prompt = max(len(c.prompt_ids) for c in completions)
    longest = max(len(c.token_ids) for c in completions)
    batch: dict[str, Any] = {"advantages": advantages_of(completions)}
    for name, width in (("prompt", prompt), ("completion", longest)):
        batch[f"{name}_ids"] = torch.full((len(completions), width), 2)
        batch[f"{name}_mask"] = torch.zeros(len(completions), width, dtype=torch.long)
    for row, c in enumerate(completions):
        batch["prompt_ids"][row, prompt - len(c.prompt_ids) :] = torch.tensor(c.prompt_ids)
        batch["prompt_mask"][row, prompt - len(c.prompt_ids) :] = 1
        batch["completion_ids"][row, : len(c.token_ids)] = torch.tensor(c.token_ids)
        batch["completion_mask"][row, : len(c.token_ids)] = 1
    batch["num_items_in_batch"] = batch["completion_mask"].sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=len(completions),
            num_generations=len(completions),
            max_completion_length=longest,
            loss_type=LOSS.loss_type,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=policy.device.type == "cpu",
            report_to=[],
            max_steps=1,
            steps_per_generation=1,
            disable_tqdm=True,
        )
        trainer: Any = GRPOTrainer(
            model=policy.model,
            reward_funcs=lambda completions, **named: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["go"] * len(completions)}),
            processing_class=policy.tokenizer,
        )
    trainer.current_gradient_accumulation_steps = 1
    placed = {name: value.to(policy.device) for name, value in batch.items()}
    trainer._generate_and_score_completions = lambda inputs: dict(placed)

    def run() -> None:
        trainer._buffered_inputs, trainer._step = None, 0
        trainer.model.train()
        trainer.training_step(trainer.model, [{}], None)

    return run


SIDES = ("TRL", "padded", "groups", "ours")


def sides(policy: Policy, completions: Sequence[Completion], with_trl: bool) -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = {"TRL": trl_step(policy, completions)} if with_trl else {}
    return found | {
        "padded": lambda: step(policy, completions, "padded"),
        "groups": lambda: step(policy, completions, "tree", by_group=True),
        "ours": lambda: step(policy, completions, cheaper_layout(completions)),
    }


def measure(row: str, side: str, out: Path, device: str) -> None:
    """Measure one step in this process: seconds and the megabytes that its peak adds, and its gradient in ``out``."""
    policy, completions = subject(row, device)
    # On a GPU kernels are compiled for the shapes of a step, once in a run.
    small = completions if device.startswith("cuda") else SMALL.completions(4096 if row in ROWS else 1000)
    sides(policy, small, side == "TRL")[side]()
    policy.model.zero_grad(set_to_none=True)
    work = sides(policy, completions, side == "TRL")[side]
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
    before, begun = peak_bytes(device), seconds(device)
    work()
    spent = seconds(device) - begun
    peak = (peak_bytes(device) - before) / 2**20
    torch.save(torch.cat([p.grad.flatten() for p in policy.trainable_parameters if p.grad is not None]), out)
    print(json.dumps({"seconds": spent, "peak": peak}))


def subject(row: str, device: str) -> tuple[Policy, list[Completion]]:
    if row == "embedded":
        policy = load_author(load_config(ROOT / "config/embedded.yaml", [f"device={device}"])).policy
        return policy, embedded_batch(policy)
    return random_policy(device), ROWS[row].completions(4096)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--row", nargs="*", default=[*ROWS, "embedded"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    if options.side:
        measure(options.row[0], options.side, options.out, options.device)
        return
    lines: dict[str, str] = {}
    claims: dict[str, Claim] = {}
    slowest = []
    for row in options.row:
        # TRL is no peer for the embedded policy, whose adapter is on one layer and whose head is small.
        names = [s for s in SIDES if s != "TRL" or row in ("reference", "no system prompt")]
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        gradients: dict[str, torch.Tensor] = {}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.rounds):
                for name in names:
                    out = Path(folder) / name
                    command = [sys.executable, __file__, "--row", row, "--side", name, "--out", str(out)]
                    command += ["--device", options.device]
                    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                    found[name].append(json.loads(printed.splitlines()[-1]))
                    print(f"{row}, {name}: {printed.splitlines()[-1]}", file=sys.stderr, flush=True)
                    gradients[name] = torch.load(out, map_location="cpu")
        worst = max(float((g - gradients["padded"]).norm() / gradients["padded"].norm()) for g in gradients.values())
        spent, peak = ({n: median(r[key] for r in found[n]) for n in names} for key in ("seconds", "peak"))
        completions = subject(row, "cpu")[1]
        prompts, tokens = [c.prompt_ids for c in completions], [c.token_ids for c in completions]
        unique, padded = plan(prompts, tokens).unique_tokens, padded_tokens(prompts, tokens)
        lines[f"{row}: tokens"] = f"{padded} padded, {unique} unique ({padded / unique:.1f})"
        lines[f"{row}: seconds"] = ", ".join(f"{s} {t:.2f}" for s, t in spent.items())
        lines[f"{row}: times ours"] = ", ".join(f"{s} {t / spent['ours']:.2f}" for s, t in spent.items())
        lines[f"{row}: peak MB"] = ", ".join(f"{s} {p:.0f}" for s, p in peak.items())
        lines[f"{row}: worst difference of a gradient"] = f"{worst:.1e}"
        slowest.append(spent["padded"] / spent["ours"])
        if row == "reference":
            claims["reference_times_trl"] = Claim(spent["TRL"] / spent["ours"], 8.0)
            claims["reference_times_padded"] = Claim(spent["padded"] / spent["ours"], 4.5)
            claims["reference_memory_trl"] = Claim(peak["TRL"] / peak["ours"], 4.0)
    claims["never_slower_than_padded"] = Claim(min(slowest), 1.0)
    report("forward and backward pass of one step", lines, claims, options)


if __name__ == "__main__":
    main()
