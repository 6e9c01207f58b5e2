"""The text of sampled ids, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def text_of(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """The decoded ids without special tokens at either end; within, they stay as the policy's own doing."""
    text = str(tokenizer.decode(list(token_ids))).strip()
    special = [t for t in getattr(tokenizer, "all_special_tokens", ()) if t]
    while ends := [t for t in special if text.startswith(t) or text.endswith(t)]:
        text = text.removeprefix(ends[0]).removesuffix(ends[0]).strip()
    return text
