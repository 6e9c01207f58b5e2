"""What one workflow may spend on the executor: each call's worst case is reserved before the call is made.

The sum therefore stays below the bound however many calls are under way. A call whose longest reply does not fit gets a
shorter one; if not even one token is left, the run ends. Prices and tokens are the host's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.sandbox.operator_calls import BudgetExceeded

#: Upper bound on the tokens that a chat template adds to a prompt.
_TEMPLATE_TOKENS = 64


@dataclass(slots=True)
class Reservation:
    """One call under way: the longest reply it may ask for and, once it is back, what it took."""

    reply_tokens: int
    tokens: int = 0
    cost: float = 0.0


class Budget:
    """What one run may spend, bounded by ``config.max_tokens`` and ``config.max_cost``.

    ``executor`` has the prices, and the longest reply of calls that do not name one.
    """

    def __init__(self, config: WorkflowConfig, executor: EndpointConfig) -> None:
        self._config = config
        self._executor = executor
        self._tokens = 0  # spent and reserved
        self._cost = 0.0

    @contextmanager
    def call(self, prompt: str, reply_tokens: int | None) -> Iterator[Reservation]:
        """Reserve a call's worst case; on leaving, replace it by what the caller has set.

        Raises ``BudgetExceeded`` if not even one token of reply is left.
        """
        config, executor = self._config, self._executor
        # No tokenizer makes more tokens than there are bytes.
        prompt_tokens = len(prompt.encode("utf-8", "replace")) + _TEMPLATE_TOKENS
        input_cost = prompt_tokens * executor.price_per_million_input / 1e6
        longest = executor.max_tokens if reply_tokens is None else reply_tokens
        if config.max_tokens is not None:
            longest = min(longest, config.max_tokens - self._tokens - prompt_tokens)
        if config.max_cost is not None:
            left = config.max_cost - self._cost - input_cost
            if executor.price_per_million_output > 0:
                longest = min(longest, math.floor(left * 1e6 / executor.price_per_million_output))
            elif left < 0:
                longest = 0
        if longest < 1:
            raise BudgetExceeded(self._refusal())
        tokens = prompt_tokens + longest
        cost = input_cost + longest * executor.price_per_million_output / 1e6
        self._tokens += tokens
        self._cost += cost
        reservation = Reservation(longest)
        try:
            yield reservation
        finally:
            self._tokens += reservation.tokens - tokens
            self._cost += reservation.cost - cost

    def _refusal(self) -> str:
        bounds = []
        if self._config.max_tokens is not None:
            bounds.append(f"{self._tokens} executor tokens spent or reserved of {self._config.max_tokens}")
        if self._config.max_cost is not None:
            bounds.append(f"cost {self._cost:.4g} spent or reserved of {self._config.max_cost:g}")
        return "; ".join(bounds) + ": no further call fits"
