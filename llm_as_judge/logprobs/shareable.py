"""Whether a model's prefixes may be shared: one activation must be right for every sequence that has the prefix."""

from __future__ import annotations

from typing import Any


def why_not(config: Any, lora_dropout: float = 0.0, longest: int = 0) -> str:
    """The reason against it, or an empty string.

    ``config`` is a Hugging Face model configuration, ``longest`` the tokens of the longest sequence (a window that
    is wider cuts nothing).
    """
    name = getattr(config, "model_type", type(config).__name__)
    if lora_dropout:
        return (
            f"model.lora_dropout={lora_dropout} draws noise a sequence, but a shared prefix is forwarded once for many"
        )
    for key, value in sorted(vars(config).items()):
        if ("dropout" in key or key.endswith("pdrop")) and isinstance(value, float) and value:
            return f"{name} has {key}={value}: noise a sequence, but a shared prefix is forwarded once for many"
        if key.endswith("softcapping") and value:
            return f"{name} has {key}={value}, which attention over a tree does not compute"
    layers = set(getattr(config, "layer_types", None) or ("full_attention",))
    window = getattr(config, "sliding_window", None)
    if "sliding_attention" in layers and (window is None or longest > window):
        return f"{name} attends to a window of {window} tokens, sequences here have up to {longest}"
    if other := sorted(layers - {"full_attention", "sliding_attention"}):
        return f"{name} has {', '.join(other)} layers, whose state runs along one sequence only"
    if getattr(config, "layer_types", None) is None and window and longest > window:
        return f"{name} attends to a window of {window} tokens, sequences here have up to {longest}"
    if getattr(config, "output_router_logits", False):
        return f"{name} adds a balance loss over tokens (output_router_logits), which would count shared ones once"
    return ""
