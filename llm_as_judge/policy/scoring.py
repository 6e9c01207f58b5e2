"""Log-probabilities of completions under a causal LM, in one of two layouts that give the same numbers; micro-batches.

padded: one row per sequence. tree: every shared prefix once, in one pass or, beyond a token budget, in stages. A stage
runs its prompts once. The completions then run in micro-batches on detached copies of the prompts' keys and values,
whose summed gradients go back through the prompts at the end of the stage. Memory therefore holds the prompts and one
micro-batch, and no activation is computed twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from llm_as_judge.policy import tree as prefix_tree
from llm_as_judge.policy.attention import KeyValue, Tree, kernel_for, row_hidden
from llm_as_judge.policy.forward import logits_of, own_precision
from llm_as_judge.policy.limits import CPU_LOGIT_ELEMENTS, CPU_ROW_TOKENS, LOGIT_ELEMENTS
from llm_as_judge.policy.sampling import Sampling, sampling_logprobs
from llm_as_judge.policy.tree import Stage
from llm_as_judge.types import Completion

Layout = Literal["padded", "tree"]

#: The tree layout is used if it forwards at most this share of the padded tokens; above, the overhead is not worth it.
WORTH_SHARING = 0.95


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores per completion token, right-padded to the longest completion of the batch; padding is 0."""

    logprobs: Tensor  # [B, T] float32
    entropy: Tensor  # [B, T], detached
    mask: Tensor  # [B, T] bool, True at sampled tokens, not at those of user turns


#: Indices of some completions, and their scores, row by row.
MicroBatch = tuple[tuple[int, ...], TokenScores]


def score(base: Any, completions: Sequence[Completion], sampling: Sampling, layout: Layout) -> TokenScores:
    """Score all ``completions`` in one forward pass. Raises ``ValueError`` if there is none, or an empty one."""
    _check(completions)
    if layout == "padded":
        targets = torch.tensor([t for c in completions for t in c.token_ids])
        hidden = _padded_hidden(base, completions)
        return _scores(base, hidden, targets, torch.arange(len(targets)), completions, sampling)
    tree = prefix_tree.plan(*_sequences(completions))
    hidden = row_hidden(base, tree, Tree(tree.layout, kernel_for(base.device)))
    hidden = hidden.index_select(0, tree.rows.to(base.device))  # indexing adds up its gradient in any order on a CPU
    return _scores(base, hidden, tree.targets, tree.edge, completions, sampling)


def micro_batches(
    base: Any, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
) -> Iterator[MicroBatch]:
    """Score in micro-batches of at most ``budget`` forwarded tokens, or of one longer sequence.

    On a CPU, the tree layout forwards all prompts that fit the budget (one by one if they share nothing), then
    ``CPU_ROW_TOKENS`` tokens at a time. With gradient enabled, call ``backward`` for each micro-batch before taking the
    next: the prompts of a stage get their gradient after its last one. The micro-batches depend on the completions and
    the budget only.
    """
    _check(completions)
    if layout == "padded":
        lengths = [len(c.prompt_ids) + len(c.token_ids) - 1 for c in completions]
        for members in prefix_tree.padded_batches(lengths, budget):
            yield members, score(base, [completions[i] for i in members], sampling, layout)
        return
    tree = prefix_tree.plan(*_sequences(completions))
    row_budget = min(budget, CPU_ROW_TOKENS) if base.device.type == "cpu" else budget
    if tree.unique_tokens <= row_budget:
        yield tuple(range(len(completions))), score(base, completions, sampling, layout)
        return
    for stage in prefix_tree.stages(*_sequences(completions), budget, row_budget):
        yield from _staged(base, stage, completions, sampling)


def cheaper_layout(completions: Sequence[Completion]) -> Layout:
    """Choose ``tree`` if it forwards clearly fewer tokens than padded rows."""
    sequences = _sequences(completions)
    unique = prefix_tree.plan(*sequences).unique_tokens
    return "tree" if unique <= WORTH_SHARING * prefix_tree.padded_tokens(*sequences) else "padded"


