"""A decoding step as a CUDA graph: its hundreds of small kernels cost one launch.

Started one by one from Python they take many times as long as they compute.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def replayable(step: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """``step``, on a CUDA device captured so that a call repeats its kernels on the same memory.

    ``step`` may read and write only tensors that outlive the result, must do the same when it is repeated at once, and
    must not wait for the device.
    """
    if device.type != "cuda":
        return step
    current, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        step()  # libraries choose their kernels and take memory, which a capture forbids
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = step()

    def replay() -> Tensor:
        graph.replay()
        return result.clone()  # the next call writes to the same memory

    return replay
