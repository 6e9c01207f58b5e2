"""Prefill of the local engine: forwards the prompts of a batch as prefix trees and returns the cache to decode from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from llm_as_judge.policy.attention import ATTENTION, Kernel, KeyValue, Tree, kernel_for, row_hidden
from llm_as_judge.policy.limits import PREFILL_TOKENS
from llm_as_judge.policy.tree import common_length, padded_batches, trunk


@dataclass
class LayerStore:
    """Keys and values of one layer; ``heads`` are key-value heads, S common and L prompt tokens."""

    common: tuple[Tensor, Tensor]  # [heads, S, D]
    prompt: tuple[Tensor, Tensor]  # [P, heads, L, D]
    own: tuple[Tensor, Tensor]  # [P * G, heads, capacity, D]


@dataclass
class Store:
    """Key-value cache of a decoding batch: a grid of ``prompts`` x ``group`` rows."""

    layers: list[LayerStore]
    prompt_lengths: Tensor  # [P], including the common part
    prompt_mask: Tensor  # [P, 1, 1, 1, L] additive, -inf at padding
    prompts: int
    group: int
    length: int = 0  # own tokens stored

    def __post_init__(self) -> None:
        #: On a GPU a step computes the same shapes until the capacity grows (``replayable``); elsewhere no more than it
        #: needs.
        self.fixed = self.prompt_lengths.device.type == "cuda"
        self.at = self.prompt_lengths.new_full((1,), self.length)  # ``length``, where a captured step reads it

    def next_positions(self) -> Tensor:
        return (self.prompt_lengths + self.at)[:, None].expand(-1, self.group).flatten()

    def advance(self) -> None:
        """End a step."""
        self.length += 1
        self.at += 1

    def reserve(self) -> bool:
        """Make room for one more own token by doubling a full capacity; returns whether that was needed."""
        capacity = self.layers[0].own[0].shape[2]
        if self.length < capacity:
            return False
        for layer in self.layers:
            layer.own = (F.pad(layer.own[0], [0, 0, 0, capacity]), F.pad(layer.own[1], [0, 0, 0, capacity]))
        return True

    def select(self, keep: Tensor) -> None:
        """Keep the grid rows with flat indices ``keep`` [P', G']; each row of ``keep`` belongs to one prompt."""
        device = self.prompt_lengths.device
        prompts = (keep[:, 0] // self.group).to(device)
        flat = keep.flatten().to(device)
        self.prompts, self.group = keep.shape
        self.prompt_lengths = self.prompt_lengths[prompts]
        self.prompt_mask = self.prompt_mask[prompts]
        for layer in self.layers:
            layer.prompt = (layer.prompt[0][prompts], layer.prompt[1][prompts])
            layer.own = (layer.own[0][flat], layer.own[1][flat])

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attend from ``query`` [N, H, 1, D] to common, prompt's and own keys, with ``key`` added, in one softmax."""
        layer = self.layers[index]
        layer.own[0].index_copy_(2, self.at, key)
        layer.own[1].index_copy_(2, self.at, value)
        rows, all_heads, _, dim = query.shape
        heads, own = key.shape[1], layer.own[0].shape[2] if self.fixed else self.length + 1
        grid = (self.prompts, self.group, heads)
        # p prompts, g sequences per prompt, h key-value heads, s query heads per key-value head, k keys, d head size
        asked = (query * scale).reshape(*grid, all_heads // heads, dim)
        (common_k, common_v), (prompt_k, prompt_v) = layer.common, layer.prompt
        own_k, own_v = (x[:, :, :own].reshape(*grid, own, dim) for x in layer.own)
        at_common = torch.einsum("pghsd,hkd->phgsk", asked, common_k)
        at_prompt = torch.einsum("pghsd,phkd->phgsk", asked, prompt_k) + self.prompt_mask
        at_own = (asked @ own_k.mT).transpose(1, 2)
        if self.fixed:
            at_own = at_own.masked_fill(torch.arange(own, device=self.at.device) > self.at, -torch.inf)
        weights = torch.cat([at_common, at_prompt, at_own], -1).softmax(-1, dtype=torch.float32).to(query.dtype)
        common, prompt, own_weights = torch.split(weights, [at_common.shape[-1], at_prompt.shape[-1], own], -1)
        out = torch.einsum("phgsk,hkd->pghsd", common, common_v)
        out = out + torch.einsum("phgsk,phkd->pghsd", prompt, prompt_v)
        out = out + torch.einsum("phgsk,pghkd->pghsd", own_weights, own_v)
        return out.reshape(rows, 1, all_heads, dim)


def forwarded(base: Any, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, list[KeyValue], list[list[int]]]:
    """Forward prompts as one row, every unique prefix once.

    Returns the last hidden state [P, hidden] of every prompt, the row's keys and values per layer, and the places of
    each prompt's tokens in the row.
    """
    base.set_attn_implementation(ATTENTION)
    # On a GPU a mask of a few thousand tokens is cheaper than compiling FlexAttention.
    kernel: Kernel = "cascade" if kernel_for(base.device) == "cascade" else "dense"
    tree, rows = trunk(prompts)
    caught: dict[int, KeyValue] = {}
    hidden = row_hidden(base, tree, Tree(tree.layout, kernel, caught=caught))
    return hidden[[row[-1] for row in rows]], [caught[layer] for layer in sorted(caught)], rows


def prefill(base: Any, prompts: list[list[int]], group: int, capacity: int = 64) -> tuple[Tensor, Store]:
    """Compute the last hidden state [P, hidden] of every prompt, and the store to decode from.

    Prompts are forwarded in passes of about ``PREFILL_TOKENS``; each pass forwards every unique prefix once.
    """
    # Each prompt keeps at least one token of its own.
    common = min(common_length(*prompts), min(map(len, prompts)) - 1)
    longest = max(map(len, prompts)) - common
    last: list[Tensor] = []
    layers: list[LayerStore] = []
    for members in padded_batches([len(p) for p in prompts], PREFILL_TOKENS):
        hidden, found, rows = forwarded(base, [prompts[i] for i in members])
        last.append(hidden)
        if not layers:
            begin = torch.tensor(rows[0][:common], dtype=torch.long)
            for key, value in found:
                heads, dim = key.shape[1], key.shape[3]
                prompt = key.new_empty(2, len(prompts), heads, longest, dim)
                own = key.new_zeros(2, len(prompts) * group, heads, capacity, dim)
                common_part = key[0][:, begin], value[0][:, begin]
                layers.append(LayerStore(common_part, (prompt[0], prompt[1]), (own[0], own[1])))
        # Rows are padded with their last token; the mask hides it.
        rest = torch.tensor([row[common:] + row[-1:] * (common + longest - len(row)) for row in rows])
        for layer, pair in zip(layers, found, strict=True):
            for whole, part in zip(layer.prompt, pair, strict=True):
                whole[members[0] : members[-1] + 1] = part[0][:, rest].transpose(0, 1)
        del found  # before the next pass makes its own
    lengths = torch.tensor([len(p) for p in prompts], device=base.device)
    past = torch.arange(longest, device=base.device) >= lengths[:, None] - common
    padding = torch.zeros(past.shape, device=base.device).masked_fill(past, -torch.inf)
    return torch.cat(last), Store(layers, lengths, padding[:, None, None, None, :], len(prompts), group)
