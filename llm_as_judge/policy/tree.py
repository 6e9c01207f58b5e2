"""Radix tree over all sequences of a batch, laid out as one row in depth-first order: every unique prefix once.

``plan`` turns prompts and completions into one row; ``stages`` into a trunk of prompts and rows of completions, for
batches that are too large for one pass. Both give the attention pattern in two forms: as pieces (a span of queries, a
span of keys) for the cascade kernel, and as the interval of queries that see a key for FlexAttention and the dense
reference. No model and no attention here.

The idea is known (Tree Training, arXiv 2511.00413; AReaL; ART; TRL's asynchronous trainer). Here a fork duplicates no
token, because the loss reads edges (row, target) instead of shifted labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Span = tuple[int, int]

#: Shorter shared runs are forwarded once per sequence: a node costs about as much as this many tokens.
MIN_SHARE = 8


@dataclass(frozen=True, slots=True)
class Node:
    """Tokens ``start:end`` of the row, ``depth`` tokens below the root; its descendants are ``end:last``."""

    start: int
    end: int
    depth: int
    parent: int  # index of a node, -1 = root
    last: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries ``q0:q1`` see all keys ``k0:k1`` or, if ``causal``, those up to their own position."""

    q0: int
    q1: int
    k0: int
    k1: int
    causal: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Attention pattern: query q sees key k if ``first[k] <= q < last[k]``; ``pieces`` is the same pattern.

    The keys are the row's own, preceded by a trunk's if the row belongs to a stage.
    """

    pieces: tuple[Piece, ...]
    first: Tensor  # [K]
    last: Tensor  # [K]
    queries: int

    @property
    def keys(self) -> int:
        return int(self.first.numel())


@dataclass(frozen=True, slots=True)
class TreePlan:
    """A row, and the edges (row, target) that predict completion tokens.

    Equal edges occur once; ``edge`` is the index of each completion token's edge.
    """

    ids: Tensor  # [T]
    positions: Tensor  # [T] depth of each token
    nodes: tuple[Node, ...]
    layout: Layout
    rows: Tensor  # [E] positions whose hidden states predict ``targets``; in a stage, T + j is position j of the trunk
    targets: Tensor  # [E]
    edge: Tensor  # [M] by completion token, sequence after sequence
    lengths: tuple[int, ...]  # completion lengths, sum M

    @property
    def unique_tokens(self) -> int:
        return int(self.ids.numel())


@dataclass(frozen=True, slots=True)
class Stage:
    """Prompts of some sequences (``trunk``) and rows of their completions; ``members`` are the indices per row."""

    trunk: TreePlan
    micro_batches: tuple[TreePlan, ...]
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Tree:
    nodes: list[Node]
    ids: list[int]
    positions: list[int]
    paths: list[list[int]]  # nodes of every sequence, from the root down

    def rows(self, sequence: int) -> list[int]:
        return [row for n in self.paths[sequence] for row in range(self.nodes[n].start, self.nodes[n].end)]


def plan(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], min_share: int = MIN_SHARE
) -> TreePlan:
    """One row for sequences prompt + completion. Raises ``ValueError`` for an empty prompt or completion."""
    _check(prompts, completions)
    # The last completion token predicts nothing: it is only a target.
    tree = _grow([[*p, *c[:-1]] for p, c in zip(prompts, completions, strict=True)], 0, min_share)
    rows = [tree.rows(i)[len(prompt) - 1 :] for i, prompt in enumerate(prompts)]
    return _finish(tree, _own_layout(tree), rows, completions)


def trunk(prompts: Sequence[Sequence[int]], min_share: int = MIN_SHARE) -> tuple[TreePlan, list[list[int]]]:
    """One row for prompts only, and the positions of each prompt's tokens. Raises ``ValueError`` for an empty one."""
    _check(prompts, prompts)
    tree = _grow(prompts, 0, min_share)
    return _finish(tree, _own_layout(tree), [], []), [tree.rows(i) for i in range(len(prompts))]


