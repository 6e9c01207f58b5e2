"""Simplicity: how many operator calls the answer took, whatever each of them cost."""

from __future__ import annotations


def simplicity(calls: int, operator_budget: int) -> float:
    """10 up to one call, falling linearly to 0 at ``operator_budget`` calls."""
    return min(10.0, max(0.0, 10.0 * (operator_budget - calls) / (operator_budget - 1)))
