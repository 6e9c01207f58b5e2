"""What every benchmark here shares: interleaved rounds in CPU seconds, claims as ratios, one JSON line at the end.

CPU seconds, because machines are shared; one thread, because the models are tiny; medians over interleaved rounds,
so that a slow minute hits all sides.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Claim:
    """A number that is to be at least ``goal``, or ``at_most`` that."""

    value: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def as_json(self) -> dict[str, float | bool]:
        return {"value": round(self.value, 3), "goal": self.goal, "met": self.met}


def seconds(device: str = "cpu") -> float:
    """CPU seconds so far; with a GPU, seconds on the clock when it has finished its work."""
    if not device.startswith("cuda"):
        return time.process_time()
    import torch

    torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_bytes(device: str = "cpu") -> float:
    """Most memory used so far: of the process, or allocated on the GPU."""
    if not device.startswith("cuda"):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    import torch

    return float(torch.cuda.max_memory_allocated(device))


def median_seconds(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    warm: bool = True,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Median seconds of every side, CPU time unless ``clock`` tells another; each runs once unmeasured where ``warm``,
    then ``rounds`` times in turn.
    """
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for work in sides.values() if warm else ():
        work()
    for _ in range(rounds):
        for name, work in sides.items():
            begun = clock()
            work()
            spent[name].append(clock() - begun)
    return {name: median(values) for name, values in spent.items()}


def report(title: str, rows: Mapping[str, str], claims: Mapping[str, Claim], as_json: bool) -> None:
    """Rows for people, or all as one JSON object for programs."""
    if as_json:
        print(json.dumps({"rows": rows, "claims": {name: claim.as_json() for name, claim in claims.items()}}))
        return
    print(title)
    for name, text in rows.items():
        print(f"  {name:<44} {text}")
    for name, claim in claims.items():
        goal = f"at most {claim.goal:g}" if claim.at_most else f"{claim.goal:g}"
        print(f"  {name:<44} {claim.value:.2f} (goal {goal}: {'met' if claim.met else 'missed'})")
