"""Derived seeds: everything random in a run follows from ``training.seed`` and what is named here.

Generators are seeded by where the run is (``stream_seed``, ``evaluation_seed``), so that it resumes without their
states; requests and rollouts by their content (``derived_seed``), so that neither order nor timing changes a reply.
"""

import hashlib


def stream_seed(seed: int, step: int, stream: int) -> int:
    """Derive a step's seed; stream 0: its batch, 1: shuffled rewards, above: refills, repairs, below: rollouts."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}/{stream}".encode()).digest()[:7], "big")


def evaluation_seed(seed: int, start: int, repair: bool = False) -> int:
    """Derive the seed of what a policy writes for held-out problems from number ``start`` on, or rewrites of them."""
    return seed + start + (2_000_003 if repair else 1_000_003)


def derived_seed(*parts: object) -> int:
    """Derive a seed in [0, 2**31) from the text of ``parts``, as run, problem and prompt; equal in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1
