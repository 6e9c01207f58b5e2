"""Efficiency: executor tokens as the host metered them. Wall time is left out: queueing is not the policy's
fault.
"""

from __future__ import annotations


def efficiency(tokens: int, token_budget: int) -> float:
    """10 for no tokens, falling linearly to 0 at ``token_budget``."""
    return min(10.0, max(0.0, 10.0 * (1.0 - tokens / token_budget)))
