"""Text vectors: a causal language model's own hidden states, or any sentence-transformers model.

Hidden states (mean over tokens of the last layer, unit length) need no second model. Similarity only ranks examples.
Pass the model without its adapter, so that vectors stored early in training stay comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from llm_as_judge.errors import ConfigError


class TextEmbedder(Protocol):
    """Unit vectors [N, dimensions] of texts; the policy is one."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class HiddenStateEmbedder:
    """``embed`` maps texts, cut to their last ``max_length`` tokens, to float32 unit vectors [N, hidden]."""

    def __init__(self, model: Any, tokenizer: Any, *, max_length: int = 512, batch_size: int = 32) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._batch_size = batch_size

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        was_training = self._model.training
        self._model.eval()
        try:
            batches = [self._embed(texts[i : i + self._batch_size]) for i in range(0, len(texts), self._batch_size)]
        finally:
            self._model.train(was_training)
        if not batches:
            return np.zeros((0, self._model.config.hidden_size), np.float32)
        return np.concatenate(batches)

    @torch.inference_mode()
    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        # An empty text still needs a token; 0 stands for it.
        encoded = [self._tokenizer.encode(t, add_special_tokens=False)[-self._max_length :] or [0] for t in texts]
        longest = max(len(ids) for ids in encoded)
        device = self._model.device
        ids = torch.zeros(len(encoded), longest, dtype=torch.long)
        mask = torch.zeros(len(encoded), longest)
        for row, tokens in enumerate(encoded):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        # Right padding under a causal mask: real tokens never see it, so no attention mask is needed.
        hidden = self._model.get_decoder()(input_ids=ids.to(device), use_cache=False).last_hidden_state.float()
        weight = mask.to(device)[..., None]
        mean = (hidden * weight).sum(1) / weight.sum(1)
        vectors: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
        return vectors


class SentenceEmbedder:
    """``embed`` by the sentence-transformers model ``name`` (hub id or folder): float32 unit vectors [N, dimensions].

    Raises ``ConfigError`` if the library or the model is missing.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ConfigError(
                f"experience_buffer.embedder={name!r} needs sentence-transformers: pip install sentence-transformers, "
                "or set experience_buffer.embedder=policy"
            ) from error
        try:
            self._model = SentenceTransformer(name, device=device)
        except (OSError, ValueError) as error:
            raise ConfigError(f"experience_buffer.embedder={name!r} cannot be loaded: {error}") from error

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = self._model.encode(list(texts), normalize_embeddings=True, convert_to_numpy=True)
        return np.asarray(vectors, dtype=np.float32)
