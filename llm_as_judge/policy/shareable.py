"""Whether a model's prefixes may be shared: one activation must be right for every sequence that has the prefix."""

from __future__ import annotations

from typing import Any


def window_of(config: Any) -> int | None:
    """Tokens that the narrowest layers attend to, or None where all attend to all."""
    layers = set(getattr(config, "layer_types", None) or ("sliding_attention",))  # without a list, all layers slide
    window = getattr(config, "sliding_window", None) if "sliding_attention" in layers else None
    return int(window) if window else None


def why_not_attention(config: Any, longest: int) -> str:
    """Why plain full attention is not what the model computes in sequences of up to ``longest`` tokens, or an empty
    string.

    ``config`` is the Hugging Face configuration of a text model. A window that is wider cuts nothing.
    """
    name = config.model_type
    if other := sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}):
        return f"{name} has {', '.join(other)} layers, not full attention"
    window = window_of(config)
    if window is not None and longest > window:
        return f"{name} attends to a window of {window} tokens, sequences here have up to {longest}"
    if cap := getattr(config, "attn_logit_softcapping", None):
        return f"{name} has attn_logit_softcapping={cap}, which attention to shared prefixes does not compute"
    return ""


def why_not(config: Any, lora_dropout: float = 0.0, longest: int = 0) -> str:
    """The reason against it, or an empty string; arguments as above."""
    if lora_dropout:
        return (
            f"model.lora_dropout={lora_dropout} draws noise a sequence, but a shared prefix is forwarded once for many"
        )
    if getattr(config, "output_router_logits", False):
        return (
            f"{config.model_type} adds a balance loss over tokens (output_router_logits), which would count shared "
            "ones once"
        )
    return why_not_attention(config, longest)
