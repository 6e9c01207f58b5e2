"""Training order: problems of several domains in exact proportions at every batch size.

Each domain's count stays within one of its share: with 40/30/30, ten slots are 4, 3 and 3 whether drawn at once or one
by one. Within a domain nothing repeats before all problems were drawn; copies of a problem in a resampled file are
spread over the epoch. The order depends on ``seed`` alone; the state is a few integers.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from llm_as_judge.data.mixture import Quota
from llm_as_judge.errors import DataError
from llm_as_judge.types import Domain, Problem


class DomainSampler:
    """Draws batches from ``problems`` (by domain) at ``ratios`` (>= 0, any sum, not all 0).

    Raises ``DataError`` for a domain with a ratio and no problems.
    """

    def __init__(
        self, problems: Mapping[Domain, Sequence[Problem]], ratios: Mapping[Domain, float], seed: int = 0
    ) -> None:
        wanted = {domain: ratio for domain, ratio in ratios.items() if ratio > 0}
        for domain, ratio in wanted.items():
            if not problems.get(domain):
                raise DataError(
                    f"domain_ratios gives {domain} {ratio}, but there are no {domain} problems; add some, or set its "
                    "ratio to 0: --set 'domain_ratios={math: 0.5, qa: 0.5, code: 0}'"
                )
        self._quota = Quota(wanted)
        self._problems = {domain: tuple(problems[domain]) for domain in wanted}
        self._seed = seed
        self._orders: dict[Domain, tuple[int, list[int]]] = {}
        lines = (f"{domain} {problem.question.id}" for domain, own in self._problems.items() for problem in own)
        self._fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def sample(self, n: int) -> list[Problem]:
        return [self._draw(domain) for domain in self._quota.take(n)]

    def peek(self, n: int | None) -> list[Problem]:
        """The first ``n`` problems of each domain (None: all); nothing is drawn."""
        return [problem for problems in self._problems.values() for problem in problems[:n]]

    def _draw(self, domain: Domain) -> Problem:
        problems = self._problems[domain]
        epoch, position = divmod(self._quota.drawn[domain] - 1, len(problems))
        if domain not in self._orders or self._orders[domain][0] != epoch:
            rng = random.Random(f"{self._seed}/{domain}/{epoch}")
            self._orders[domain] = (epoch, _order([problem.question.id for problem in problems], rng))
        return problems[self._orders[domain][1][position]]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next batch depends on, with a fingerprint of the problems."""
        return {"seed": self._seed, "drawn": dict(self._quota.drawn), "problems": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``. Raises ``DataError`` if it belongs to other problems."""
        if state["problems"] != self._fingerprint:
            raise DataError("the sampler's state belongs to other problems; resume with the data it was taken on")
        self._seed = int(state["seed"])
        self._quota.drawn = {domain: int(state["drawn"][domain]) for domain in self._quota.drawn}
        self._orders = {}


def _order(ids: Sequence[str], rng: random.Random) -> list[int]:
    """A random order of the positions in ``ids``. Of ``m`` copies of an id, one falls into each m-th of the epoch, so
    that a resampled set is seen completely before it is seen again.
    """
    order = list(range(len(ids)))
    rng.shuffle(order)
    copies = Counter(ids)
    if len(copies) == len(ids):
        return order
    seen: Counter[str] = Counter()
    places: dict[int, float] = {}
    for index in order:
        id_ = ids[index]
        places[index] = (seen[id_] + rng.random()) / copies[id_]
        seen[id_] += 1
    return sorted(order, key=places.__getitem__)
