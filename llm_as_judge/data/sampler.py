"""Problems of several domains in exact shares in every prefix: ``Mixture`` of files, ``DomainSampler`` of a run.

Each domain's count stays within one of its share: with 40/30/30, ten slots are 4, 3 and 3 whether drawn at once or one
by one. Nothing repeats before all was drawn; copies of a problem in a resampled file are spread over the epoch. The
order depends on the seed alone; the state of a ``DomainSampler`` is a few integers.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import Domain, Problem

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

    def next(self) -> tuple[K, int]:
        """Return the name that gets the next slot, and how many it had before."""
        slot, drawn, slack = sum(self.drawn.values()) + 1, self.drawn, self._slack
        due = [n for n, part in self._parts.items() if slack * (part * slot - drawn[n] * self._whole) >= self._whole]
        name = min(due, key=lambda name: (slack * (drawn[name] + 1) - 1) * (self._multiple // self._parts[name]))
        drawn[name] += 1
        return name, drawn[name] - 1

    def take(self, n: int) -> Iterator[tuple[K, int]]:
        return (self.next() for _ in range(n))


class _Epochs:
    """Positions of ``items``, in a new random order in every epoch.

    Of ``m`` copies of an item, one falls into each m-th of the epoch, so that a resampled set is seen completely before
    it is seen again.
    """

    def __init__(self, items: Sequence[Hashable]) -> None:
        self._items, self._key, self._order = items, "", list[int]()

    def at(self, number: int, seed: str) -> tuple[int, int]:
        """Return the position that is drawn as ``number``, from 0, and its epoch."""
        epoch, place = divmod(number, len(self._items))
        if (key := f"{seed}/{epoch}") != self._key:
            self._key, self._order = key, self._shuffled(random.Random(key))
        return self._order[place], epoch

    def _shuffled(self, rng: random.Random) -> list[int]:
        order, copies = list(range(len(self._items))), Counter(self._items)
        rng.shuffle(order)
        if len(copies) == len(order):
            return order
        seen: Counter[Hashable] = Counter()
        places: dict[int, float] = {}
        for index in order:
            item = self._items[index]
            places[index] = (seen[item] + rng.random()) / copies[item]
            seen[item] += 1
        return sorted(order, key=places.__getitem__)


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
        self._epochs = {name: _Epochs(range(size)) for name, size in sizes.items()}
        self._seed = f"{seed}/{mix}"

    @property
    def drawn(self) -> dict[str, int]:
        """Lines drawn from every set so far."""
        return {name: count for quota in self._inside.values() for name, count in quota.drawn.items()}

    def take(self, n: int) -> Iterator[Slot]:
        for domain, _ in self._across.take(n):
            name, number = self._inside[domain].next()
            yield Slot(name, *self._epochs[name].at(number, f"{self._seed}/{name}"))


class DomainSampler:
    """Draws batches from ``problems`` (by domain) at ``ratios`` (>= 0, any sum, not all 0).

    Raises ``DataError`` for a domain with a ratio and no problems.
    """

    def __init__(
        self, problems: Mapping[Domain, Sequence[Problem]], ratios: Mapping[Domain, float], seed: int = 0
    ) -> None:
        wanted = {domain: ratio for domain, ratio in ratios.items() if ratio > 0}
        if missing := [domain for domain in wanted if not problems.get(domain)]:
            there = {domain: ratios.get(domain, 0) or 1 for domain, own in problems.items() if own}
            total = sum(there.values()) or 1
            valid = ", ".join(f"{d}: {share / total:.7g}" for d, share in (there | dict.fromkeys(missing, 0)).items())
            raise DataError(
                f"domain_ratios gives {missing[0]} {wanted[missing[0]]:g}, but there are no {missing[0]} problems; add "
                f"some, or share out what there is: --set 'domain_ratios={{{valid}}}'"
            )
        self._quota = Quota(wanted)
        self._problems = {domain: tuple(problems[domain]) for domain in wanted}
        self._epochs = {domain: _Epochs([p.question.id for p in own]) for domain, own in self._problems.items()}
        self._seed = seed
        lines = (f"{domain} {problem!r}" for domain, own in self._problems.items() for problem in own)
        self._fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def sample(self, n: int) -> list[Problem]:
        found = []
        for domain, number in self._quota.take(n):
            place, _ = self._epochs[domain].at(number, f"{self._seed}/{domain}")
            found.append(self._problems[domain][place])
        return found

    def peek(self, n: int | None) -> list[Problem]:
        """Return the first ``n`` problems of each domain (None: all); nothing is drawn."""
        return [problem for problems in self._problems.values() for problem in problems[:n]]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next batch depends on, with a fingerprint of the problems."""
        return {"seed": self._seed, "drawn": dict(self._quota.drawn), "problems": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``. Raises ``DataError`` if it is of other problems."""
        if state["problems"] != self._fingerprint:
            raise DataError("other training problems than the run's; resume with its data, or start anew: --fresh")
        self._seed = int(state["seed"])
        self._quota.drawn = {domain: int(state["drawn"][domain]) for domain in self._quota.drawn}
