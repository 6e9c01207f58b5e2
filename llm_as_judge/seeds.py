"""Derived seeds: everything random in training follows from ``training.seed`` and what is named here.

A step's seeds name the step, a rollout's and a request's their content, so that a run resumes without the states of
generators, and neither order nor timing changes a reply.
"""

import hashlib


def derived_seed(*parts: object) -> int:
    """Derive a seed in [0, 2**31) from the text of ``parts``, as run, problem and prompt; equal in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1