def _staged(base: Any, stage: Stage, completions: Sequence[Completion], sampling: Sampling) -> Iterator[MicroBatch]:
    caught: dict[int, KeyValue] = {}
    kernel = kernel_for(base.device)
    trunk = row_hidden(base, stage.trunk, Tree(stage.trunk.layout, kernel, caught=caught))
    roots = [trunk, *(t for layer in sorted(caught) for t in caught[layer])]
    leaves = [t.detach().requires_grad_(torch.is_grad_enabled() and t.requires_grad) for t in roots]
    past = list(zip(leaves[1::2], leaves[2::2], strict=True))
    for tree, members in zip(stage.micro_batches, stage.members, strict=True):
        hidden = leaves[0]
        if tree.unique_tokens:
            hidden = torch.cat([row_hidden(base, tree, Tree(tree.layout, kernel, past=past)), leaves[0]])
        hidden = hidden.index_select(0, tree.rows.to(hidden.device))
        yield members, _scores(base, hidden, tree.targets, tree.edge, [completions[i] for i in members], sampling)
    reached = [(root, leaf.grad) for root, leaf in zip(roots, leaves, strict=True) if leaf.grad is not None]
    if reached:
        torch.autograd.backward([root for root, _ in reached], [grad for _, grad in reached])


def _padded_hidden(base: Any, completions: Sequence[Completion]) -> Tensor:
    """Compute hidden states [M, hidden] that predict the completion tokens, one sequence after the other."""
    sequences = [[*c.prompt_ids, *c.token_ids[:-1]] for c in completions]
    ids = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.long)
    where = torch.zeros_like(ids, dtype=torch.bool)
    for row, (sequence, completion) in enumerate(zip(sequences, completions, strict=True)):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        where[row, len(completion.prompt_ids) - 1 : len(sequence)] = True
    # Right padding with causal attention: no real token sees padding, so no mask is needed.
    with own_precision(base):
        out = base.get_decoder()(input_ids=ids.to(base.device), use_cache=False)
    hidden: Tensor = out.last_hidden_state[where.to(base.device)]
    return hidden


def _scores(
    base: Any, hidden: Tensor, targets: Tensor, edge: Tensor, completions: Sequence[Completion], sampling: Sampling
) -> TokenScores:
    """Score completion tokens from the hidden states [E, hidden] of the edges (hidden state, target)."""
    device = hidden.device
    logprobs, entropy = _head(base, hidden, targets.to(device), sampling)
    lengths = [len(c.token_ids) for c in completions]
    within = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # [B, T]
    sampled = torch.tensor([own for c in completions for own in c.sampled])
    mask = torch.zeros_like(within).masked_scatter(within, sampled)
    within, edge = within.to(device), edge.to(device)

    def rows(values: Tensor) -> Tensor:
        return values.new_zeros(within.shape).masked_scatter(within, values.index_select(0, edge))

    return TokenScores(rows(logprobs), rows(entropy), mask.to(device))


def _head(base: Any, hidden: Tensor, targets: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Compute log-probs and entropies [E]; logits are computed in chunks."""

    def chunk_scores(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        support = sampling_logprobs(logits_of(base, states), sampling, keep=ids)
        with torch.no_grad():
            entropy = support.entropy()
        return support.of(ids), entropy

    elements = CPU_LOGIT_ELEMENTS if hidden.device.type == "cpu" else LOGIT_ELEMENTS
    rows = max(1, elements // base.config.get_text_config().vocab_size)
    if len(targets) <= rows:
        return chunk_scores(hidden, targets)
    chunks = [
        checkpoint(chunk_scores, hidden[i : i + rows], targets[i : i + rows], use_reentrant=False)
        for i in range(0, len(targets), rows)
    ]
    logprobs, entropy = (torch.cat(values) for values in zip(*chunks, strict=True))
    return logprobs, entropy


def _check(completions: Sequence[Completion]) -> None:
    if not completions or any(not c.token_ids for c in completions):
        raise ValueError("every completion needs at least one token, and the batch at least one completion")


def _sequences(completions: Sequence[Completion]) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    return [c.prompt_ids for c in completions], [c.token_ids for c in completions]
