"""From hidden states to logits, by the causal LM's own forward.

Between its decoder and its logits a model may scale (Granite, Cohere), cap (Gemma) or project them. None of that is
known here: the model's own forward is run, on a copy of its shell in which the decoder is a stand-in that returns the
hidden states given. No weight is copied, and the model itself is not touched.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast


class Head:
    """Logits of hidden states. For one thread at a time; weights that are changed in place are seen."""

    def __init__(self, base: Any) -> None:
        """Raises ``ValueError`` where ``base`` is its own decoder."""
        decoder = base.get_decoder()
        path = next(name for name, module in base.named_modules() if module is decoder)
        if not path:
            raise ValueError(f"{type(base).__name__} has no decoder of its own below its head")
        self._stand_in = _StandIn(decoder)
        self._shell: Any = _replaced(base, path, self._stand_in)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits [N, V] of the decoder's last hidden states [N, H]."""
        self._stand_in.hidden = hidden[None]
        ids = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
        try:
            logits: Tensor = self._shell(input_ids=ids, use_cache=False).logits
        finally:
            self._stand_in.hidden = None
        return logits[0]


class _Output(BaseModelOutputWithPast):
    """A decoder's output; whatever else a forward passes on (a router's logits, say) is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _StandIn(nn.Module):
    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.hidden: Tensor | None = None
        self._decoder = (decoder,)  # in a tuple it is no submodule

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _Output(last_hidden_state=self.hidden)

    def __getattr__(self, name: str) -> Any:
        """What else the model asks of its decoder (embeddings, say) is the decoder's."""
        return super().__getattr__(name) if name == "_decoder" else getattr(self._decoder[0], name)


def _replaced(module: nn.Module, path: str, stand_in: nn.Module) -> nn.Module:
    """A copy of ``module`` that shares all but the module at ``path``."""
    name, _, rest = path.partition(".")
    clone = copy.copy(module)
    clone.__dict__.pop("forward", None)  # one that was set on the instance is bound to the original
    child: Any = module._modules[name]
    clone._modules = {**module._modules, name: _replaced(child, rest, stand_in) if rest else stand_in}
    return clone
