"""What the policy computes with: one thread, a device, its precision."""

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import torch

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.limits import SMALL_MODEL

P = ParamSpec("P")
T = TypeVar("T")

#: OpenMP keeps a team of threads for each thread that computes. Once teams have more threads than there are cores,
#: they sleep between operations: on two cores SmolLM2's products then take 1.3 times as long.
_THREAD = ThreadPoolExecutor(1, "device")


async def on_device(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``work`` in the process's only thread for loading, sampling, scoring and updates.

    The event loop stays free for endpoints and workflows. Work that has begun is always finished, even if cancelled,
    because stopping it could leave the weights half updated.
    """
    future = asyncio.get_running_loop().run_in_executor(_THREAD, functools.partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        with contextlib.suppress(Exception):
            future.result()  # the cancellation takes precedence over the work's own error
        raise


def resolve_device(name: str) -> torch.device:
    """Choose the device by name; ``auto`` is cuda if available, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was compiled with CUDA
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"model.device={name!r} is not available: {reason}; use auto, cpu, cuda or cuda:N") from error
    return device


def resolve_dtype(name: str, device: torch.device, parameters: int) -> torch.dtype:
    """Choose the precision by name; ``auto`` is bfloat16 where it is fast, else float32.

    It is fast on CUDA and, except for small models, on CPUs with instructions for it (AVX512-BF16, AMX).
    """
    if name == "auto":
        native = torch.cpu.get_capabilities()  # emulation is several times slower than float32
        fast = native.get("avx512_bf16") or native.get("amx_bf16")
        on_cpu = device.type == "cpu" and parameters > SMALL_MODEL and fast
        name = "bfloat16" if device.type == "cuda" or on_cpu else "float32"
    if name == "bfloat16" and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        raise ConfigError(
            f"{torch.cuda.get_device_name(device)} has no bfloat16; set model.dtype=float32, or use a card of compute "
            "capability 8.0 or more"
        )
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def fit_threads(device: torch.device, parameters: int) -> None:
    """Limit torch to one thread for a small model on the CPU, unless ``OMP_NUM_THREADS`` is set.

    On two idle cores a second thread saves a tenth of the time. If one core is busy, two threads take five times as
    long as one, because they spin while they wait for each other.
    """
    if parameters < SMALL_MODEL and device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
