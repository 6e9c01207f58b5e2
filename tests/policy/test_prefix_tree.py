"""The radix tree: sequences are paths, no prefix occurs twice, and keys are seen only by the queries below them."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, product
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as flex_module
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.policy import attention, tree
from llm_as_judge.policy.attention import block_mask
from llm_as_judge.policy.tree import Pattern, TreePlan, dense_mask, padded_tokens, plan, stages

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
PAIRS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=8)
SHARE = st.integers(1, 4)
Pairs = list[tuple[list[int], list[int]]]


def from_pieces(layout: Pattern) -> torch.Tensor:
    """[Q, K]: how often the pieces pair a query with a key."""
    seen = torch.zeros(layout.queries, layout.keys, dtype=torch.long)
    for p in layout.pieces:
        block = torch.ones(p.q1 - p.q0, p.k1 - p.k0, dtype=torch.long)
        seen[p.q0 : p.q1, p.k0 : p.k1] += block.tril() if p.causal else block
    return seen


def check_blocks(layout: Pattern, size: int = 4) -> None:
    """FlexAttention's table of tiles holds every pair of the mask, and calls a tile full only if it is."""
    mask, tiles = dense_mask(layout), block_mask(layout, size)
    assert tiles.full_kv_num_blocks is not None and tiles.full_kv_indices is not None
    for i in range(-(-layout.queries // size)):
        partial_ = tiles.kv_indices[0, 0, i, : tiles.kv_num_blocks[0, 0, i]].tolist()
        full = tiles.full_kv_indices[0, 0, i, : tiles.full_kv_num_blocks[0, 0, i]].tolist()
        for j in range(-(-layout.keys // size)):
            tile = mask[i * size : (i + 1) * size, j * size : (j + 1) * size]
            assert (j in partial_ or j in full) == bool(tile.any())
            assert j not in full or bool(tile.all())


def visible_paths(
    found: TreePlan, ends: Sequence[int], ids: torch.Tensor, positions: torch.Tensor, offset: int
) -> list[list[int]]:
    """The tokens that the last prediction of every completion sees, by depth; ``ends`` are those of the edges."""
    mask, paths = dense_mask(found.layout), []
    for end in ends:
        row = int(found.rows[found.edge[end - 1]])
        if row >= found.layout.queries:  # predicted by the trunk
            paths.append([])
            continue
        keys = torch.nonzero(mask[row])[:, 0]
        assert positions[keys].sort().values.tolist() == list(range(len(keys)))
        assert int(keys[-1]) == offset + row
        paths.append(ids[keys].tolist())
    return paths


@settings(max_examples=60)
@given(PAIRS, SHARE, st.integers(1, 30), st.integers(1, 30))
def test_a_row_and_its_stages_hold_every_sequence_once(pairs: Pairs, share: int, budget: int, rows: int) -> None:
    prompts, completions = [p for p, _ in pairs], [c for _, c in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "MIN_SHARE", share)
        whole, staged = plan(prompts, completions), stages(prompts, completions, budget, rows)
    sequences = [p + c[:-1] for p, c in pairs]
    ends = [*accumulate(map(len, completions))]
    assert visible_paths(whole, ends, whole.ids, whole.positions, 0) == sequences
    assert whole.targets[whole.edge].tolist() == [t for c in completions for t in c]
    unique = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert len(unique) <= whole.unique_tokens <= sum(map(len, sequences))
    if share == 1:
        assert whole.unique_tokens == len(unique)
        assert len(whole.targets) == len({(*p, *c[: i + 1]) for p, c in pairs for i in range(len(c))})

    assert sorted(i for s in staged for m in s.members for i in m) == list(range(len(pairs)))
    layouts = [whole.layout]
    for stage in staged:
        members = [i for m in stage.members for i in m]
        assert stage.trunk.unique_tokens <= budget or len({tuple(prompts[i]) for i in members}) == 1 or share > 1
        for row, own in zip(stage.micro_batches, stage.members, strict=True):
            assert row.unique_tokens <= rows or len(own) == 1
            ids, positions = (torch.cat([getattr(stage.trunk, n), getattr(row, n)]) for n in ("ids", "positions"))
            ends = [0, *accumulate(len(completions[i]) for i in own)]
            paths = visible_paths(row, ends[1:], ids, positions, stage.trunk.unique_tokens)
            assert paths == [sequences[i] if len(completions[i]) > 1 else [] for i in own]
            first = [int(row.rows[row.edge[end]]) - row.unique_tokens for end in ends[:-1]]
            for i, at in zip(own, first, strict=True):  # the prompt's last token predicts the first one
                assert stage.trunk.positions[at] == len(prompts[i]) - 1 and stage.trunk.ids[at] == prompts[i][-1]
            assert row.targets[row.edge].tolist() == [t for i in own for t in completions[i]]
            layouts += [row.layout] if row.unique_tokens else []
    for layout in layouts:
        assert torch.equal(from_pieces(layout), dense_mask(layout).long())
        check_blocks(layout)


def test_prompts_that_share_nothing_get_small_trunks_and_no_group_is_split() -> None:
    def trunks(common: int, row_budget: int) -> list[int]:
        prompts = [[*range(common), *range(1000 * i, 1000 * i + 300)] for i in range(1, 5) for _ in range(6)]
        staged = stages(prompts, [[7, 8]] * 24, 4096, row_budget)
        assert all(sum(map(len, stage.members)) % 6 == 0 for stage in staged)
        return [stage.trunk.unique_tokens for stage in staged]

    assert trunks(0, 1024) == [300] * 4
    assert trunks(200, 1024) == [200 + 4 * 300]
    assert trunks(0, 4096) == [4 * 300]  # a GPU, on which more tokens at a time are faster


def test_a_typical_batch_shrinks_six_times_and_long_chains_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    system = list(range(1500))
    prompts = [system + [10_000 + i] * 300 for i in range(4) for _ in range(6)]
    completions = [[20_000 + i] * 225 for i in range(24)]
    typical = plan(prompts, completions)
    assert typical.unique_tokens == 1500 + 4 * 300 + 24 * 224
    assert padded_tokens(prompts, completions) / typical.unique_tokens > 6
    monkeypatch.setattr(tree, "MIN_SHARE", 1)
    chain = plan([[0] * i for i in range(1, 501)], [[1]] * 500)
    assert chain.unique_tokens == 500 and len(chain.targets) == 500


def test_flex_attention_equals_the_dense_mask_and_is_compiled_per_kind_of_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo's graphs are counted by a backend that runs them eagerly, because FlexAttention trains on GPUs only."""
    graphs: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(flex_module, "_validate_device", lambda *_: None)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=count))
    flex = attention._flex.__wrapped__()
    heads = (5, 1, 2, 3, 4)  # 5 first, which is also the number of tiles of the first keys
    for count_of_heads, learns, past, tiles in product(heads, (True, False), (3, 0), (2, 20, 7)):
        prompt, own = [1] * (16 * past), [2] * (16 * tiles - 5)
        layout = (
            plan([own], [[3]]).layout
            if not past
            else stages([prompt], [[*own, 3]], 999, 999)[0].micro_batches[0].layout
        )
        query = torch.randn(1, count_of_heads, layout.queries, 4, requires_grad=learns)
        key = torch.randn(1, count_of_heads, layout.keys, 4, requires_grad=learns)
        found = flex(query, key, key, block_mask=block_mask(layout, 16), scale=0.5, enable_gqa=True)
        expected = F.scaled_dot_product_attention(query, key, key, dense_mask(layout), scale=0.5)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    # With and without gradient for every number of heads: more than torch's limit of 8.
    assert len(graphs) == 2 * len(heads)
