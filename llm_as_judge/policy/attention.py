"""Attention over the row of a prefix tree, by three kernels that give the same numbers.

cascade (CPU): one flash attention call per piece of the layout; partial results are merged by their log-sum-exps, and
no mask is built. flex (CUDA): FlexAttention with one look-up per key. dense (other devices, and the reference): a
boolean mask of the whole row.

All are registered with transformers under one name, ``ATTENTION``. A model with that attention computes plain attention
unless a forward pass gets ``tree=``. Gradient checkpointing, which calls attention again in the backward pass, then
uses the right one too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from llm_as_judge.policy.forward import own_precision
from llm_as_judge.policy.tree import Pattern, Piece, TreePlan, dense_mask

ATTENTION = "llm_as_judge_prefix_tree"
DECODE = "llm_as_judge_decode"
Kernel = Literal["cascade", "flex", "dense"]
KeyValue = tuple[Tensor, Tensor]  # each [1, heads, T, D]

#: Up to this number of keys the backward of a piece runs in float32 on the CPU: in bfloat16 that kernel packs its
#: operands, which costs up to five times as much as the products of a short piece.
SHORT = 256

#: Tile of FlexAttention's block mask, in tokens.
BLOCK = 128

#: Compilations of FlexAttention in one process.
RECOMPILE_LIMIT = 64

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(slots=True)
class Tree:
    """Argument ``tree=`` of the attention layers, passed through the model.

    ``past``: per layer, keys and values of a trunk that precede those of the row. ``caught``: filled with the keys and
    values of the row, per layer.
    """

    layout: Pattern
    kernel: Kernel
    past: Sequence[KeyValue] | None = None
    caught: dict[int, KeyValue] | None = None
    _mask: Tensor | BlockMask | None = field(default=None, init=False)

    def mask(self, device: torch.device) -> Tensor | BlockMask:
        if self._mask is None:
            make: Callable[[Pattern], Tensor | BlockMask] = dense_mask if self.kernel == "dense" else block_mask
            first, last = self.layout.first.to(device), self.layout.last.to(device)
            self._mask = make(replace(self.layout, first=first, last=last))
        return self._mask


def kernel_for(device: torch.device) -> Kernel:
    kernels: dict[str, Kernel] = {"cpu": "cascade", "cuda": "flex"}
    return kernels.get(device.type, "dense")


def row_hidden(base: Any, tree: TreePlan, attention: Tree) -> Tensor:
    """Compute the last hidden states [T, hidden] of a row."""
    device = base.device
    with own_precision(base):
        out = base.get_decoder()(
            input_ids=tree.ids[None].to(device),
            position_ids=tree.positions[None].to(device),
            # Ignored by ``attention``. Without a four-dimensional mask, transformers would take decreasing positions
            # for the beginnings of packed documents.
            attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
            use_cache=False,
            tree=attention,
        )
    hidden: Tensor = out.last_hidden_state[0]
    return hidden


def decode_attention(
    module: Any,
    query: Tensor,  # [rows, H, 1, D]
    key: Tensor,  # [rows, heads, 1, D]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    store: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Decode one step by ``store.attend``, the cache's own attention. Returns [rows, 1, H, D]."""
    if store is None:
        raise RuntimeError(f"attention {DECODE!r} is only for decoding by LocalEngine and Answerer")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return store.attend(module.layer_idx, query, key, value, scale), None


