"""Several processes of one run, started by ``torchrun``, that share its update.

Rank 0 runs the loop: it alone draws, samples, executes, judges, logs and saves. It tells the others what to do, who
wait for that (``tell``, ``hear``) over connections of the CPU: they may wait for hours, and no GPU is held meanwhile.
``accelerate`` adds the gradients up, by NCCL between GPUs and by gloo between CPUs. A single process is ``ALONE``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as distributed
from accelerate import PartialState
from accelerate.utils import reduce, send_to_device
from torch import Tensor

from llm_as_judge.errors import ConfigError, LLMAsJudgeError
from llm_as_judge.types import Completion

#: Rank 0 may wait for its workflows as long as it likes; that a process has ended is seen at once, by its connections.
_WAITING = timedelta(days=30)
#: Of an update all ranks do about as much.
_TALKING = timedelta(minutes=30)


class RankFailed(LLMAsJudgeError):
    """Another rank failed, and told why."""


class RankLost(LLMAsJudgeError):
    """Another rank is gone, or does not answer any more."""


class Ranks(Protocol):
    """All processes of a run, as one of them sees them: it is ``rank`` of ``size``."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def tell(self, message: object) -> None:
        """Rank 0 tells every other."""

    def hear(self) -> Any:
        """What rank 0 tells next; None at the end."""

    def together(self, tied: bool = False) -> AbstractContextManager[None]:
        """A block that every rank goes through. Where it fails on one, it raises on all: ``RankFailed`` on others.

        Ranks that are ``tied`` wait for each other inside it, and only the end of the failed process frees them.
        """

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over all ranks, on each the same bits; ``values`` may be changed."""

    def compare(self, what: str, parameters: Sequence[Tensor]) -> None:
        """Raises ``RankFailed`` where ``parameters`` are not the same on all ranks."""


class Alone:
    """The one process of a run."""

    rank, size = 0, 1

    def tell(self, message: object) -> None: ...

    def hear(self) -> Any:
        return None

    def together(self, tied: bool = False) -> AbstractContextManager[None]:
        return nullcontext()

    def add_up(self, values: Tensor) -> Tensor:
        return values

    def compare(self, what: str, parameters: Sequence[Tensor]) -> None: ...


ALONE = Alone()


class Team:
    """The processes that a launcher has started, by its environment variables (``RANK``, ``WORLD_SIZE`` and so on)."""

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
        with _peers():
            distributed.broadcast_object_list([message], src=0, group=self._waiting)

    def hear(self) -> Any:
        told: list[Any] = [None]
        with _peers():
            distributed.broadcast_object_list(told, src=0, group=self._waiting)
        self._ended = told[0] is None
        return told[0]

    @contextmanager
    def together(self, tied: bool = False) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if tied:
                self._ended = True
                if _of_a_connection(cause := error.__cause__ or error):  # whatever those who compute took it for
                    raise _lost(cause) from error
            else:
                with suppress(RankLost):
                    self._told_by_all(f"{type(error).__name__}: {error}")
            raise
        if failed := [f"rank {rank}: {text}" for rank, text in enumerate(self._told_by_all("")) if text]:
            raise RankFailed("; ".join(failed))

    def add_up(self, values: Tensor) -> Tensor:
        with _peers():
            total: Tensor = reduce(values, "sum")
        return total

    def compare(self, what: str, parameters: Sequence[Tensor]) -> None:
        # A number that the slightest difference of a weight changes.
        values = self._told_by_all(float(sum(parameter.detach().double().sum() for parameter in parameters)))
        if len(set(values)) > 1:
            raise RankFailed(
                f"{what} is not the same on all ranks: {values}; --resume goes on from the last checkpoint"
            )

    def leave(self) -> None:
        """Rank 0 ends the run; the others wait for that, so that they are not taken for lost."""
        with suppress(RankLost):
            if self.rank == 0:
                self.tell(None)
            while self.rank and not self._ended:
                self.hear()
        distributed.destroy_process_group()

    def _told_by_all(self, value: Any) -> list[Any]:
        values = [value] * self.size
        with _peers():
            distributed.all_gather_object(values, value, group=self._talking)
        return values


@contextmanager
def join() -> Iterator[Team | Alone]:
    """All processes of this run, as long as the block lasts: those that a launcher has started, or this one alone."""
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
    """What the libraries say of a rank that is gone becomes ``RankLost``."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise _lost(error) from error


def _lost(error: BaseException) -> RankLost:
    reason = str(error).strip().partition("\n")[0]
    return RankLost(
        f"another process of this run has ended or does not answer ({reason}); what it said last tells why, and "
        "--resume goes on from the last checkpoint"
    )


def _of_a_connection(error: BaseException) -> bool:
    return isinstance(error, distributed.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


@dataclass(frozen=True, slots=True)
class State:
    """What a loop has come to: weights and optimiser on the CPU, and optimiser steps."""

    weights: Sequence[Tensor]
    optimizer: dict[str, Any]
    steps: int


def share_state(ranks: Ranks, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Rank 0 tells the others its ``State``, which they take by ``take_state``."""
    if ranks.size > 1:
        weights = [parameter.detach().cpu() for parameter in parameters]
        moments: Any = send_to_device(optimizer.state_dict(), "cpu")
        ranks.tell(State(weights, moments, steps))


def take_state(state: State, parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
    with torch.no_grad():
        for parameter, weight in zip(parameters, state.weights, strict=True):
            parameter.copy_(weight)
    optimizer.load_state_dict(state.optimizer)


def add_up_gradients(ranks: Ranks, parameters: Sequence[Tensor]) -> None:
    """Sums, not means: every rank's share has the whole step's divisors already."""
    if ranks.size > 1:
        for parameter in parameters:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = ranks.add_up(grad)


def spread(completions: Sequence[Completion], size: int) -> list[list[int]]:
    """Which ``completions`` each of ``size`` ranks computes, in their order: those of a prompt together, for they share
    it, and about as many tokens on each. Prompts are cut in two where there are fewer of them than ranks.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, completion in enumerate(completions):
        groups.setdefault(completion.prompt_ids, []).append(i)
    parts = list(groups.values())

    def tokens(part: Sequence[int]) -> int:
        return len(completions[part[0]].prompt_ids) + sum(len(completions[i].token_ids) for i in part)

    while len(parts) < min(size, len(completions)):
        largest = max((part for part in parts if len(part) > 1), key=tokens)
        parts.remove(largest)
        half = len(largest) // 2
        parts += [largest[:half], largest[half:]]
    shares: list[list[int]] = [[] for _ in range(size)]
    loads = [0] * size
    for part in sorted(parts, key=lambda part: (-tokens(part), part)):
        least = loads.index(min(loads))
        shares[least] += part
        loads[least] += tokens(part)
    return [sorted(share) for share in shares]
