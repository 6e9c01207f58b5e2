"""The radix tree: sequences are paths, no prefix occurs twice, and keys are seen only by the queries below them."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex_module
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention

from llm_as_judge.policy import attention
from llm_as_judge.policy.attention import block_mask
from llm_as_judge.policy.tree import Layout, TreePlan, causal, dense_mask, padded_tokens, plan, stages

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
PAIRS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=8)
Pairs = list[tuple[list[int], list[int]]]


def split(pairs: Pairs) -> tuple[list[list[int]], list[list[int]]]:
    return [p for p, _ in pairs], [c for _, c in pairs]


def from_pieces(layout: Layout) -> torch.Tensor:
    """[Q, K]: how often the pieces pair a query with a key."""
    seen = torch.zeros(layout.queries, layout.keys, dtype=torch.long)
    for p in layout.pieces:
        block = torch.ones(p.q1 - p.q0, p.k1 - p.k0, dtype=torch.long)
        seen[p.q0 : p.q1, p.k0 : p.k1] += block.tril() if p.causal else block
    return seen


def visible_paths(tree: TreePlan, ids: torch.Tensor, positions: torch.Tensor, offset: int) -> list[list[int]]:
    """The tokens that the last prediction of every completion sees, by depth."""
    mask, found, at = dense_mask(tree.layout), [], 0
    for length in tree.lengths:
        row = int(tree.rows[tree.edge[at + length - 1]])
        keys = torch.nonzero(mask[row])[:, 0] if row < tree.layout.queries else None
        at += length
        if keys is None:
            found.append([])
            continue
        assert positions[keys].sort().values.tolist() == list(range(len(keys)))
        assert int(keys[-1]) == offset + row
        found.append(ids[keys].tolist())
    return found


@settings(max_examples=40)
@given(PAIRS, st.integers(1, 4))
def test_every_sequence_is_a_path_and_no_prefix_occurs_twice(pairs: Pairs, min_share: int) -> None:
    prompts, completions = split(pairs)
    tree = plan(prompts, completions, min_share)
    sequences = [p + c[:-1] for p, c in pairs]
    assert visible_paths(tree, tree.ids, tree.positions, 0) == sequences
    assert tree.targets[tree.edge].tolist() == [t for c in completions for t in c]
    unique = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    if min_share == 1:
        assert tree.unique_tokens == len(unique)
        assert len(tree.targets) == len({(*p, *c[: i + 1]) for p, c in pairs for i in range(len(c))})
    assert len(unique) <= tree.unique_tokens <= sum(map(len, sequences))


@settings(max_examples=40)
@given(PAIRS, st.integers(1, 4), st.integers(1, 30), st.integers(1, 30))
def test_stages_hold_every_sequence_once_within_the_budgets(
    pairs: Pairs, min_share: int, budget: int, row_budget: int
) -> None:
    prompts, completions = split(pairs)
    found = stages(prompts, completions, budget, row_budget, min_share)
    assert sorted(i for s in found for m in s.members for i in m) == list(range(len(pairs)))
    for stage in found:
        members = [i for m in stage.members for i in m]
        assert stage.trunk.unique_tokens <= budget or len({tuple(prompts[i]) for i in members}) == 1 or min_share > 1
        for tree, own in zip(stage.micro_batches, stage.members, strict=True):
            assert tree.unique_tokens <= row_budget or len(own) == 1
            ids, positions = (
                torch.cat([getattr(stage.trunk, name), getattr(tree, name)]) for name in ("ids", "positions")
            )
            paths = visible_paths(tree, ids, positions, stage.trunk.unique_tokens)
            for i, path in zip(own, paths, strict=True):
                assert path == (prompts[i] + completions[i][:-1] if len(completions[i]) > 1 else [])
            first = [int(tree.rows[tree.edge[sum(tree.lengths[:j])]]) - tree.unique_tokens for j in range(len(own))]
            for i, row in zip(own, first, strict=True):  # the prompt's last token predicts the first one
                assert stage.trunk.positions[row] == len(prompts[i]) - 1 and stage.trunk.ids[row] == prompts[i][-1]
            assert tree.targets[tree.edge].tolist() == [t for i in own for t in completions[i]]


@settings(max_examples=30)
@given(PAIRS, st.integers(1, 4), st.integers(1, 30))
def test_pieces_intervals_and_block_tables_agree(pairs: Pairs, min_share: int, budget: int) -> None:
    prompts, completions = split(pairs)
    layouts = [plan(prompts, completions, min_share).layout]
    layouts += [t.layout for s in stages(prompts, completions, budget, budget, min_share) for t in s.micro_batches]
    for layout in layouts:
        if not layout.queries:
            continue
        mask = dense_mask(layout)
        assert torch.equal(from_pieces(layout), mask.long())
        tiles, size = block_mask(layout, 4), 4
        assert tiles.full_kv_num_blocks is not None and tiles.full_kv_indices is not None
        for i in range(-(-layout.queries // size)):
            rows = mask[i * size : (i + 1) * size]
            partial = tiles.kv_indices[0, 0, i, : tiles.kv_num_blocks[0, 0, i]].tolist()
            full = tiles.full_kv_indices[0, 0, i, : tiles.full_kv_num_blocks[0, 0, i]].tolist()
            for j in range(-(-layout.keys // size)):
                tile = rows[:, j * size : (j + 1) * size]
                assert (j in partial or j in full) == bool(tile.any())
                assert j not in full or bool(tile.all())


def test_flex_attention_equals_the_dense_reference() -> None:
    prompts = [[1, 2, 3, 4, i] for i in (5, 5, 6)]
    layout = plan(prompts, [[7, 8, 9], [7, 1, 2, 3], [4, 4]], 1).layout
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, layout.queries, 16) for _ in range(3))
    with torch.no_grad():
        found = flex_attention(query, key, value, block_mask=block_mask(layout))
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=dense_mask(layout))
    assert torch.allclose(found, expected, atol=1e-6)  # type: ignore[arg-type]


def test_a_typical_batch_shrinks_six_times_and_long_chains_are_planned() -> None:
    system = list(range(1500))
    prompts = [system + [10_000 + i] * 300 for i in range(4) for _ in range(6)]
    completions = [[20_000 + i] * 225 for i in range(24)]
    tree = plan(prompts, completions)
    assert tree.unique_tokens == 1500 + 4 * 300 + 24 * 224
    assert padded_tokens(prompts, completions) / tree.unique_tokens > 6
    chain = plan([[0] * i for i in range(1, 501)], [[1]] * 500, 1)
    assert chain.unique_tokens == 500 and len(chain.targets) == 500


def test_empty_sequences_and_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        plan([[1]], [[]])
    with pytest.raises(ValueError, match="at least one token"):
        stages([[]], [[1]], 5, 5)
    with pytest.raises(ValueError, match="budget"):
        stages([[1]], [[1]], 0, 5)


def test_flex_attention_is_compiled_per_kind_of_row_not_per_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo's graphs are counted by a backend that runs them eagerly, because FlexAttention trains on GPUs only."""
    graphs: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(flex_module, "_validate_device", lambda *_: None)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=count))
    flex = attention._flex.__wrapped__()
    heads = (5, 1, 2, 3, 4)  # 5 first, which is also the number of tiles of the first keys
    for count_of_heads, learns, trunk_tiles, tiles in product(heads, (True, False), (3, 0), (2, 20, 7)):
        shape = (1, count_of_heads, 16 * tiles - 5, 4)
        layout = causal(16 * trunk_tiles, shape[2])
        query = torch.randn(shape, requires_grad=learns)
        key = torch.randn(1, count_of_heads, layout.keys, 4, requires_grad=learns)
        found = flex(query, key, key, block_mask=block_mask(layout, 16), scale=0.5, enable_gqa=True)
        expected = F.scaled_dot_product_attention(query, key, key, dense_mask(layout), scale=0.5)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    # With and without gradient for every number of heads: more than torch's limit of 8.
    assert len(graphs) == 2 * len(heads)
