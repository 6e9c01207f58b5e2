"""The mixture: problems of several domains in exact proportions at every batch size.

Every slot of every batch goes to one domain, so that each domain's count stays within one of its share of all
slots so far: with 40/30/30, ten slots are 4, 3 and 3 whether drawn at once or one by one. Within a domain
nothing repeats before all of it was seen. Deterministic by ``seed``; the state is a few integers.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.types import Domain, Problem


class DomainSampler:
    """Draws batches from ``problems`` (by domain) at ``ratios``, which need not sum to 1; a ratio of 0 is
    off.

    Raises ``DataError`` for a domain with a ratio and no problems, and for ratios that are negative or all 0.
    """

    def __init__(
        self, problems: Mapping[Domain, Sequence[Problem]], ratios: Mapping[Domain, float], seed: int = 0
    ) -> None:
        if any(not math.isfinite(ratio) or ratio < 0 for ratio in ratios.values()) or not any(ratios.values()):
            raise DataError(f"domain_ratios must be >= 0 and not all 0, got {dict(ratios)}")
        # the decimal that was written, not its binary neighbour: 0.3 is 3/10
        exact = {domain: Fraction(str(ratio)) for domain, ratio in ratios.items() if ratio > 0}
        for domain in exact:
            if not problems.get(domain):
                raise DataError(f"domain_ratios gives {domain} {ratios[domain]}, but there are no {domain} problems")
        total = sum(exact.values())
        self._shares = {domain: ratio / total for domain, ratio in exact.items()}
        self._problems = {domain: tuple(problems[domain]) for domain in exact}
        self._seed = seed
        self._drawn = dict.fromkeys(exact, 0)
        self._orders: dict[Domain, tuple[int, list[int]]] = {}

    def sample(self, n: int) -> list[Problem]:
        """The next ``n`` problems."""
        if n < 1:
            raise ValueError(f"batch size must be >= 1, got {n}")
        return [self._draw(self._next_domain()) for _ in range(n)]

    def _next_domain(self) -> Domain:
        """Earliest deadline among the domains that are due (Tijdeman 1980): every count stays within 1 of its
        share.

        The plain largest remainder does not keep that bound with three domains or more.
        """
        slot = sum(self._drawn.values()) + 1
        slack = 1 - Fraction(1, max(2, 2 * len(self._shares) - 2))
        due = [d for d, share in self._shares.items() if share * slot - self._drawn[d] >= 1 - slack]
        return min(due, key=lambda d: (self._drawn[d] + slack) / self._shares[d])

    def _draw(self, domain: Domain) -> Problem:
        problems = self._problems[domain]
        epoch, position = divmod(self._drawn[domain], len(problems))
        if domain not in self._orders or self._orders[domain][0] != epoch:
            order = list(range(len(problems)))
            random.Random(f"{self._seed}/{domain}/{epoch}").shuffle(order)
            self._orders[domain] = (epoch, order)
        self._drawn[domain] += 1
        return problems[self._orders[domain][1][position]]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next batch depends on but the problems themselves, which are fingerprinted."""
        return {"seed": self._seed, "drawn": dict(self._drawn), "problems": self._fingerprint()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken. Raises ``DataError`` when the problems are other ones."""
        if state["problems"] != self._fingerprint():
            raise DataError("the sampler's state belongs to other problems; resume with the data it was taken on")
        self._seed = int(state["seed"])
        self._drawn = {domain: int(state["drawn"][domain]) for domain in self._drawn}
        self._orders = {}

    def _fingerprint(self) -> str:
        ids = [f"{domain} {p.question.id}" for domain, problems in self._problems.items() for p in problems]
        return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
