"""Mixtures with exact shares in every prefix: ``Quota`` for names, ``Mixture`` for the lines of mixed files."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

from llm_as_judge.errors import ConfigError
from llm_as_judge.types import Domain

K = TypeVar("K")


class Quota(Generic[K]):
    """Hands out slots to the names of ``ratios`` (> 0, any sum), each always within one slot of its share.

    Among the names that are due, the one with the earliest deadline gets the slot (Tijdeman 1980, "The chairman
    assignment problem"); taking the largest remainder is off by more than one with three names or more. Shares are
    exact, in whole numbers. ``drawn`` counts the slots of each name and may be set to resume.
    """

    def __init__(self, ratios: Mapping[K, float]) -> None:
        if not ratios or any(not math.isfinite(ratio) or ratio <= 0 for ratio in ratios.values()):
            raise ValueError(f"ratios must be > 0, got {dict(ratios)}")
        exact = {name: Fraction(str(ratio)) for name, ratio in ratios.items()}  # as written: 0.3 is 3/10
        unit = math.lcm(*(ratio.denominator for ratio in exact.values()))
        self._parts = {name: int(ratio * unit) for name, ratio in exact.items()}
        self._whole, self._multiple = sum(self._parts.values()), math.lcm(*self._parts.values())
        self._slack = max(2, 2 * len(ratios) - 2)  # due: 1 / slack of a slot behind the share, or more
        self.drawn = dict.fromkeys(ratios, 0)

    def next(self) -> K:
        slot, drawn, slack = sum(self.drawn.values()) + 1, self.drawn, self._slack
        due = [n for n, part in self._parts.items() if slack * (part * slot - drawn[n] * self._whole) >= self._whole]
        name = min(due, key=lambda name: (slack * (drawn[name] + 1) - 1) * (self._multiple // self._parts[name]))
        drawn[name] += 1
        return name

    def take(self, n: int) -> Iterator[K]:
        return (self.next() for _ in range(n))


class Slot(NamedTuple):
    """Line ``line`` of set ``name``; ``repeat`` counts its earlier occurrences."""

    name: str
    line: int
    repeat: int


class Mixture:
    """Lines of several sets in exact shares: a set is used up before any of its lines is repeated.

    ``sizes``: lines per set; ``domains``: domain per set; the sets of a domain share it equally. ``mix`` names the
    mixture in messages and seeds. Raises ``ConfigError`` for a domain with a share and no lines.
    """

    def __init__(
        self, sizes: Mapping[str, int], domains: Mapping[str, Domain], ratios: Mapping[Domain, float], mix: str,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self._sizes, self._seed = sizes, f"{seed}/{mix}"
        wanted = {domain: ratio for domain, ratio in ratios.items() if ratio > 0}
        members = {of: [name for name in sorted(sizes) if sizes[name] and domains[name] == of] for of in wanted}
        for domain, ratio in wanted.items():
            if not members[domain]:
                raise ConfigError(
                    f"domain_ratios gives {domain} {ratio:g}, but there are no {domain} problems for the {mix} mix; "
                    "add some, or set its ratio to 0"
                )
        self._across = Quota(wanted)
        self._inside = {domain: Quota(dict.fromkeys(names, 1)) for domain, names in members.items()}
        self._orders: dict[str, Sequence[int]] = {}

    @property
    def drawn(self) -> dict[str, int]:
        """Lines drawn from every set so far."""
        return {name: count for quota in self._inside.values() for name, count in quota.drawn.items()}

    def take(self, n: int) -> Iterator[Slot]:
        for domain in self._across.take(n):
            name = self._inside[domain].next()
            repeat, position = divmod(self._inside[domain].drawn[name] - 1, self._sizes[name])
            if position == 0:
                order = list(range(self._sizes[name]))
                random.Random(f"{self._seed}/{name}/{repeat}").shuffle(order)
                self._orders[name] = order
            yield Slot(name, self._orders[name][position], repeat)
