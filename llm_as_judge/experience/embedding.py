"""Text vectors: a causal language model's own hidden states (mean over tokens of the last layer, unit length).

They need no second model. Similarity only ranks examples.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_MAX_LENGTH = 512  # last tokens of a text


@torch.inference_mode()
def embed(model: Any, tokenizer: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors [N, hidden] of ``texts``, cut to their last ``_MAX_LENGTH`` tokens.

    Pass the model without its adapter, so that vectors stored early in training stay comparable. Texts are forwarded
    one at a time: in a batch, padding changes the last bits, and a resumed run would form other batches.
    """
    was_training = model.training
    model.eval()
    try:
        vectors = [_embed(model, tokenizer, text) for text in texts]
    finally:
        model.train(was_training)
    return np.stack(vectors) if vectors else np.zeros((0, model.config.hidden_size), np.float32)


def _embed(model: Any, tokenizer: Any, text: str) -> NDArray[np.float32]:
    # An empty text still needs a token; 0 stands for it.
    ids = tokenizer.encode(text, add_special_tokens=False)[-_MAX_LENGTH:] or [0]
    row = torch.tensor([ids], device=model.device)
    hidden = model.get_decoder()(input_ids=row, use_cache=False).last_hidden_state[0].float()
    vector: NDArray[np.float32] = torch.nn.functional.normalize(hidden.mean(0), dim=-1).cpu().numpy()
    return vector
