"""Frozen linear layers in oneDNN's blocked weight layout, for decoding on a CPU.

``nn.Linear`` goes through a general matrix product that repacks the weights at each call, which costs more than the
product itself if there are few rows: at the shape of Qwen2.5-0.5B in bfloat16 a step of 4 to 16 rows takes 1.3 to 1.5
times as long (``benchmarks/rollout.py``). ``torch.utils.mkldnn.to_mkldnn``, the public way, keeps the plain layout and
gains nothing, so the operators are used that torch.compile emits; where a build lacks them, nothing is packed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from llm_as_judge.policy.limits import SMALL_MODEL

#: Rows that the layout is chosen for.
_ROWS = 16


class PackedLinears:
    """Second copies of a model's frozen linear weights, made at their first use and kept.

    Models below ``SMALL_MODEL`` parameters and other devices than the CPU are left as they are.
    """

    def __init__(self, base: Any) -> None:
        self.wanted = (
            base.device.type == "cpu"
            and base.dtype in (torch.float32, torch.bfloat16)
            and base.num_parameters() > SMALL_MODEL
            and type(base.get_input_embeddings().weight.data) is Tensor  # not a fake one, which has only a shape
            and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
            and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        )
        # Chosen now, while adapters are trainable: switched off, they would look frozen, too.
        linears = base.modules() if self.wanted else ()
        self._linears = [  # no quantized ones
            m for m in linears if type(m) is torch.nn.Linear and not any(p.requires_grad for p in m.parameters())
        ]
        self._forward: dict[torch.nn.Linear, Callable[[Tensor], Tensor]] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Compute all frozen linear layers from their packed weights, without gradient."""
        if self.wanted and not self._forward:
            self._forward = {linear: _packed(linear) for linear in self._linears}
        for linear, forward in self._forward.items():
            linear.forward = forward  # type: ignore[assignment]
        try:
            yield
        finally:
            for linear in self._forward:
                del linear.forward  # the class's own again


def _packed(linear: torch.nn.Linear) -> Callable[[Tensor], Tensor]:
    weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)
    dtype, bias = linear.weight.dtype, None if linear.bias is None else linear.bias.detach()

    def forward(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(dtype), weight, bias, "none", [], "")
        return out

    return forward
