"""Prefill of the local engine: forwards the prompts of a batch and returns the cache to decode from.

On the CPU every unique prefix of the prompts is forwarded once, as a prefix tree. On other devices the beginning that
all prompts share is forwarded once, and the rest in padded batches of prompts of similar length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from llm_as_judge.policy.attention import ATTENTION, KeyValue, Tree, kernel_for, row_hidden, rows_hidden
from llm_as_judge.policy.limits import PREFILL_TOKENS
from llm_as_judge.policy.tree import causal, common_length, padded_batches, trunk

#: Per layer, keys and values of the beginning that all prompts share, and of the rest of every prompt.
Cached = list[tuple[KeyValue, KeyValue]]


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

    def next_positions(self) -> Tensor:
        return (self.prompt_lengths + self.length).repeat_interleave(self.group)

    def select(self, keep: Tensor) -> None:
        """Keeps the grid rows with flat indices ``keep`` [P', G']; each row of ``keep`` belongs to one prompt."""
        device = self.prompt_lengths.device
        prompts = (keep[:, 0] // self.group).to(device)
        flat = keep.flatten().to(device)
        self.prompts, self.group = keep.shape
        self.prompt_lengths = self.prompt_lengths[prompts]
        self.prompt_mask = self.prompt_mask[prompts]
        for layer in self.layers:
            layer.prompt = (layer.prompt[0][prompts], layer.prompt[1][prompts])
            layer.own = (layer.own[0][flat], layer.own[1][flat])

    def append(self, index: int, key: Tensor, value: Tensor) -> LayerStore:
        """Stores keys and values [N, heads, 1, D] of one token in layer ``index``, doubling a full capacity."""
        layer = self.layers[index]
        if self.length == layer.own[0].shape[2]:
            pad = [0, 0, 0, self.length]
            layer.own = (F.pad(layer.own[0], pad), F.pad(layer.own[1], pad))
        layer.own[0][:, :, self.length] = key[:, :, 0]
        layer.own[1][:, :, self.length] = value[:, :, 0]
        return layer


def prefill(base: Any, prompts: list[list[int]], group: int, capacity: int = 64) -> tuple[Tensor, Store]:
    """Last hidden state [P, hidden] of every prompt, and the store to decode from."""
    # Each prompt keeps at least one token of its own.
    common = min(common_length(*prompts), min(map(len, prompts)) - 1)
    longest = max(map(len, prompts)) - common
    base.set_attn_implementation(ATTENTION)
    shared = kernel_for(base.device) == "cascade"
    hidden, cached = (_tree_prefill if shared else _padded_prefill)(base, prompts, common, longest)
    layers = []
    for begin, rest in cached:
        heads, dim = rest[0].shape[1], rest[0].shape[3]
        own = rest[0].new_zeros(2, len(prompts) * group, heads, capacity, dim)
        layers.append(LayerStore(begin, rest, (own[0], own[1])))
    lengths = torch.tensor([len(p) for p in prompts], device=base.device)
    past = torch.arange(longest, device=base.device) >= lengths[:, None] - common
    padding = torch.zeros(past.shape, device=base.device).masked_fill(past, -torch.inf)
    return hidden, Store(layers, lengths, padding[:, None, None, None, :], len(prompts), group)


def _tree_prefill(base: Any, prompts: list[list[int]], common: int, longest: int) -> tuple[Tensor, Cached]:
    """Forwards every unique prefix once.

    Returns last hidden states, and per layer keys and values of the common beginning [heads, S, D] and of the rest of
    the prompts [P, heads, L, D], L = ``longest``.
    """
    tree, rows = trunk(prompts)
    caught: dict[int, KeyValue] = {}
    hidden = row_hidden(base, tree, Tree(tree.layout, "cascade", caught=caught))
    begin = torch.tensor(rows[0][:common], dtype=torch.long)
    # Rows are padded with their last token; the mask hides it.
    rest = torch.tensor([row[common:] + row[-1:] * (common + longest - len(row)) for row in rows])
    found = [
        (
            (key[0][:, begin], value[0][:, begin]),
            (key[0][:, rest].transpose(0, 1).contiguous(), value[0][:, rest].transpose(0, 1).contiguous()),
        )
        for key, value in caught.values()
    ]
    return hidden[[row[-1] for row in rows]], found


def _padded_prefill(base: Any, prompts: list[list[int]], common: int, longest: int) -> tuple[Tensor, Cached]:
    """Forwards the common beginning once, then the rest in padded batches; returns the same as ``_tree_prefill``."""
    device = base.device
    begin: dict[int, KeyValue] = {}
    if common:
        tree, _ = trunk([prompts[0][:common]])
        row_hidden(base, tree, Tree(tree.layout, "dense", caught=begin))
    past = list(begin.values()) or None
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    last: list[Tensor] = []
    rest: dict[int, KeyValue] = {}
    for members in padded_batches([len(prompts[i]) - common for i in order], PREFILL_TOKENS):
        rows = [prompts[order[i]][common:] for i in members]
        width = len(rows[-1])
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        # Padding is on the right, where the causal pattern hides it from every real token.
        caught: dict[int, KeyValue] = {}
        attention = Tree(causal(common, width), "dense", past, caught)
        hidden = rows_hidden(base, ids, torch.arange(common, common + width)[None], attention)
        last.append(hidden[torch.arange(len(rows)), [len(row) - 1 for row in rows]])
        places = torch.tensor(order[members[0] : members[-1] + 1], device=device)
        for layer, own in caught.items():
            if layer not in rest:
                key, value = (x.new_zeros(len(prompts), x.shape[1], longest, x.shape[3]) for x in own)
                rest[layer] = key, value
            for whole, part in zip(rest[layer], own, strict=True):
                whole[places, :, :width] = part
    first = begin or {layer: (key[:1, :, :0], value[:1, :, :0]) for layer, (key, value) in rest.items()}
    found = [((first[layer][0][0], first[layer][1][0]), own) for layer, own in rest.items()]
    return torch.cat(last)[torch.tensor(order).argsort().to(device)], found
