"""An update and an evaluation at the shape of Qwen2.5-7B: seconds, and peak memory relative to what ``plan`` predicts.

The weights are random, so nothing is downloaded. On a CPU the nano policy takes the model's place, without memory.

    python benchmarks/gpu.py [--device cuda:0] [--json]
"""

import os
from dataclasses import asdict
from functools import partial

import torch
from measure import Claim, command_line, peak_bytes, report, seconds
from transformers import AutoModelForCausalLM, Qwen2Config
from update import ROOT, Workload

from llm_as_judge.assembly.estimates import GB, sampling_memory, sizes_of, update_memory
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.config.loading import load_config
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout
from llm_as_judge.policy.tree import padded_tokens, plan
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.types import Completion

CONFIG = load_config(ROOT / "config/training.yaml", ["model_name=qwen25-7b", "judge.mode=rules"])
SHAPE = sizes_of(CONFIG)
BUDGET = CONFIG.training.micro_batch_tokens
NEW_TOKENS = 64
#: Share by which a peak may exceed the plan.
ROOM = 1.1


def large_policy(device: str) -> Policy:
    """Make Qwen2.5-7B with random weights on the GPU."""
    architecture = Qwen2Config(
        hidden_size=SHAPE.hidden, intermediate_size=SHAPE.intermediate, num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads, num_key_value_heads=SHAPE.kv_heads, vocab_size=SHAPE.vocabulary,
        tie_word_embeddings=SHAPE.tied, max_position_embeddings=32768, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    with torch.device(device):
        base = AutoModelForCausalLM.from_config(architecture, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    tokenizer = load_tokenizer(str(ROOT / "llm_as_judge/embedded/weights/policy"))
    return Policy(base, tokenizer, CONFIG.model.model_copy(update={"device": device}))


def update(policy: Policy, completions: list[Completion], layout: Layout) -> None:
    optimizer = torch.optim.AdamW(policy.trainable_parameters, lr=0.0)
    for _, scores in policy.micro_batches(completions, Sampling(), layout, BUDGET):
        (scores.logprobs * scores.mask).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    device, large = options.device, options.device.startswith("cuda")
    clock, lines, claims = partial(seconds, device), dict[str, str](), dict[str, Claim]()
    if large:
        torch.cuda.set_device(device)
        policy, work, prompts = large_policy(device), Workload(4, 6, 2200, 1500, 400, 1000), 64
    else:
        torch.set_num_threads(1)
        policy = load_author(load_config(ROOT / "config/embedded.yaml")).policy
        work, prompts = Workload(2, 3, 300, 50, 40, 90), 8
    vocabulary = policy.base.config.vocab_size
    completions = work.completions(min(vocabulary, 1000))

    spent = {}
    layouts: tuple[Layout, Layout] = ("padded", "tree")
    for layout in layouts:
        update(policy, completions, layout)  # compiles
        if large:
            torch.cuda.reset_peak_memory_stats(device)
        begun = clock()
        update(policy, completions, layout)
        spent[layout] = clock() - begun
    ids, tokens = [c.prompt_ids for c in completions], [c.token_ids for c in completions]
    tree = plan(ids, tokens)
    lines["update: tokens"] = f"{padded_tokens(ids, tokens):,} padded, {tree.unique_tokens:,} shared"
    lines["update: seconds"] = f"{spent['padded']:.2f} padded, {spent['tree']:.2f} shared"
    model, forwarded = CONFIG.model, min(tree.unique_tokens, BUDGET)
    scored = tree.edge.numel() * forwarded / tree.unique_tokens
    memory = update_memory(SHAPE, model, "bfloat16", forwarded, scored)
    resting = memory.weights + memory.adapter

    def compare(name: str, planned: float) -> None:
        if large:
            lines[f"{name}: GB"] = f"{peak_bytes(device) / GB:.2f}, planned {planned / GB:.2f}"
            claims[f"{name}_memory_of_plan"] = Claim(peak_bytes(device) / planned, ROOM, at_most=True)

    compare("update", sum(asdict(memory).values()))
    engine = LocalEngine(policy, policy.tokenizer)
    group = [c.prompt_ids for c in completions[:: work.group]]
    long = [
        c.prompt_ids for c in Workload(prompts, 1, work.system, 2 * work.own, 1, 1).completions(min(vocabulary, 1000))
    ]
    for name, asked, n in (("sampling", group, work.group), ("evaluation", long, 1)):
        if large:
            torch.cuda.reset_peak_memory_stats(device)
        begun = clock()
        groups = engine.generate(asked, n, max_new_tokens=NEW_TOKENS)
        taken, written = clock() - begun, sum(len(c.token_ids) for g in groups for c in g)
        lines[f"{name}: seconds"] = f"{taken:.2f} for {len(asked)} prompts x {n}, {written / taken:.0f} tokens a second"
        longest = max(map(len, asked))
        planned = sampling_memory(SHAPE, "bfloat16", len(asked), n, work.system, longest, NEW_TOKENS)
        compare(name, resting + planned)
    report("Qwen2.5-7B's shape" if large else "the nano policy", lines, claims, options)


if __name__ == "__main__":
    main()
