"""Every unique prefix of a batch once: a radix tree over all sequences, laid out as one row in depth-first
order.

``plan`` turns prompts and completions into that row; ``tree_attention`` lets each node attend to its
ancestors and itself, with public operations only. Exact: log-probabilities and gradients equal the padded
forward's. The idea is known (Tree Training, AReaL, TRL's asynchronous trainer); here a row has no duplicate
token at a fork, for the loss reads pairs (row, target) instead of shifted labels. Needs plain full attention
and no dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ATTENTION = "llm_as_judge_prefix_tree"

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Node:
    """``start:end`` in the row; ``ancestors`` from the root down, as spans of the row."""

    start: int
    end: int
    ancestors: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The row and where each completion token's prediction sits in it."""

    ids: Tensor  # [T]
    positions: Tensor  # [T] depth of each token
    nodes: tuple[Node, ...]
    rows: Tensor  # [M] whose hidden state predicts ``targets``, sequence after sequence, token after token
    targets: Tensor  # [M]
    lengths: tuple[int, ...]  # completion lengths, sum M

    @property
    def unique_tokens(self) -> int:
        return int(self.ids.numel())


def plan(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], min_share: int = 1) -> TreePlan:
    """Plan for sequences prompt + completion. Shared runs under ``min_share`` tokens are not worth a node:
    duplicated.
    """
    if any(not p for p in prompts) or any(not c for c in completions):
        raise ValueError("every prompt and every completion needs at least one token")
    # The last completion token predicts nothing, so it is a target only.
    sequences = [[*p, *c[:-1]] for p, c in zip(prompts, completions, strict=True)]
    ids: list[int] = []
    positions: list[int] = []
    nodes: list[Node] = []
    paths: list[list[Span]] = [[] for _ in sequences]

    def grow(members: list[int], depth: int, ancestors: tuple[Span, ...]) -> None:
        """Adds the subtree of ``members``, whose first ``depth`` tokens are ``ancestors``."""
        branches: dict[int, list[int]] = {}
        for i in members:
            if len(sequences[i]) > depth:
                branches.setdefault(sequences[i][depth], []).append(i)
        for branch in branches.values():
            end = _shared(sequences, branch, depth)
            if len(branch) > 1 and end - depth < min_share and any(len(sequences[i]) > end for i in branch):
                for i in branch:
                    add([i], depth, len(sequences[i]), ancestors)
            else:
                add(branch, depth, end, ancestors)

    def add(members: list[int], depth: int, end: int, ancestors: tuple[Span, ...]) -> None:
        span = (len(ids), len(ids) + end - depth)
        ids.extend(sequences[members[0]][depth:end])
        positions.extend(range(depth, end))
        nodes.append(Node(*span, ancestors))
        for i in members:
            paths[i].append(span)
        grow(members, end, (*ancestors, span))

    grow(list(range(len(sequences))), 0, ())
    rows: list[int] = []
    for prompt, path in zip(prompts, paths, strict=True):
        flat = [row for start, end in path for row in range(start, end)]
        rows.extend(flat[len(prompt) - 1 :])
    return TreePlan(
        ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        nodes=tuple(nodes),
        rows=torch.tensor(rows),
        targets=torch.tensor([token for c in completions for token in c]),
        lengths=tuple(len(c) for c in completions),
    )


def tree_attention(
    module: Any,
    query: Tensor,  # [1, H, T, D]
    key: Tensor,  # [1, heads, T, D]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    tree: TreePlan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of the row: one call a node against [ancestors | itself]. Registered as ``ATTENTION``."""
    if tree is None or dropout:
        raise RuntimeError(f"attention {ATTENTION!r} needs a plan and no dropout, got tree={tree} dropout={dropout}")
    share = query.shape[1] // key.shape[1]
    if share > 1:
        key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
    outputs = []
    for node in tree.nodes:
        spans = [*node.ancestors, (node.start, node.end)]
        keys = torch.cat([key[:, :, a:b] for a, b in spans], 2)
        values = torch.cat([value[:, :, a:b] for a, b in spans], 2)
        length, seen = node.end - node.start, keys.shape[2]
        mask = None
        if node.ancestors:
            mask = torch.ones(length, seen, dtype=torch.bool, device=query.device).tril(seen - length)
        outputs.append(
            F.scaled_dot_product_attention(
                query[:, :, node.start : node.end],
                keys,
                values,
                attn_mask=mask,
                is_causal=mask is None,
                scale=scaling,
            )
        )
    return torch.cat(outputs, 2).transpose(1, 2).contiguous(), None


def _shared(sequences: Sequence[Sequence[int]], members: Sequence[int], depth: int) -> int:
    """End of the run of tokens after ``depth`` that all ``members`` share."""
    end = min(len(sequences[i]) for i in members)
    first = sequences[members[0]]
    for i in members[1:]:
        other = sequences[i]
        while other[depth:end] != first[depth:end]:
            end = next(at for at in range(depth, end) if other[at] != first[at])
    return end
