"""Data-parallel updates: several processes of one run, started by ``torchrun``.

Rank 0 alone samples, executes, judges, logs and saves. The other ranks wait for its messages (``tell``, ``hear``),
which go through the CPU, so that waiting for hours occupies no GPU. ``accelerate`` sums the gradients, with NCCL
between GPUs and gloo between CPUs. A single process is ``ALONE``.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed
from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor

from llm_as_judge.errors import ConfigError, LLMAsJudgeError
from llm_as_judge.types import Completion

#: Rank 0 may wait for its workflows as long as necessary; a process that ends is noticed by its closed connections.
_WAITING = timedelta(days=30)
#: During an update all ranks do about the same amount of work.
_TALKING = timedelta(minutes=30)


class RankFailed(LLMAsJudgeError):
    """Another rank raised an error."""


class RankLost(LLMAsJudgeError):
    """Another rank has ended or does not answer."""


class Alone:
    """The only process of a run; methods as in ``Team``."""

    rank, size = 0, 1

    def tell(self, message: object) -> None: ...

    def hear(self) -> Any:
        return None

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def add_up(self, values: Tensor) -> Tensor:
        return values

    def compare(self, what: str, parameters: Sequence[Tensor]) -> None: ...


class Team:
    """Process ``rank`` of ``size`` that a launcher started, by its environment variables (``RANK``, ``WORLD_SIZE``)."""

    def __init__(self) -> None:
        cuda, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if 0 < cuda < here:
            raise ConfigError(f"{here} processes on a machine with {cuda} GPUs; start as many as there are GPUs")
        state = PartialState(backend="cuda:nccl,cpu:gloo") if cuda else PartialState(cpu=True)
        self.rank: int = state.process_index
        self.size: int = state.num_processes
        self.device: torch.device = state.device
        self._ended = False
        self._waiting = distributed.new_group(backend="gloo", timeout=_WAITING)
        self._talking = distributed.new_group(backend="gloo", timeout=_TALKING)

    def tell(self, message: object) -> None:
        """Send ``message`` from rank 0 to all others."""
        with _peers():
            distributed.broadcast_object_list([message], src=0, group=self._waiting)

    def hear(self) -> Any:
        """Wait for the next message of rank 0; None at the end of the run."""
        heard: list[Any] = [None]
        with _peers():
            distributed.broadcast_object_list(heard, src=0, group=self._waiting)
        self._ended = heard[0] is None
        return heard[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block that every rank executes. If it fails on one rank, the others raise ``RankFailed``."""
        try:
            yield
        except Exception as error:
            with suppress(RankLost):
                self._gather(f"{type(error).__name__}: {error}")
            raise
        if failed := [f"rank {rank}: {text}" for rank, text in enumerate(self._gather("")) if text]:
            raise RankFailed("; ".join(failed))

    def add_up(self, values: Tensor) -> Tensor:
        """Sum over all ranks, bit-identical on each; ``values`` may be changed."""
        with _peers():
            total: Tensor = reduce(values, "sum")
        return total

    def compare(self, what: str, parameters: Sequence[Tensor]) -> None:
        """Raise ``RankFailed`` if ``parameters`` are not the same on all ranks."""
        # A number that changes with the slightest difference in a weight.
        values = self._gather(float(sum(parameter.detach().double().sum() for parameter in parameters)))
        if len(set(values)) > 1:
            raise RankFailed(f"{what} differs between ranks: {values}; --resume continues from the last checkpoint")

    def leave(self) -> None:
        """End the run on rank 0. The other ranks wait for this, so that they are not considered lost."""
        with suppress(RankLost):
            if self.rank == 0:
                self.tell(None)
            while self.rank and not self._ended:
                self.hear()
        distributed.destroy_process_group()

    def _gather(self, value: Any) -> list[Any]:
        values = [value] * self.size
        with _peers():
            distributed.all_gather_object(values, value, group=self._talking)
        return values


Ranks = Alone | Team
ALONE = Alone()


@contextmanager
def join() -> Iterator[Ranks]:
    """Join the processes of this run: those that a launcher started, or only this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    with _peers():
        team = Team()
    try:
        yield team
    finally:
        team.leave()


@contextmanager
def _peers() -> Iterator[None]:
    """Turn the libraries' errors about a missing rank into ``RankLost``."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise RankLost(
            f"another process of this run has ended or does not answer ({reason}); its last output says why, and "
            "--resume continues from the last checkpoint"
        ) from error


def add_up_gradients(ranks: Ranks, parameters: Sequence[Tensor]) -> None:
    """Sum gradients over ranks. Not a mean: every share is already divided by the size of the whole step."""
    if ranks.size > 1:
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        total = ranks.add_up(torch.cat([grad.flatten() for grad in own]))  # one message instead of one per adapter
        for parameter, grad in zip(parameters, torch.split(total, [p.numel() for p in parameters]), strict=True):
            parameter.grad = grad.view_as(parameter)


def divide(completions: Sequence[Completion], size: int) -> list[list[int]]:
    """Choose the completions of each of ``size`` ranks, by index, with about as many tokens on each.

    Completions of one prompt stay together to share it, unless there are fewer prompts than ranks.
    """
    groups: dict[object, list[int]] = {}
    for i, completion in enumerate(completions):
        groups.setdefault(completion.prompt_ids, []).append(i)
    parts = list(groups.values()) if len(groups) >= size else [[i] for i in range(len(completions))]

    def tokens(part: Sequence[int]) -> int:
        return len(completions[part[0]].prompt_ids) + sum(len(completions[i].token_ids) for i in part)

    shares: list[list[int]] = [[] for _ in range(size)]
    loads = [0] * size
    for part in sorted(parts, key=lambda part: (-tokens(part), part)):
        least = loads.index(min(loads))
        shares[least] += part
        loads[least] += tokens(part)
    return [sorted(share) for share in shares]
