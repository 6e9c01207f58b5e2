"""Prefix tree (radix tree) over all sequences of a batch, laid out as one row in depth-first order.

Every unique prefix occurs once. ``plan`` turns prompts and completions into one row; ``stages`` turns batches that are
too large for one pass into a trunk of prompts and rows of completions. Both give the attention pattern in two forms: as
pieces (a span of queries, a span of keys) for the cascade kernel, and as the interval of queries that see a key, for
FlexAttention and the dense reference. No model and no attention here.

The idea is that of Tree Training (arXiv 2511.00413). Here a fork duplicates no token, because the loss reads edges
(row, target) instead of shifted labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import torch
from torch import Tensor

Tokens = Sequence[int]

#: Shorter shared runs are forwarded once per sequence: a node costs about as much as this many tokens.
MIN_SHARE = 8
#: Prompts share hardly anything if this part of their tokens is forwarded in any case.
_APART = 0.95


@dataclass(frozen=True, slots=True)
class Node:
    """Tokens ``start:end`` of the row; its descendants are ``end:last``."""

    start: int
    end: int
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
class Pattern:
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
    layout: Pattern
    rows: Tensor  # [E] positions whose hidden states predict ``targets``; in a stage, T + j is position j of the trunk
    targets: Tensor  # [E]
    edge: Tensor  # [M] by completion token, sequence after sequence

    @property
    def unique_tokens(self) -> int:
        return int(self.ids.numel())


@dataclass(frozen=True, slots=True)
class Stage:
    """Prompts of some sequences (``trunk``) and rows of their completions; ``members`` are the indices per row."""

    trunk: TreePlan
    micro_batches: tuple[TreePlan, ...]
    members: tuple[tuple[int, ...], ...]


def plan(prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> TreePlan:
    """Plan one row for sequences prompt + completion, none of them empty."""
    row = _Row()
    # The last completion token predicts nothing: it is only a target.
    paths = row.add([[*p, *c[:-1]] for p, c in zip(prompts, completions, strict=True)])
    rows = [row.places(path)[len(prompt) - 1 :] for path, prompt in zip(paths, prompts, strict=True)]
    return row.finish(rows, completions)


def trunk(prompts: Sequence[Tokens]) -> tuple[TreePlan, list[list[int]]]:
    """Plan one row for prompts only; also returns the positions of each prompt's tokens."""
    row = _Row()
    paths = row.add(prompts)
    return row.finish(), [row.places(path) for path in paths]


def padded_tokens(prompts: Sequence[Tokens], completions: Sequence[Tokens]) -> int:
    """Count the tokens that one padded batch of the sequences forwards."""
    lengths = [len(p) + len(c) - 1 for p, c in zip(prompts, completions, strict=True)]
    return max(lengths) * len(lengths)


