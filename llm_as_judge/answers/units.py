"""Units of measure: their spellings, quantity and size in base units, and which of them a question asks for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files

from llm_as_judge.answers.notation import number
from llm_as_judge.answers.restating import asked


@dataclass(frozen=True, slots=True)
class Unit:
    """Two units are comparable if they have the same ``quantity``; ``size`` is one unit in that quantity's base.

    ``silent``: the unit may be missing on one side. Never for cents, which may be dollars, and single letters, which
    may be variables.
    """

    quantity: str
    size: Fraction
    silent: bool = False


_SILENT = frozenset(("length", "time", "mass", "volume", "area", "space", "length/time", "units"))
SIGNS = frozenset("$€£¥°")
_SQUARED, _CUBED = ("square {}", "sq {}", "sq. {}", "{}^2"), ("cubic {}", "{}^3")


def _read() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for line in files(__package__).joinpath("units.txt").read_text(encoding="utf-8").splitlines():
        quantity, _, rest = line.partition(" ")
        for group in rest.split(" | "):
            size, *names = group.split()
            for name in [*names, *(f"{name}s" for name in names if len(name) > 1)]:
                measure = quantity in _SILENT and name.isalpha() and len(name) > 1
                silent = measure or (quantity in SIGNS and size == "1")
                units[name] = Unit(quantity, Fraction(size), silent)
                for power, forms in ((2, _SQUARED), (3, _CUBED)) if quantity in ("length", "units") else ():
                    measured = "area" if power == 2 else "space"
                    measured = measured if quantity == "length" else f"{quantity} {measured}"
                    unit = Unit(measured, Fraction(size) ** power, silent)
                    units |= {form.format(name): unit for form in forms}
    return units


UNITS: Mapping[str, Unit] = _read()
_LONGEST = 200
_TRAILING = re.compile(
    r"(.*?[\d.)}\s])\s?"
    r"((?:square |sq\.? |cubic )?(?:[^\W\d_]+|[%°$€£¥¢])(?:(?:/| per )[a-z]+)?(?:\^?\{?[23]\}?)?|per cent)"
)


def unit_named(name: str) -> Unit | None:
    """Find the unit of a name; also of one unit per another: ``miles per hour``, ``m/s``."""
    unit = UNITS.get(name) or (UNITS.get(name.lower()) if len(name) > 2 else None)
    above, _, below = name.replace(" per ", "/").partition("/")
    if unit is None and below and (whole := unit_named(above)) and (part := unit_named(below)):
        quantity = f"{whole.quantity}/{part.quantity}"
        return Unit(quantity, whole.size / part.size, quantity in _SILENT or whole.silent)
    return unit


def split_unit(text: str) -> tuple[str, Unit] | None:
    """Split ``text`` into an amount and the unit after it; None if no known unit ends it."""
    found = _TRAILING.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    before, name = found.groups()
    if len(name) == 1 and name.isalpha() and text[-2] != " ":
        return None  # 2m may be twice m
    name = name.replace("{", "").replace("}", "").replace("per cent", "percent")
    unit = unit_named(name)
    return None if unit is None else (before.strip(), unit)


#: Every unit by its longest name first, with the word before it.
_UNIT = re.compile(
    r"(?:(?<![\w.,])([\w.,]+)[\s-]+)?(?<![\w\\])((?:"
    + "|".join(re.escape(name) for name in sorted(UNITS, key=len, reverse=True) if len(name) > 1 or name in "$€£¥°%")
    + r")(?:(?: per |/)[A-Za-z]+)?)(?![A-Za-z_^])(\d?)",
    re.IGNORECASE,
)
_OF_ANOTHER = re.compile(r" (?:whose|which|if|when) ")
_ONE = frozenset("a an one each every per this last next first same".split())
_MONEY = frozenset("$€£¥")
_PRICE = re.compile(r"cost|price|pa(?:y|id)|earn|sp[ae]n[dt]|money|profit|worth|charge|total|much", re.IGNORECASE)
_COUNT = re.compile(r"how many|\bin [a-z]+s\b", re.IGNORECASE)  # in rupees


@lru_cache(maxsize=64)
def units(text: str, *, wanted: bool = False) -> tuple[Unit, ...]:
    """Find the units in ``text``; with ``wanted`` without those of an amount, as in "3 km" and "an hour"."""
    found = []
    text = re.sub(r"\$(?:[^\d\s$][^$]*|\d+[^\s\d.,$][^$\s]*)\$|percentage points?", " ", text)  # a formula
    for before, name, after in _UNIT.findall(text):
        one = before.casefold() in _ONE and "percent" not in name  # 3/8 as a percent
        if unit := None if wanted and (after or one or number(before.strip(",.")) is not None) else unit_named(name):
            found.append(unit)
    return tuple(found)


def may_have(unit: Unit, question: str) -> bool:
    """Tell whether an answer may have this unit: one that the question wants, or its only currency for a price."""
    clause, everywhere = _OF_ANOTHER.split(asked(question))[0], units(question)
    if unit.quantity == "%":
        return unit in everywhere
    if wanted := units(clause, wanted=True):
        return (unit.quantity, unit.size) in ((found.quantity, found.size) for found in wanted)
    price = _PRICE.search(clause) and not _COUNT.search(clause)
    return bool(price) and {found for found in everywhere if found.quantity in _MONEY} == {unit}