def padded_tokens(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> int:
    """Number of tokens that one padded batch of the sequences forwards."""
    lengths = [len(p) + len(c) - 1 for p, c in zip(prompts, completions, strict=True)]
    return max(lengths) * len(lengths)


def stages(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    budget: int,
    min_share: int = MIN_SHARE,
) -> list[Stage]:
    """Trunks and rows of at most ``budget`` tokens each, or of a single longer sequence.

    Prompts are never cut: a trunk takes as many as fit, neighbours in the tree together.
    """
    _check(prompts, completions)
    if budget < 1:
        raise ValueError(f"the token budget must be >= 1, got {budget}")
    planned, at = [], 0
    order = sorted(range(len(prompts)), key=lambda i: (list(prompts[i]), i))
    while at < len(order):
        end, held = at, 0
        before: Sequence[int] = ()
        while end < len(order):
            prompt = prompts[order[end]]
            added = len(prompt) - _common(before, prompt)
            if held and held + added > budget:
                break
            held, before, end = held + added, prompt, end + 1
        planned.append(_stage(order[at:end], prompts, completions, budget, min_share))
        at = end
    return planned


def dense_mask(layout: Layout) -> Tensor:
    """Attention pattern as [Q, K] bool."""
    queries = torch.arange(layout.queries, device=layout.first.device)[:, None]
    return (queries >= layout.first) & (queries < layout.last)


def _check(prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> None:
    if not prompts or any(not p for p in prompts) or any(not c for c in completions):
        raise ValueError("a batch needs a sequence, and every prompt and every completion at least one token")


def _grow(sequences: Sequence[Sequence[int]], depth: int, min_share: int) -> _Tree:
    """Tree of ``sequences``, which begin ``depth`` tokens below the root; empty ones have no path."""
    tree = _Tree([], [], [], [[] for _ in sequences])
    parents: list[int] = []
    spans: list[tuple[int, int, int]] = []
    # Stack of branches to add: (members, tokens already on the path, end of the branch, parent).
    todo: list[tuple[list[int], int, int, int]] = []

    def fork(members: Sequence[int], at: int, parent: int) -> None:
        branches: dict[int, list[int]] = {}
        for i in members:
            if len(sequences[i]) > at:
                branches.setdefault(sequences[i][at], []).append(i)
        for branch in reversed(branches.values()):
            end = _shared(sequences, branch, at)
            if len(branch) > 1 and end - at < min_share and any(len(sequences[i]) > end for i in branch):
                todo.extend(([i], at, len(sequences[i]), parent) for i in reversed(branch))
            else:
                todo.append((branch, at, end, parent))

    fork(range(len(sequences)), 0, -1)
    while todo:
        members, at, end, parent = todo.pop()
        index, start = len(spans), len(tree.ids)
        tree.ids.extend(sequences[members[0]][at:end])
        tree.positions.extend(range(depth + at, depth + end))
        spans.append((start, len(tree.ids), depth + at))
        parents.append(parent)
        for i in members:
            tree.paths[i].append(index)
        fork(members, end, index)
    last = [end for _, end, _ in spans]
    for index in range(len(spans) - 1, -1, -1):
        if parents[index] >= 0:
            last[parents[index]] = max(last[parents[index]], last[index])
    tree.nodes.extend(Node(*span, parents[i], last[i]) for i, span in enumerate(spans))
    return tree


def _own_layout(tree: _Tree) -> Layout:
    pieces, last = _own_pieces(tree, 0, 0)
    return Layout(pieces, torch.arange(len(tree.ids)), torch.tensor(last, dtype=torch.long), len(tree.ids))


def _own_pieces(tree: _Tree, queries: int, keys: int) -> tuple[tuple[Piece, ...], list[int]]:
    """Pieces of a tree whose row begins at query ``queries`` and key ``keys``, and the end of each key's interval."""
    pieces: list[Piece] = []
    last: list[int] = []
    for n in tree.nodes:
        own = (keys + n.start, keys + n.end)
        pieces.append(Piece(queries + n.start, queries + n.end, *own, True))
        if n.last > n.end:
            pieces.append(Piece(queries + n.end, queries + n.last, *own, False))
        last += [queries + n.last] * (n.end - n.start)
    return tuple(pieces), last


def _finish(tree: _Tree, layout: Layout, rows: list[list[int]], completions: Sequence[Sequence[int]]) -> TreePlan:
    edges: dict[tuple[int, int], int] = {}
    edge = [
        edges.setdefault((row, target), len(edges))
        for own, completion in zip(rows, completions, strict=True)
        for row, target in zip(own, completion, strict=True)
    ]
    return TreePlan(
        ids=torch.tensor(tree.ids, dtype=torch.long),
        positions=torch.tensor(tree.positions, dtype=torch.long),
        nodes=tuple(tree.nodes),
        layout=layout,
        rows=torch.tensor([row for row, _ in edges], dtype=torch.long),
        targets=torch.tensor([target for _, target in edges], dtype=torch.long),
        edge=torch.tensor(edge, dtype=torch.long),
        lengths=tuple(len(c) for c in completions),
    )


def _stage(
    members: list[int],
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    budget: int,
    min_share: int,
) -> Stage:
    trunk = _grow([prompts[i] for i in members], 0, min_share)
    # In the trunk's depth-first order, so that the completions below each node are one span.
    order = sorted(range(len(members)), key=lambda m: (trunk.paths[m][-1], members[m]))
    micro_batches: list[TreePlan] = []
    taken: list[tuple[int, ...]] = []
    at = 0
    while at < len(order):
        end, held = at, 0
        while end < len(order) and (end == at or held + len(completions[members[order[end]]]) <= budget):
            held, end = held + len(completions[members[order[end]]]), end + 1
        taken.append(tuple(members[m] for m in order[at:end]))
        micro_batches.append(_micro_batch(trunk, order[at:end], [completions[i] for i in taken[-1]], min_share))
        at = end
    plan_of_trunk = _finish(trunk, _own_layout(trunk), [], [])
    return Stage(plan_of_trunk, tuple(micro_batches), tuple(taken))


def _micro_batch(trunk: _Tree, members: list[int], completions: Sequence[Sequence[int]], min_share: int) -> TreePlan:
    """Row of completions whose prompts are the paths of ``members`` in ``trunk``, in the order of these paths."""
    row = _Tree([], [], [], [])
    seen: dict[int, Span] = {}  # queries below each trunk node
    own: list[Piece] = []
    last: list[int] = []
    rows: list[list[int]] = []
    keys, at = len(trunk.ids), 0
    lasts = [trunk.rows(m)[-1] for m in members]
    while at < len(members):
        end = at
        while end < len(members) and trunk.paths[members[end]] == trunk.paths[members[at]]:
            end += 1
        begin, nodes = len(row.ids), len(row.nodes)
        depth = len(trunk.rows(members[at]))
        below = _grow([c[:-1] for c in completions[at:end]], depth, min_share)
        pieces, ends = _own_pieces(below, begin, keys + begin)
        own += pieces
        last += ends
        row.ids.extend(below.ids)
        row.positions.extend(below.positions)
        row.nodes.extend(
            Node(begin + n.start, begin + n.end, n.depth, n.parent + nodes if n.parent >= 0 else -1, begin + n.last)
            for n in below.nodes
        )
        for i in range(end - at):
            rows.append([-1 - lasts[at + i], *(begin + r for r in below.rows(i))])
        for n in trunk.paths[members[at]]:
            seen[n] = (seen.get(n, (begin, 0))[0], len(row.ids))
        at = end
    queries = len(row.ids)
    below_nodes = [(trunk.nodes[n], span) for n, span in sorted(seen.items())]
    across = [Piece(q0, q1, n.start, n.end, False) for n, (q0, q1) in below_nodes if q1 > q0]
    first_of = torch.arange(-keys, queries)
    last_of = torch.cat([torch.zeros(keys, dtype=torch.long), torch.tensor(last, dtype=torch.long)])
    first_of[:keys] = 0
    for piece in across:
        first_of[piece.k0 : piece.k1] = piece.q0
        last_of[piece.k0 : piece.k1] = piece.q1
    layout = Layout((*across, *own), first_of, last_of, queries)
    rows = [[queries - 1 - r if r < 0 else r for r in own_rows] for own_rows in rows]
    return _finish(row, layout, rows, completions)


def _shared(sequences: Sequence[Sequence[int]], members: Sequence[int], depth: int) -> int:
    """End of the tokens from ``depth`` on that all ``members`` share."""
    end = min(len(sequences[i]) for i in members)
    first = sequences[members[0]]
    for i in members[1:]:
        other = sequences[i]
        if other[depth:end] != first[depth:end]:
            end = depth + _common(other[depth:end], first[depth:end])
    return end


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
