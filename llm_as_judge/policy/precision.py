"""The precision that a forward pass is computed in: the base model's, whatever its adapter is kept in.

Adapters are trained in float32 on a base of lower precision. Were their products computed so too, every layer would
widen its input and multiply slowly; mixed precision rounds the (small) adapter instead, as an engine that serves it in
the base's precision does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft.tuners.lora import LoraLayer


@contextmanager
def own_precision(base: Any) -> Iterator[None]:
    """Adapter layers inside ``base`` compute in its precision; no change where that is float32 or wider."""
    if base.dtype not in (torch.bfloat16, torch.float16):
        yield
        return
    layers: list[Any] = [module for module in base.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer.cast_input_dtype_enabled = False  # autocast rounds the weights; PEFT would widen the inputs
    try:
        with torch.autocast(base.device.type, dtype=base.dtype):
            yield
    finally:
        for layer in layers:
            layer.cast_input_dtype_enabled = True
