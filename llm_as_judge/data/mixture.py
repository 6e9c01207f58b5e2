"""The mix: lines of several sets in exact shares, small sets repeated, large ones drawn from without repeats.

Every prefix of the result has its shares within one line, and a set is used up before any line of it comes again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_as_judge.data.quota import Quota
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Domain


@dataclass(frozen=True, slots=True)
class Slot:
    """Line ``index`` of set ``name``, for the ``repeat``-th time again (0 = the first)."""

    name: str
    index: int
    repeat: int


class Mixture:
    """``sizes``: set -> lines; ``domains``: set -> domain. Sets of a domain share it equally. ``mix`` names it.

    Raises ``ConfigError`` for a domain with a share and no lines.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        domains: Mapping[str, Domain],
        ratios: Mapping[Domain, float],
        mix: str,
        seed: int = 0,
    ) -> None:
        self._sizes, self._seed = sizes, f"{seed}/{mix}"
        members: dict[Domain, list[str]] = {}
        for name in sorted(sizes):
            if sizes[name]:
                members.setdefault(domains[name], []).append(name)
        wanted = {domain: ratio for domain, ratio in ratios.items() if ratio > 0}
        for domain, ratio in wanted.items():
            if domain not in members:
                raise ConfigError(
                    f"domain_ratios gives {domain} {ratio:g}, but there are no {domain} problems for the {mix} mix; "
                    "add some, or set its ratio to 0"
                )
        self._across = Quota(wanted)
        self._inside = {domain: Quota(dict.fromkeys(members[domain], 1)) for domain in wanted}
        self._orders: dict[str, Sequence[int]] = {}

    @property
    def drawn(self) -> dict[str, int]:
        """Lines drawn of every set so far."""
        return {name: count for quota in self._inside.values() for name, count in quota.drawn.items()}

    def take(self, n: int) -> Iterator[Slot]:
        """The next ``n`` slots."""
        inside = {domain: quota.take(n) for domain, quota in self._inside.items()}
        for domain in self._across.take(n):
            name = next(inside[domain])
            repeat, position = divmod(self._inside[domain].drawn[name] - 1, self._sizes[name])
            if position == 0:
                order = list(range(self._sizes[name]))
                random.Random(f"{self._seed}/{name}/{repeat}").shuffle(order)
                self._orders[name] = order
            yield Slot(name, self._orders[name][position], repeat)

    def largest_without_repeats(self) -> int:
        """Lines of the largest mix in which nothing comes twice."""
        total = sum(self._across.weights.values())
        return min(
            self._sizes[name] * len(quota.drawn) * total // self._across.weights[domain]
            for domain, quota in self._inside.items()
            for name in quota.drawn
        )
