"""Which causal LMs of the installed transformers are supported, found by trying: docs/reports/architectures.md.

    .venv/bin/python scripts/architectures.py            # writes the page's list, some minutes
    .venv/bin/python scripts/architectures.py qwen3 opt  # prints their rows

Every type is a small model with large random weights (small ones would hide a wrong mask), in its own process with a
time limit. Scoring padded rows, scoring over shared prefixes and sampling with the local engine are compared with the
model's own forward pass of each sequence; again with a window of ``WINDOW`` tokens if the configuration has one.

It cannot show that a published configuration of a type (other sizes, experts, rotary scaling) is right, hence the same
comparison at the start of every run.
"""

import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.exactness import check_exact, check_plain, plain_logprobs
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout
from llm_as_judge.types import Completion

BEGIN, END = "<!-- measured: architectures -->", "<!-- measured so far -->"
PAGE = Path(__file__).parents[1] / "docs/reports/architectures.md"
SECONDS = 30
VOCABULARY = 97
WINDOW = 8
WAYS = ("padded", "shared prefixes", "local engine")

#: Types that users train; tests/policy/test_architectures.py holds their rows against the page.
COMMON = (
    "cohere", "cohere2", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "gpt_oss", "granite", "granitemoe",
    "llama", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "starcoder2",
)  # fmt: skip

#: Small values for whichever of these a configuration has.
SMALL: Mapping[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "n_embd", "d_model", "dim", "n_embed", "embedding_size", "word_embed_proj_dim"), 32
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_hidden_size"), 64),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_head_kv"), 2),
    **dict.fromkeys(("head_dim", "global_head_dim", "kv_channels", "rotary_dim", "state_size", "mamba_d_state"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length"), 256),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk"), 2),
    **dict.fromkeys(("n_shared_experts", "n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("initializer_range", "init_std"), 0.2),
    **dict.fromkeys(("mamba_n_heads", "mamba_d_head"), 8),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "is_decoder": True,
}
#: Where the small values contradict one another, or the defaults would try nothing.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    **{key: {"logits_scaling": 8.0} for key in ("granite", "granitemoe", "granitemoeshared", "hyperclovax")},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gpt_neox": {"rotary_pct": 1.0},
    "phimoe": {"num_experts_per_tok": 2},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}


class Tokenizer:
    """Enough of one for an engine that never reads the text."""

    eos_token_id = 2
    all_special_tokens = ()

    def encode(self, text: str) -> list[int]:
        return [3 + ord(letter) % 64 for letter in text]

    def decode(self, token_ids: Iterable[int]) -> str:
        return " ".join(map(str, token_ids))


def small(kind: str, more: Mapping[str, Any]) -> Any:
    """A configuration of that type with sizes of a few dozen; ``more`` is for the text model."""
    config_class = CONFIG_MAPPING[kind]

    def values(config: Any) -> dict[str, Any]:
        known = set(vars(config)) | set(getattr(config, "attribute_map", {}))
        fixed = {n for n in dir(type(config)) if isinstance(getattr(type(config), n), property)}
        found = {name: value for name, value in SMALL.items() if name in known - fixed} | dict(more)
        if "kv_lora_rank" in known:  # latent attention has as many key heads as query heads
            found["num_key_value_heads"] = SMALL["num_attention_heads"]
        return found

    default = config_class()
    given = {**values(default), **SPECIAL.get(kind, {})}
    for name in config_class.sub_configs:
        if name == "text_config":
            part = getattr(default, name)
            given[name] = {**values(part), "model_type": part.model_type}
    return config_class(**given)


def sequences() -> list[Completion]:
    """Two prompts with a common beginning, three completions of each."""
    draw = torch.Generator().manual_seed(1)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, VOCABULARY - 8, (count,), generator=draw).tolist())

    common = ids(9)
    return [
        Completion("", prompt, tokens, (-1.0,) * len(tokens), "stop")
        for prompt in (common + ids(3), common + ids(5))
        for tokens in (ids(4), ids(7), ids(6))
    ]


def way_of(policy: Policy, way: str) -> str:
    """``right``, or why it is refused. Raises ``AssertionError`` where it is neither."""
    completions = sequences()
    try:
        if way == "local engine":
            engine = LocalEngine(policy, Tokenizer())
            prompts = [list(c.prompt_ids) for c in completions[::3]]
            found = [c for group in engine.generate(prompts, 2, max_new_tokens=8) for c in group]
            logprobs = [torch.tensor(c.logprobs) for c in found]
        else:
            check_plain(policy, completions)
            layout: Layout = "padded"
            if way == "shared prefixes":
                if reason := policy.why_no_tree(max(len(c.prompt_ids) + len(c.token_ids) for c in completions)):
                    raise ConfigError(reason)
                check_exact(policy, completions, Sampling())
                layout = "tree"
            found, logprobs = completions, [torch.empty(0)] * len(completions)
            with torch.no_grad():
                for part in policy.micro_batches(completions, Sampling(), layout, 10**6):
                    for i, row, mask in zip(part.members, part.scores.logprobs, part.scores.mask, strict=True):
                        logprobs[i] = row[mask]
    except ConfigError as error:
        return brief(str(error))
    policy.model.eval()
    with torch.no_grad():
        plain = [plain_logprobs(policy.base, c) for c in found]
    policy.model.train()
    worst = max(float((a - b).abs().max()) for a, b in zip(logprobs, plain, strict=True))
    assert worst < 1e-4, f"{way}: off by {worst:.1e} nats and not refused"
    return "right"


