"""Precision of forward passes, logits of hidden states, and decoding steps that are captured on a GPU."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast


def own_precision(base: Any) -> AbstractContextManager[Any]:
    """Run adapter layers in the precision of the base model; no effect if that is float32 or wider.

    Adapters are trained in float32 on a base of lower precision. Computing their products in float32 would be slow, so
    the adapter is rounded for the forward pass, as an engine that serves it does.
    """
    low = base.dtype in (torch.bfloat16, torch.float16)
    return torch.autocast(base.device.type, dtype=base.dtype) if low else nullcontext()


class _Hidden(BaseModelOutputWithPast):
    """Decoder output with hidden states only; any other attribute (a router's logits, say) is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def logits_of(base: Any, hidden: Tensor) -> Tensor:
    """Compute logits [N, V] of the decoder's last hidden states [N, H], for one thread at a time.

    Between decoder and logits a model may scale (Granite, Cohere), cap (Gemma) or project. So the model's own forward
    pass runs, with its decoder returning ``hidden``. Raises ``ValueError`` for a model without a separate decoder.
    """
    decoder = base.get_decoder()
    if decoder is base:
        raise ValueError(f"{type(base).__name__} has no decoder of its own below its head")
    own = vars(decoder).get("forward")
    decoder.forward = lambda *args, **kwargs: _Hidden(last_hidden_state=hidden[None])
    try:
        ids = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
        with own_precision(base):  # the head may have an adapter
            logits: Tensor = base(input_ids=ids, use_cache=False).logits
    finally:
        if own is None:
            del decoder.forward
        else:
            decoder.forward = own
    return logits[0]


def next_logits(base: Any, store: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """Compute logits [R, V] after one more token in each row of a cache, of ``ids`` and ``positions`` [R]."""
    step = {"input_ids": ids[:, None], "position_ids": positions[:, None], "use_cache": False, "store": store}
    return logits_of(base, base.get_decoder()(**step).last_hidden_state[:, 0])


def replayable(step: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Capture ``step`` as a graph on a CUDA device: a call repeats its hundreds of small kernels, on the same memory,
    for one launch. Started one by one from Python they take many times as long as they compute.

    ``step`` may read and write only tensors that outlive the result, must do the same when it is repeated at once, and
    must not wait for the device.
    """
    if device.type != "cuda":
        return step
    current, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        step()  # libraries choose their kernels and take memory, which a capture forbids
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = step()

    def replay() -> Tensor:
        graph.replay()
        return result.clone()  # the next call writes to the same memory

    return replay
