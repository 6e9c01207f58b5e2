"""Text vectors: a causal language model's own hidden states (mean over tokens of the last layer, unit length).

They need no second model. Similarity only ranks examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_MAX_LENGTH = 512  # last tokens of a text
_BATCH = 32


@torch.inference_mode()
def embed(model: Any, tokenizer: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors [N, hidden] of ``texts``, cut to their last ``_MAX_LENGTH`` tokens.

    Pass the model without its adapter, so that vectors stored early in training stay comparable.
    """
    was_training = model.training
    model.eval()
    try:
        batches = [_embed(model, tokenizer, texts[i : i + _BATCH]) for i in range(0, len(texts), _BATCH)]
    finally:
        model.train(was_training)
    return np.concatenate(batches) if batches else np.zeros((0, model.config.hidden_size), np.float32)


def _embed(model: Any, tokenizer: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    # An empty text still needs a token; 0 stands for it.
    encoded = [tokenizer.encode(t, add_special_tokens=False)[-_MAX_LENGTH:] or [0] for t in texts]
    ids = torch.zeros(len(encoded), max(map(len, encoded)), dtype=torch.long)
    mask = torch.zeros(ids.shape)
    for row, tokens in enumerate(encoded):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
    # Right padding under a causal mask: real tokens never see it, so no attention mask is needed.
    hidden = model.get_decoder()(input_ids=ids.to(model.device), use_cache=False).last_hidden_state.float()
    weight = mask.to(model.device)[..., None]
    mean = (hidden * weight).sum(1) / weight.sum(1)
    vectors: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
    return vectors
