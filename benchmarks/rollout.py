"""Greedy generation of 4 x 6 sequences: the local engine, Hugging Face ``generate``, and a vLLM server where one is.

Same weights, same prompts (1,500 tokens common to all, 300 a problem), same tokens out; the model's weights are
random, so nothing ends early. CPU seconds against ``generate``; against a server, which has processes of its own,
seconds on the clock. For that side, save the model, serve it, and give the address:

    python benchmarks/rollout.py --save DIR
    VLLM_CPU_KVCACHE_SPACE=1 python -m vllm.entrypoints.openai.api_server --model DIR --served-model-name bench \
        --dtype float32 --max-model-len 4096 --enforce-eager --port 8102
    python benchmarks/rollout.py --server http://127.0.0.1:8102 [--tokens 64 225] [--device cuda:0] [--json]

On a CPU it also decodes 4 and 16 rows with random weights of Qwen2.5-0.5B's shape, once from weights in oneDNN's layout
(``policy/packed.py``) and once by ``nn.Linear``, in the precision that ``model.dtype: auto`` takes here.
"""

import shutil
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

import torch
from measure import Claim, command_line, median_seconds, report, seconds
from transformers import AutoModelForCausalLM, Qwen2Config
from update import ROOT, random_policy

from llm_as_judge.config.endpoints import EngineConfig
from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.packed import PackedLinears
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.policy.weights import load_tokenizer

GROUP = 6
GOALS = {64: 9.0, 225: 4.0}
Tokens = list[list[int]]


def prompts() -> Tokens:
    draw = Random(0)
    system = [draw.randrange(4, 4096) for _ in range(1500)]
    return [system + [draw.randrange(4, 4096) for _ in range(300)] for _ in range(4)]


def with_engine(engine: LocalEngine | VLLMEngine, ids: Tokens, tokens: int) -> Tokens:
    """Sample with the engine; a server is asked for every copy, as of one greedy request it makes one sequence."""
    if isinstance(engine, LocalEngine):
        groups = engine.generate(ids, GROUP, sampling=Sampling(0), max_new_tokens=tokens)
    else:
        groups = engine.generate([p for p in ids for _ in range(GROUP)], sampling=Sampling(0), max_new_tokens=tokens)
    return [list(c.token_ids) for g in groups for c in g]


@torch.inference_mode()
def with_generate(policy: Policy, ids: Tokens, tokens: int) -> Tokens:
    """Sample greedily, so the group is made of copies: ``num_return_sequences`` is for sampling."""
    policy.model.eval()
    rows = torch.tensor([p for p in ids for _ in range(GROUP)], device=policy.device)
    with policy.generation_weights() as base:
        out = base.generate(
            rows, attention_mask=torch.ones_like(rows), do_sample=False, max_new_tokens=tokens, eos_token_id=None
        )
    found: Tokens = out[:, len(ids[0]) :].tolist()
    return found


def decoding_layout(rows: int, rounds: int) -> dict[str, float]:
    """Measure CPU seconds of 16 tokens of ``rows`` sequences, after a prefill that is not counted."""
    shape = Qwen2Config(
        hidden_size=896, num_hidden_layers=24, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=151_936, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    tokenizer = load_tokenizer(str(ROOT / "llm_as_judge/embedded/weights/policy"))
    config = ModelConfig(device="cpu", dtype="auto", lora_rank=8, lora_alpha=16)
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(shape)  # type: ignore[no-untyped-call]
    policy = Policy(base, tokenizer, config)
    packed, plain = policy.packed, PackedLinears(policy.base)
    plain.wanted = False
    engine, ids = LocalEngine(policy, tokenizer), [[5 + i for i in range(20)]]

    def decode(layout: PackedLinears, tokens: int) -> float:
        policy.packed = layout
        begun = time.process_time()
        engine.generate(ids, rows, sampling=Sampling(0), max_new_tokens=tokens)
        return time.process_time() - begun

    spent = {"laid out": list[float](), "nn.Linear": list[float]()}
    for _ in range(rounds + 1):  # the first is not counted
        for name, layout in (("laid out", packed), ("nn.Linear", plain)):
            spent[name].append(decode(layout, 17) - decode(layout, 1))
    return {name: median(times[1:]) for name, times in spent.items()} | {"float32": policy.base.dtype == torch.float32}


def save(policy: Policy, directory: Path) -> None:
    """Save the base model without adapter, and a tokenizer, as a server wants them."""
    policy.model.unload().save_pretrained(directory)
    for file in (ROOT / "llm_as_judge/embedded/weights/policy").glob("token*"):
        shutil.copy(file, directory)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, nargs="*", default=[64, 225])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--server", help="address of a vLLM server with the saved model")
    parser.add_argument("--save", type=Path, help="save the model there and stop")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    policy = random_policy(options.device)
    for parameter in policy.trainable_parameters:
        parameter.data.zero_()  # a server has the base model only
    if options.save:
        save(policy, options.save)
        return
    # An id that is never sampled greedily ends nothing.
    policy.tokenizer.eos_token_id = policy.base.generation_config.eos_token_id = 1
    ids, local = prompts(), LocalEngine(policy, policy.tokenizer)
    lines: dict[str, str] = {}
    claims: dict[str, Claim] = {}
    for tokens in options.tokens:
        ours, theirs = with_engine(local, ids, tokens), with_generate(policy, ids, tokens)
        equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
        lines[f"{tokens} tokens: sequences equal to generate's"] = f"{equal} of {len(ours)}"
        spent = median_seconds(
            {
                "local": lambda: with_engine(local, ids, tokens),  # noqa: B023
                "generate": lambda: with_generate(policy, ids, tokens),  # noqa: B023
            },
            options.rounds,
            warm=False,
            clock=partial(seconds, options.device),
        )
        lines[f"{tokens} tokens: local engine and generate, seconds"] = ", ".join(
            f"{s} {t:.2f}" for s, t in spent.items()
        )
        claims[f"times_generate_{tokens}"] = Claim(spent["generate"] / spent["local"], GOALS.get(tokens, 1.0))
        if options.server:
            with tempfile.TemporaryDirectory() as empty:
                server = VLLMEngine(EngineConfig(base_url=options.server), "bench", Path(empty), policy.tokenizer)
                served = with_engine(server, ids, tokens)  # unmeasured: fills the server's prefix cache, too
                equal = sum(a == b for a, b in zip(ours, served, strict=True))
                clock = median_seconds(
                    {
                        "local": lambda: with_engine(local, ids, tokens),  # noqa: B023
                        "vLLM": lambda: with_engine(server, ids, tokens),  # noqa: B023
                    },
                    options.rounds,
                    warm=False,
                    clock=time.perf_counter,
                )
            lines[f"{tokens} tokens: sequences equal to vLLM's"] = f"{equal} of {len(ours)}"
            lines[f"{tokens} tokens: seconds"] = ", ".join(f"{s} {t:.2f}" for s, t in clock.items())
            claims[f"times_vllm_{tokens}"] = Claim(clock["vLLM"] / clock["local"], 1.0)
    for rows in (4, 16) if options.device == "cpu" else ():
        spent = decoding_layout(rows, options.rounds)
        precision = "float32" if spent.pop("float32") else "bfloat16"
        lines[f"0.5B, {precision}, {rows} rows, 16 tokens, CPU seconds"] = ", ".join(
            f"{s} {t:.2f}" for s, t in spent.items()
        )
        claims[f"0.5B, {rows} rows: times nn.Linear"] = Claim(spent["nn.Linear"] / spent["laid out"], 1.3)
    report("greedy generation, 24 sequences", lines, claims, options)


if __name__ == "__main__":
    main()
