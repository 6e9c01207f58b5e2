"""A base that no GPU holds alone, spread over those of all ranks by FSDP2 (``torch.distributed.fsdp.fully_shard``).

Every layer's frozen weights lie in equal parts on the ranks and come together where the layer computes, forward and
backward. Adapter, embeddings, norms and head are whole on each. As the ranks wait for each other in every layer, each
makes as many passes as every other (``passes``), and none can use the base by itself: who samples is a vLLM server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.scoring import Layout
from llm_as_judge.types import Completion


def shard(policy: Policy, device: str, size: int) -> None:
    """Spreads the base of ``policy``, which is on the CPU, over ``device`` of all ``size`` ranks, a layer at a time.

    Raises ``ConfigError`` for a model that does not name its layers.
    """
    base, on = policy.base, torch.device(device)
    decoder, adapter = base.get_decoder(), {p for name, p in base.named_parameters() if "lora_" in name}
    layers = [module for module in decoder.modules() if type(module).__name__ in (base._no_split_modules or ())]
    if not layers:
        raise ConfigError(f"training.shard_base: {base.config.model_type} names no layers to shard; set it to false")
    mesh = init_device_mesh(on.type, (size,))
    for layer in layers:
        kept = adapter & set(layer.parameters())
        _move(kept, on)
        fully_shard(layer, mesh=mesh, ignored_params=kept)
    rest = {parameter for parameter in base.parameters() if not isinstance(parameter, DTensor)}
    _move(rest | set(base.buffers()), on)
    # The root brings nothing together itself; the layers under it know of each other's turn.
    fully_shard(decoder, mesh=mesh, ignored_params=rest & set(decoder.parameters()))
    policy.sharded = True


def _move(tensors: set[Any], device: torch.device) -> None:
    for tensor in tensors:
        tensor.data = tensor.data.to(device)


def passes(completions: Sequence[Completion], layout: Layout, budget: int) -> list[list[int]]:
    """Neighbours for a forward pass each, of at most ``budget`` tokens where one sequence allows it."""
    found: list[list[int]] = []
    for i in range(len(completions)):
        if found and _tokens([completions[j] for j in (*found[-1], i)], layout) <= budget:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _tokens(completions: Sequence[Completion], layout: Layout) -> int:
    if layout == "padded":
        return len(completions) * max(len(c.prompt_ids) + len(c.token_ids) - 1 for c in completions)
    return sum(map(len, {c.prompt_ids for c in completions})) + sum(len(c.token_ids) for c in completions)
