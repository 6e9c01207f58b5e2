"""Correctness: the verdict on the reward's scale. Partial credit of the official metrics is left out on
purpose.
"""

from __future__ import annotations

RIGHT = 10.0
WRONG = -5.0


def correctness(correct: bool) -> float:
    """10 for a right answer, -5 for a wrong one (and, by ``total``, for a run without an answer)."""
    return RIGHT if correct else WRONG