def ways(kind: str, more: Mapping[str, Any]) -> dict[str, str]:
    policy = Policy.from_config(small(kind, more), Tokenizer(), ModelConfig(device="cpu", lora_rank=4))
    draw = torch.Generator().manual_seed(5)
    for parameter in policy.trainable_parameters():
        parameter.data.normal_(0, 0.05, generator=draw)
    return {way: way_of(policy, way) for way in WAYS}


@dataclass(frozen=True)
class Row:
    """What becomes of a type: each way's outcome, and the same with a narrow window; or why there is no model."""

    kind: str
    ways: Mapping[str, str] = field(default_factory=dict)
    windowed: Mapping[str, str] = field(default_factory=dict)
    not_made: str = ""

    @property
    def right(self) -> bool:
        return set(self.ways.values()) == {"right"}

    def cells(self) -> list[str]:
        if self.not_made:
            return [f"`{self.kind}`", f"not tried: {self.not_made}", "", ""]
        return [f"`{self.kind}`", *(self.ways[way] for way in WAYS)]


def try_out(kind: str) -> Row:
    """Raises ``AssertionError`` where something is wrong and not refused."""
    try:
        found = Row(kind, ways(kind, {}))
        if hasattr(small(kind, {}).get_text_config(), "sliding_window"):
            return replace(found, windowed=ways(kind, {"sliding_window": WINDOW}))
        return found
    except AssertionError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[-1].strip()
        return Row(kind, not_made=f"{type(error).__name__}: {first[:90]}")


def apart(kind: str) -> Row:
    """``try_out`` in a process of its own, with the time limit."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        signal.alarm(SECONDS)
        try:
            text = json.dumps(asdict(try_out(kind)))
        except AssertionError as error:
            text = json.dumps({"kind": kind, "ways": dict.fromkeys(WAYS, f"**WRONG**: {error}")})
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return Row(**json.loads(answer)) if answer else Row(kind, not_made=f"no answer within {SECONDS} s")


def brief(reason: str) -> str:
    """A refusal without the figures of these random models."""
    if "which has no shared prefixes" in reason:
        return "refused: its attention cannot be exchanged"
    if "layers, not full attention" in reason:
        return "refused: " + reason.partition(" has ")[2].partition(" layers")[0] + " layers"
    if "softcapping" in reason:
        return "refused: caps its attention scores"
    if "window of" in reason:
        return "refused: cut by its window"
    if error := re.search(r"\((\w+): ", reason):
        return f"refused at the start: {error[1]}"
    return "refused at the start: off its own forward pass"


def page(rows: Sequence[Row]) -> str:
    """The generated part: one list of what is right all ways, one table of the rest."""
    made = [row for row in rows if not row.not_made]
    right = [row.kind for row in made if row.right]
    windows = [row.kind for row in made if "refused: cut by its window" in row.windowed.values()]
    other = [row.cells() for row in made if not row.right]
    lines = [
        f"transformers {transformers.__version__}: {len(rows)} types, {len(right)} right in all three ways, "
        f"{len(other)} right in some or refused, {len(rows) - len(made)} not tried.",
        "",
        "Right in all three ways: " + ", ".join(f"`{kind}`" for kind in right) + ".",
        "",
        "Of these and the following, refused for shared prefixes and the local engine where a sequence is longer than "
        "the window: " + ", ".join(f"`{kind}`" for kind in windows) + ".",
        "",
        "| type | " + " | ".join(WAYS) + " |",
        "|---|---|---|---|",
        *("| " + " | ".join(cells) + " |" for cells in other),
        "",
        "Not tried:",
        "",
        *(f"- `{row.kind}`: {row.not_made}" for row in rows if row.not_made),
    ]
    return "\n".join(lines)


def main(kinds: Sequence[str]) -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    rows = []
    for kind in kinds or MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        rows.append(apart(kind))
        print(" | ".join(rows[-1].cells()), dict(rows[-1].windowed) or "", flush=True)
    if not kinds:
        text = PAGE.read_text()
        PAGE.write_text(text[: text.index(BEGIN) + len(BEGIN)] + "\n" + page(rows) + "\n" + text[text.index(END) :])


if __name__ == "__main__":
    main(sys.argv[1:])
