"""Prefill of the local engine: forwards the prompts of a batch and returns the cache to decode from.

On the CPU every unique prefix of the prompts is forwarded once, as a prefix tree. On other devices the beginning that
all prompts share is forwarded once, and the rest in padded rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache

from llm_as_judge.policy.attention import ATTENTION, KeyValue, Tree, kernel_for, row_hidden
from llm_as_judge.policy.tree import common_length, trunk


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
    lengths = torch.tensor([len(p) for p in prompts]) - common
    shared = kernel_for(base.device) == "cascade"
    hidden, cached = (_tree_prefill if shared else _padded_prefill)(base, prompts, common)
    layers = []
    for begin, rest in cached:
        heads, dim = rest[0].shape[1], rest[0].shape[3]
        own = rest[0].new_zeros(2, len(prompts) * group, heads, capacity, dim)
        layers.append(
            LayerStore(
                common=(begin[0].contiguous(), begin[1].contiguous()),
                prompt=(rest[0].contiguous(), rest[1].contiguous()),
                own=(own[0], own[1]),
            )
        )
    lengths = lengths.to(base.device)
    at = torch.arange(int(lengths.max()), device=base.device)
    padding = torch.zeros(len(prompts), len(at), device=base.device).masked_fill(at >= lengths[:, None], -torch.inf)
    return hidden, Store(layers, lengths + common, padding[:, None, None, None, :], len(prompts), group)


def _tree_prefill(base: Any, prompts: list[list[int]], common: int) -> tuple[Tensor, list[tuple[KeyValue, KeyValue]]]:
    """Forwards every unique prefix once.

    Returns last hidden states, and per layer keys and values of the common beginning [heads, S, D] and of the rest of
    the prompts [P, heads, L, D].
    """
    tree, rows = trunk(prompts)
    caught: dict[int, KeyValue] = {}
    base.set_attn_implementation(ATTENTION)
    hidden = row_hidden(base, tree, Tree(tree.layout, "cascade", caught=caught))
    longest = max(map(len, rows))
    begin = torch.tensor(rows[0][:common], dtype=torch.long)
    # Rows are padded with their last token; the mask hides it.
    rest = torch.tensor([row[common:] + row[-1:] * (longest - len(row)) for row in rows])
    found = [
        ((key[0][:, begin], value[0][:, begin]), (key[0][:, rest].transpose(0, 1), value[0][:, rest].transpose(0, 1)))
        for key, value in caught.values()
    ]
    return hidden[[row[-1] for row in rows]], found


def _padded_prefill(base: Any, prompts: list[list[int]], common: int) -> tuple[Tensor, list[tuple[KeyValue, KeyValue]]]:
    """Forwards the common beginning once, then padded rows of the rest; returns the same as ``_tree_prefill``."""
    device, decoder = base.device, base.get_decoder()
    count, rest = len(prompts), max(len(p) for p in prompts) - common
    cache = DynamicCache(config=base.config)
    if common:
        begin = torch.tensor([prompts[0][:common]], device=device)
        decoder(input_ids=begin, past_key_values=cache, use_cache=True)
        if cache.get_seq_length() != common:
            raise RuntimeError(f"the key-value cache holds {cache.get_seq_length()} tokens instead of {common}")
        cache.batch_repeat_interleave(count)
    ids = torch.zeros(count, rest, dtype=torch.long)
    real = torch.zeros(count, rest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt) - common] = torch.tensor(prompt[common:])
        real[row, : len(prompt) - common] = True
    ids, real = ids.to(device), real.to(device)
    # Right padding with a causal mask: no real token sees padding, so positions need no correction.
    mask = torch.cat([real.new_ones(count, common), real], 1).long()
    hidden = decoder(
        input_ids=ids,
        attention_mask=None if bool(real.all()) else mask,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    if cache.get_seq_length() != common + rest:
        raise RuntimeError(f"the key-value cache holds {cache.get_seq_length()} tokens instead of {common + rest}")
    layers: Any = cache.layers
    last = real.sum(1) - 1
    found = [
        ((x.keys[0, :, :common], x.values[0, :, :common]), (x.keys[:, :, common:], x.values[:, :, common:]))
        for x in layers
    ]
    return hidden[torch.arange(count, device=device), last], found
