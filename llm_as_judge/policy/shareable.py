"""Model types whose attention is also computed here, and the conditions under which prefixes may be shared.

One activation must be right for every sequence with that prefix: attention to all earlier tokens, positions encoded
independently of the sequence's length, and no noise. Functions take ``config``, the Hugging Face configuration of a
text model, and ``longest``, the number of tokens in the longest sequence. They return a reason, empty if sharing works.
"""

from typing import Any

#: Compared with their own forward pass by ``tests/policy/test_model_types.py``. Other types are trained in padded rows
#: and sampled by vLLM, which compute attention in the model's own way.
TESTED = frozenset((
    "cohere", "cohere2", "gemma", "gemma3_text", "gpt2", "granite", "granitemoe", "llama", "mistral", "mixtral",
    "olmo2", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "starcoder2",
))  # fmt: skip

#: Rotary position embeddings whose angles depend on the position only.
_FIXED_ROPES = frozenset(("default", "linear", "yarn", "llama3", "proportional"))
#: Those that use other angles for all positions once a sequence exceeds the original context length.
_SWITCHING_ROPES = frozenset(("dynamic", "longrope"))


def why_not_positions(config: Any, longest: int) -> str:
    """Say why the position of a token is not encoded independently of the sequence's length."""
    parameters = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [p for p in parameters.values() if isinstance(p, dict)]
    for rope in by_layer_type or [parameters]:
        kind = rope.get("rope_type", "default")
        if kind in _FIXED_ROPES:
            continue
        name = f"{config.model_type} has rope_type {kind!r}, which"
        if kind not in _SWITCHING_ROPES:
            return f"{name} is not supported"
        own = rope.get("original_max_position_embeddings")
        switch = own or getattr(config, "original_max_position_embeddings", None) or config.max_position_embeddings
        if longest > switch:
            fault = f"encodes all positions differently beyond {switch} tokens"
            return f"{name} {fault}, sequences here have up to {longest}"
    return ""


def why_not_attention(config: Any, longest: int) -> str:
    """Say why the model does not compute plain full attention. A window wider than the sequences has no effect."""
    name, layers = config.model_type, getattr(config, "layer_types", None)
    if name not in TESTED:
        return f"{name} is not one of the model types whose attention is computed here: {', '.join(sorted(TESTED))}"
    window = getattr(config, "sliding_window", None)
    if window and longest > window and (not layers or "sliding_attention" in layers):  # without a list, all slide
        return f"{name} attends to a window of {window} tokens, sequences here have up to {longest}"
    return why_not_positions(config, longest)


def why_not(config: Any, lora_dropout: float = 0.0, longest: int = 0) -> str:
    """Say why prefixes cannot be shared in training."""
    if lora_dropout:
        return f"model.lora_dropout={lora_dropout} draws new noise for every sequence, so prefixes cannot be shared"
    if getattr(config, "output_router_logits", False):
        return (
            f"{config.model_type} adds a load-balancing loss over tokens (output_router_logits), which would count "
            "shared tokens once"
        )
    return why_not_attention(config, longest)
