"""Token and cost budget of one workflow: each call's worst case is reserved before the call is made.

The sum therefore stays below the limit with any number of concurrent calls. A call whose longest reply does not fit
gets a shorter one; if not even one token is left, the run ends. The host counts tokens and prices.
"""

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
    """A call under way: the longest reply it may request and, when it has returned, what it used."""

    reply_tokens: int
    tokens: int = 0
    cost: float = 0.0


@dataclass
class Budget:
    """Limits of one run: ``config.max_tokens`` and ``config.max_cost``.

    ``executor`` has the prices, and the longest reply of calls that do not set one.
    """

    config: WorkflowConfig
    executor: EndpointConfig
    tokens: int = 0  # spent and reserved
    cost: float = 0.0

    @contextmanager
    def call(self, prompt: str, reply_tokens: int | None) -> Iterator[Reservation]:
        """Reserve a call's worst case; on leaving, replace it by what the caller has set.

        Raises ``BudgetExceeded`` if not even one token of reply is left.
        """
        input_price, price = (
            rate / 1e6 for rate in (self.executor.price_per_million_input, self.executor.price_per_million_output)
        )
        # No tokenizer makes more tokens than there are bytes.
        size = len(prompt) if prompt.isascii() else len(prompt.encode("utf-8", "replace"))  # the same, with no copy
        prompt_tokens = size + _TEMPLATE_TOKENS
        most_tokens = math.inf if self.config.max_tokens is None else self.config.max_tokens
        most_cost = math.inf if self.config.max_cost is None else self.config.max_cost
        money = most_cost - self.cost - prompt_tokens * input_price
        affordable = money / price if price else math.copysign(math.inf, money)
        longest = self.executor.max_tokens if reply_tokens is None else reply_tokens
        longest = math.floor(max(0, min(longest, most_tokens - self.tokens - prompt_tokens, affordable)))
        if longest < 1:
            spent = f"{self.tokens} executor tokens of {most_tokens}; cost {self.cost:.4g} of {most_cost:g}"
            raise BudgetExceeded(f"{spent} spent or reserved: no further call fits")
        tokens, cost = prompt_tokens + longest, prompt_tokens * input_price + longest * price
        self.tokens += tokens
        self.cost += cost
        reservation = Reservation(longest)
        try:
            yield reservation
        finally:
            self.tokens += reservation.tokens - tokens
            self.cost += reservation.cost - cost
