"""Claims about the radix tree: every sequence is a path of it, and no prefix occurs twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.rl.prefix_tree import TreePlan, plan

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def paths(tree: TreePlan, prompts: list[list[int]], completions: list[list[int]]) -> list[list[int]]:
    """The sequence that each completion's predicting rows see, by their nodes' ancestors."""
    found, at = [], 0
    for completion in completions:
        row = int(tree.rows[at + len(completion) - 1])
        node = next(n for n in tree.nodes if n.start <= row < n.end)
        rows = [r for a, b in node.ancestors for r in range(a, b)] + list(range(node.start, row + 1))
        assert tree.positions[rows].tolist() == list(range(len(rows)))
        found.append(tree.ids[rows].tolist())
        at += len(completion)
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=8), st.integers(1, 4))
def test_every_sequence_is_a_path(pairs: list[tuple[list[int], list[int]]], min_share: int) -> None:
    prompts, completions = [p for p, _ in pairs], [c for _, c in pairs]
    tree = plan(prompts, completions, min_share)
    sequences = [p + c[:-1] for p, c in pairs]
    assert paths(tree, prompts, completions) == sequences
    assert tree.targets.tolist() == [t for c in completions for t in c]
    unique = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    if min_share == 1:
        assert tree.unique_tokens == len(unique)
    assert len(unique) <= tree.unique_tokens <= sum(map(len, sequences))


def test_the_reference_workload_shrinks_six_times() -> None:
    system = list(range(1500))
    prompts = [system + [10_000 + i] * 300 for i in range(4) for _ in range(6)]
    completions = [[20_000 + i] * 225 for i in range(24)]
    tree = plan(prompts, completions)
    assert tree.unique_tokens == 1500 + 4 * 300 + 24 * 224
    assert sum(len(p) + 225 for p in prompts) / tree.unique_tokens > 6


def test_empty_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        plan([[1]], [[]])