def attention(
    module: Any,
    query: Tensor,  # [1, H, T, D]
    key: Tensor,  # [1, heads, T, D]
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    tree: Tree | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend for transformers: plain attention without ``tree``. Returns [1, T, H, D]."""
    if tree is None:
        kwargs |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if dropout:
        raise RuntimeError(f"a shared prefix has one activation for many sequences: no dropout, got {dropout}")
    if tree.caught is not None:
        # Keep the first tensors: gradient checkpointing calls this again, with others that get no gradient.
        tree.caught.setdefault(module.layer_idx, (key, value))
    if tree.past is not None:
        past_key, past_value = tree.past[module.layer_idx]
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if tree.kernel == "cascade":
        out = cast(Tensor, _Cascade.apply(query, key, value, scale, tree.layout.pieces))  # type: ignore[no-untyped-call]
    else:
        mask = tree.mask(query.device)
        share = query.shape[1] // key.shape[1]
        if isinstance(mask, BlockMask):
            if share & (share - 1):  # FlexAttention needs a power of two
                key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
            # Its other kernel, for rows of less than a block, lacks some precisions and would be compiled besides.
            one = {"FORCE_USE_FLEX_ATTENTION": True}
            options = {"block_mask": mask, "scale": scale, "enable_gqa": True, "kernel_options": one}
            out = cast(Tensor, _flex()(query, key, value, **options))
        else:
            key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    return out.transpose(1, 2).contiguous(), None


def block_mask(layout: Pattern, block: int = BLOCK) -> BlockMask:
    """Make FlexAttention's block mask from the layout's intervals, without a token-by-token mask.

    A tile is empty if no key's interval meets its queries, and full if all keys' intervals cover them.
    """
    device = layout.first.device
    keys, queries = layout.keys, layout.queries
    tiles = -(-queries // block)
    begin = torch.arange(tiles, device=device)[:, None] * block  # [q tiles, 1]
    end = (begin + block).clamp(max=queries)
    meets = (layout.first < end) & (layout.last > begin)  # [q tiles, K]
    covers = (layout.first <= begin) & (layout.last >= end)
    fill = -keys % block
    some = F.pad(meets, (0, fill)).view(tiles, -1, block).any(-1)  # [q tiles, k tiles]
    # A tile that extends beyond the row is never full, so the kernel checks its keys one by one.
    full = F.pad(covers, (0, fill)).view(tiles, -1, block).all(-1)
    first, last = layout.first, layout.last

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= first[key]) & (query < last[key])

    def table(blocks: Tensor) -> tuple[Tensor, Tensor]:
        count = blocks.sum(-1, dtype=torch.int32)
        order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
        return count[None, None], order.int()[None, None]

    mask = BlockMask.from_kv_blocks(
        *table(some & ~full), *table(full), BLOCK_SIZE=block, mask_mod=sees, seq_lengths=(queries, keys)
    )
    for blocks in mask.as_tuple():
        if isinstance(blocks, Tensor):  # torch takes a number of tiles for that of the heads if they are equal
            torch._dynamo.maybe_mark_dynamic(blocks, tuple(range(2, blocks.dim())))
    return mask


class _Cascade(torch.autograd.Function):
    """One flash attention call per piece, merged by log-sum-exp.

    Backward runs every piece with the *merged* output and log-sum-exp: its gradient is then exactly that piece's share
    of the gradient of the whole softmax. (Merging by autograd is impossible: the kernel's backward accepts no gradient
    for a log-sum-exp.)
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, pieces: tuple[Piece, ...]) -> Tensor:
        wide = torch.promote_types(query.dtype, torch.float32)
        out = torch.zeros(query.shape, dtype=wide, device=query.device)
        lse = torch.full(query.shape[:3], -torch.inf, dtype=wide, device=query.device)  # [1, H, T]
        for p in pieces:
            q, k, v = _fold(query[:, :, p.q0 : p.q1], key, value, p)
            part, part_lse = _flash(q, k, v, 0.0, p.causal, scale=scale)
            before, rows = lse[:, :, p.q0 : p.q1], out[:, :, p.q0 : p.q1]
            part_lse = part_lse.reshape(before.shape).to(wide)
            merged = torch.logaddexp(before, part_lse)
            rows.mul_((before - merged).exp_()[..., None])
            rows.addcmul_(part.reshape(rows.shape).to(wide), (part_lse - merged).exp_()[..., None])
            before.copy_(merged)
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale, ctx.pieces = scale, pieces
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        wide = lse.dtype
        grads = [torch.zeros(t.shape, dtype=wide, device=t.device) for t in (query, key, value)]
        for p in ctx.pieces:
            rows = slice(p.q0, p.q1)
            q, k, v = _fold(query[:, :, rows], key, value, p)
            g, o = (t[:, :, rows].reshape(q.shape) for t in (gradients[0], out))
            part_lse = lse[:, :, rows].reshape(q.shape[:3])
            if p.k1 - p.k0 <= SHORT:
                g, q, k, v, o = (t.to(wide) for t in (g, q, k, v, o))
            own_grads = _flash_backward(g, q, k, v, o, part_lse, 0.0, p.causal, scale=ctx.scale)
            grads[0][:, :, rows] += own_grads[0].reshape(grads[0][:, :, rows].shape)
            for whole, part in zip(grads[1:], own_grads[1:], strict=True):
                heads, length = whole.shape[1], p.k1 - p.k0
                part = part.reshape(1, heads, -1, length, part.shape[-1])
                whole[:, :, p.k0 : p.k1] += part.sum(2) if part.shape[2] > 1 else part[:, :, 0]
        query_grad, key_grad, value_grad = (g.to(query.dtype) for g in grads)
        return query_grad, key_grad, value_grad, None, None


def _fold(query: Tensor, key: Tensor, value: Tensor, piece: Piece) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of a piece with equal numbers of heads.

    If all queries see all keys, the query heads of a group become further rows of one key head; a causal piece needs
    its (few) keys repeated instead.
    """
    heads, share = key.shape[1], query.shape[1] // key.shape[1]
    key, value = key[:, :, piece.k0 : piece.k1], value[:, :, piece.k0 : piece.k1]
    if share == 1:
        return query, key, value
    if not piece.causal:
        return query.reshape(1, heads, share * query.shape[2], query.shape[3]), key, value
    return query, key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)


@cache
def _flex() -> Callable[..., Any]:
    """Compile FlexAttention for all row lengths; raises instead of using the eager kernel, which would run out of
    memory.

    Rows of one or more tiles, whole or after a trunk, with and without gradient are compiled separately: more often
    than torch's limit for one function.
    """
    compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True)
    # torch 2.6 knows the limit by this name only, later releases also as recompile_limit.
    limited: Callable[..., Any] = torch._dynamo.config.patch(cache_size_limit=RECOMPILE_LIMIT)(compiled)
    return limited


AttentionInterface.register(ATTENTION, attention)
AttentionInterface.register(DECODE, decode_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
