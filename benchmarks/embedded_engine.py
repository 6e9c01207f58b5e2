"""Speed of the nano executor's engine relative to ``transformers``: same weights and prompts, greedy, one thread.

python benchmarks/embedded_engine.py [--rounds 3] [--json]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts/nano"))

import torch
from measure import Claim, command_line, median_seconds, report
from nano_tokenizer import END_ID, PAD_ID, chat_ids
from skills import cases, generate
from tokenizers import Tokenizer
from transformers import Lfm2ForCausalLM

from llm_as_judge.embedded.engine import NanoEngine, NanoRequest
from llm_as_judge.embedded.server import EXECUTOR

LONGEST = 100  # tokens per reply


def prompts(count: int) -> list[list[int]]:
    """Return operator prompts, from all skills in turn."""
    tokenizer = Tokenizer.from_file(str(EXECUTOR / "tokenizer.json"))
    skills = cases(count)
    turns = (members[i : i + 1] for i in range(count) for members in skills.values())
    return [chat_ids(tokenizer, prompt) for turn in turns for prompt, *_ in turn][:count]


def with_engine(engine: NanoEngine, ids: list[list[int]]) -> list[list[int]]:
    requests = [NanoRequest(p, LONGEST) for p in ids]
    generate(engine, requests)
    return [r.output for r in requests]


@torch.inference_mode()
def with_transformers(model: Lfm2ForCausalLM, ids: list[list[int]], size: int) -> list[list[int]]:
    """Return padded batches of prompts of like length, the efficient way to use ``generate``."""
    found: dict[int, list[int]] = {}
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    for at in range(0, len(order), size):
        members = order[at : at + size]
        longest = max(len(ids[i]) for i in members)
        padded = torch.tensor([[PAD_ID] * (longest - len(ids[i])) + ids[i] for i in members])
        mask = torch.tensor([[0] * (longest - len(ids[i])) + [1] * len(ids[i]) for i in members])
        out = model.generate(  # type: ignore[operator]
            input_ids=padded, attention_mask=mask, do_sample=False, max_new_tokens=LONGEST, pad_token_id=PAD_ID
        )
        for i, row in zip(members, out[:, longest:].tolist(), strict=True):
            found[i] = row[: row.index(END_ID)] if END_ID in row else row
    return [found[i] for i in range(len(ids))]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = Lfm2ForCausalLM.from_pretrained(EXECUTOR, dtype=torch.float32).eval()
    rows: dict[str, str] = {}
    claims: dict[str, Claim] = {}
    for size, count in ((1, 8), (48, 96)):
        ids, engine = prompts(count), NanoEngine(EXECUTOR, slots=size)
        replies = with_engine(engine, ids), with_transformers(model, ids, size)
        same = sum(a == b for a, b in zip(*replies, strict=True))
        spent = median_seconds(
            {"engine": lambda: with_engine(engine, ids), "transformers": lambda: with_transformers(model, ids, size)},  # noqa: B023
            options.rounds,
        )
        tokens = sum(len(r) + 1 for r in replies[0])
        rows[f"batch {size}: replies equal"] = f"{same} of {count}"
        for name, seconds in spent.items():
            rows[f"batch {size}: {name}"] = f"{tokens / seconds:.0f} tokens per CPU second"
        claims[f"speedup_batch_{size}"] = Claim(spent["transformers"] / spent["engine"], 1.5)
    report("nano executor, greedy replies to operator prompts", rows, claims, options)


if __name__ == "__main__":
    main()
