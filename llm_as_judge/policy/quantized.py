"""A frozen base model in 4 or 8 bits under the LoRA (QLoRA, Dettmers et al., arXiv 2305.14314), by bitsandbytes.

Only the decoder's linear layers are quantized; embedding, head and norms keep the model's own precision.
"""

import importlib
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from llm_as_judge.errors import ConfigError, refusing

Quantization = Literal["none", "nf4", "int8"]
_WEIGHTS = "adapter_model.safetensors"
_KEY = "quantization"


def loading_options(kind: Quantization, device: str, dtype: Any) -> dict[str, Any]:
    """Return options of ``from_pretrained`` that quantize at loading. Raises ``ConfigError`` if this machine cannot."""
    from transformers import BitsAndBytesConfig

    cure = "install it: python -m pip install 'llm-as-judge[quantized]'"
    with refusing(ConfigError, f"model.quantization={kind} needs the package bitsandbytes", cure):
        importlib.import_module("bitsandbytes")
    if device == "mps":
        raise ConfigError(f"model.quantization={kind} works on cuda and cpu, not on model.device={device}")
    if kind == "nf4":
        quantized = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
        )
    else:
        # A threshold would choose columns over the whole batch, so that a row's result depended on its neighbours.
        quantized = BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)  # type: ignore[no-untyped-call]
    return {"quantization_config": quantized, "device_map": {"": device}}


def quantization_of(base: Any) -> Quantization:
    """Tell how the weights of ``base`` are kept."""
    if getattr(base, "is_loaded_in_4bit", False):
        return "nf4"
    return "int8" if getattr(base, "is_loaded_in_8bit", False) else "none"


def fix_kernels(base: Any) -> None:
    """Make sampling and update compute the same on a CPU, where bitsandbytes has other kernels in evaluation mode.

    That of 4 bits has no gradient and converts the weights for good, that of 8 bits rounds the activations, too.
    """
    for module in base.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
        elif type(module).__name__ == "Linear8bitLt" and base.device.type == "cpu":
            module.training = True
            module.train = lambda mode=True, own=module: own


def record_quantization(adapter: Path, kind: Quantization) -> None:
    """Note in the header of a saved adapter what its base was."""
    file = adapter / _WEIGHTS
    save_file(load_file(file), file, {"format": "pt", _KEY: kind})


def recorded_quantization(adapter: Path) -> str:
    """Tell how the base of a saved adapter was kept in training; ``none`` if the adapter does not say."""
    if not (adapter / _WEIGHTS).is_file():
        return "none"
    with safe_open(adapter / _WEIGHTS, "pt") as file:
        return str((file.metadata() or {}).get(_KEY, "none"))