def padded_batches(lengths: Sequence[int], budget: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield consecutive indices that fit into ``budget`` tokens, padded to the longest; at most ``most`` per batch."""
    members: list[int] = []
    longest = 0
    for i, length in enumerate(lengths):
        if members and (max(longest, length) * (len(members) + 1) > budget or len(members) == most):
            yield tuple(members)
            members, longest = [], 0
        members.append(i)
        longest = max(longest, length)
    yield tuple(members)


def stages(prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int, row_budget: int) -> list[Stage]:
    """Plan trunks of at most ``budget`` tokens and rows of at most ``row_budget``, or of a single longer sequence.

    Prompts are never cut. A trunk takes as many as fit; prompts with a long common prefix go into the same trunk. If
    hardly anything is common, one trunk for all would save no time and keep more in memory than small ones.
    """
    order = sorted(range(len(prompts)), key=lambda i: (list(prompts[i]), i))
    whole = [len(prompts[i]) for i in order]
    shared = [0, *(common_length(prompts[i], prompts[j]) for i, j in pairwise(order))]
    added = [a - b for a, b in zip(whole, shared, strict=True)]
    if row_budget < budget and sum(added) > _APART * sum(whole[i] for i in range(len(whole)) if added[i]):
        budget = min(budget, row_budget // 4)
    chunks = _chunks(order, added, whole, budget)
    return [_stage(chunk, prompts, completions, row_budget) for chunk in chunks]


def common_length(first: Tokens, *others: Tokens) -> int:
    """Return the length of the beginning that all sequences share."""
    end = len(first)
    for other in others:
        if first[:end] != other[:end]:
            pairs = enumerate(zip(first[:end], other, strict=False))
            end = next((i for i, (x, y) in pairs if x != y), min(end, len(other)))
    return end


def dense_mask(layout: Pattern) -> Tensor:
    """Build the attention pattern as [Q, K] bool."""
    queries = torch.arange(layout.queries, device=layout.first.device)[:, None]
    return (queries >= layout.first) & (queries < layout.last)


@dataclass(slots=True)
class _Row:
    """A row under construction; its nodes are in depth-first order."""

    nodes: list[Node] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def add(self, sequences: Sequence[Tokens], depth: int = 0) -> list[list[int]]:
        """Append a tree of ``sequences``, which begin ``depth`` tokens below the root; returns each one's nodes."""
        paths: list[list[int]] = [[] for _ in sequences]

        def grow(members: Sequence[int], at: int) -> None:
            for branch, end in _branches(sequences, members, at):
                index, start = len(self.nodes), len(self.ids)
                self.ids += sequences[branch[0]][at:end]
                self.positions += range(depth + at, depth + end)
                self.nodes.append(Node(start, len(self.ids), len(self.ids)))
                for i in branch:
                    paths[i].append(index)
                grow(branch, end)
                self.nodes[index] = Node(start, start + end - at, len(self.ids))

        grow(range(len(sequences)), 0)
        return paths

    def places(self, path: Sequence[int]) -> list[int]:
        """Return positions in the row of the tokens on a path of nodes."""
        return [place for n in path for place in range(self.nodes[n].start, self.nodes[n].end)]

    def finish(
        self, rows: Sequence[Sequence[int]] = (), completions: Sequence[Tokens] = (),
        trunk_pieces: Sequence[Piece] = (), trunk_keys: int = 0,
    ) -> TreePlan:  # fmt: skip
        """Finish the plan; ``rows`` are the positions that predict each token of ``completions``."""
        edges: dict[tuple[int, int], int] = {}
        edge = [
            edges.setdefault((row, target), len(edges))
            for own, completion in zip(rows, completions, strict=True)
            for row, target in zip(own, completion, strict=True)
        ]
        return TreePlan(
            ids=torch.tensor(self.ids, dtype=torch.long),
            positions=torch.tensor(self.positions, dtype=torch.long),
            layout=self._layout(trunk_pieces, trunk_keys),
            rows=torch.tensor([row for row, _ in edges], dtype=torch.long),
            targets=torch.tensor([target for _, target in edges], dtype=torch.long),
            edge=torch.tensor(edge, dtype=torch.long),
        )

    def _layout(self, trunk_pieces: Sequence[Piece], trunk_keys: int) -> Pattern:
        pieces, queries = list(trunk_pieces), len(self.ids)
        for n in self.nodes:
            keys = (trunk_keys + n.start, trunk_keys + n.end)
            pieces.append(Piece(n.start, n.end, *keys, causal=True))
            if n.last > n.end:
                pieces.append(Piece(n.end, n.last, *keys, causal=False))
        first = torch.arange(-trunk_keys, queries).clamp(min=0)
        last = torch.zeros(trunk_keys + queries, dtype=torch.long)
        for piece in pieces:
            last[piece.k0 : piece.k1] = piece.q1
        for piece in trunk_pieces:
            first[piece.k0 : piece.k1] = piece.q0
        return Pattern(tuple(pieces), first, last, queries)


def _stage(members: Sequence[int], prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int) -> Stage:
    trunk = _Row()
    paths = dict(zip(members, trunk.add([prompts[i] for i in members]), strict=True))
    # In the trunk's depth-first order, so that the completions below each node are one span.
    order = sorted(members, key=lambda i: (paths[i][-1], i))
    lengths = [len(completions[i]) for i in order]
    chunks = _chunks(order, lengths, lengths, budget)
    rows = tuple(_micro_batch(trunk, [(paths[i], completions[i]) for i in chunk]) for chunk in chunks)
    return Stage(trunk.finish(), rows, tuple(map(tuple, chunks)))


def _micro_batch(trunk: _Row, members: Sequence[tuple[list[int], Tokens]]) -> TreePlan:
    """Plan a row of completions, each with the path of its prompt in ``trunk``; equal paths are neighbours."""
    row, spans, own = _Row(), dict[int, tuple[int, int]](), list[tuple[int, list[int]]]()
    for path, group in groupby(members, key=lambda member: member[0]):
        begin, prompt = len(row.ids), trunk.places(path)
        below = row.add([completion[:-1] for _, completion in group], len(prompt))
        own += [(prompt[-1], row.places(nodes)) for nodes in below]
        for n in path:
            spans[n] = (spans.get(n, (begin, 0))[0], len(row.ids))
    nodes = [(trunk.nodes[n], span) for n, span in sorted(spans.items())]
    pieces = [Piece(q0, q1, node.start, node.end, causal=False) for node, (q0, q1) in nodes if q1 > q0]
    rows = [[len(row.ids) + last, *places] for last, places in own]
    return row.finish(rows, [completion for _, completion in members], pieces, len(trunk.ids))


def _branches(sequences: Sequence[Tokens], members: Sequence[int], at: int) -> Iterator[tuple[list[int], int]]:
    """Yield groups of ``members`` with the same next token, and the end of what each group shares."""
    branches: dict[int, list[int]] = {}
    for i in members:
        if len(sequences[i]) > at:
            branches.setdefault(sequences[i][at], []).append(i)
    for branch in branches.values():
        end = at + common_length(*(sequences[i][at:] for i in branch)) if len(branch) > 1 else len(sequences[branch[0]])
        if len(branch) > 1 and end - at < MIN_SHARE and any(len(sequences[i]) > end for i in branch):
            yield from (([i], len(sequences[i])) for i in branch)
        else:
            yield branch, end


def _chunks(items: Sequence[int], added: Sequence[int], alone: Sequence[int], budget: int) -> list[list[int]]:
    """Group consecutive ``items`` to at most ``budget`` tokens; the first of a chunk costs ``alone`` tokens."""
    chunks: list[list[int]] = []
    held = 0
    for item, more, whole in zip(items, added, alone, strict=True):
        if chunks and (not more or held + more <= budget):
            chunks[-1].append(item)
            held += more
        else:
            chunks.append([item])
            held = whole
    return chunks
