"""Units of measure by the ways they are written: the quantity they measure and how many base units they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """``quantity`` two units must share to be compared; ``size`` of one unit in that quantity's base.

    ``silent``: a bare number may stand for it where the other side names the unit. Never so for cents, which may be
    dollars, and for single letters, which may be variables.
    """

    quantity: str
    size: Fraction
    silent: bool = False


_SILENT = frozenset(("length", "time", "mass", "volume", "area", "space", "speed"))
_SILENT_SIGNS = frozenset("$€£¥°")

# fmt: off
_TABLE = """
length 1000 km kilometer kilometre | 1 m meter metre | 1/100 cm centimeter centimetre | 1/1000 mm millimeter millimetre
length 1609.344 mile mi | 0.9144 yard yd | 0.3048 foot feet ft | 0.0254 inch inches
time 1 s sec second | 60 min minute | 3600 h hr hour | 86400 day | 604800 week
months 1 month | 12 year yr
mass 1000 kg kilogram | 1 g gram | 1/1000 mg milligram | 453.59237 pound lb | 28.349523125 ounce oz
volume 1 l L liter litre | 1/1000 ml mL milliliter millilitre | 3.785411784 gallon gal
area 1 m^2 m² sqm | 1/10000 cm^2 cm² | 1000000 km^2 km²
space 1 m^3 m³ | 1/1000000 cm^3 cm³
speed 1 km/h kph | 3.6 m/s | 1.609344 mph
% 1/100 % percent percentage pct
° 1 ° degree
$ 1 $ dollar USD usd | 1/100 cent ¢
€ 1 € euro EUR
£ 1 £ GBP
¥ 1 ¥ JPY
"""
# fmt: on


def _read() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        quantity, _, rest = line.partition(" ")
        for group in rest.split(" | "):
            size, *names = group.split()
            for name in names:
                letters = name.rstrip("^23²³")
                measure = quantity in _SILENT and letters.replace("/", "").isalpha() and len(letters) > 1
                units[name] = Unit(quantity, Fraction(size), measure or (quantity in _SILENT_SIGNS and size == "1"))
                if len(name) > 2 and name.isalpha():
                    units[name + "s"] = units[name]
    return units


UNITS: Mapping[str, Unit] = _read()
_LONGEST = 200
_SQUARED = re.compile(r"(square|sq\.?|cubic)\s+(\w+)")
_TRAILING = re.compile(
    r"(.*?[\d.)}\s])\s*((?:square |sq |cubic )?[A-Za-z%°$€£¥¢²³/^]+(?:\^?\{?[23]\}?)?|per cent)\s*", re.DOTALL
)


def split_unit(text: str) -> tuple[str, Unit] | None:
    """The amount's text and the unit after it; None where no known unit stands there."""
    found = _TRAILING.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    if len(found.group(2)) == 1 and found.group(2).isalpha() and not found.group(1)[-1:].isspace() and text[-2] != " ":
        return None  # 2m may be twice m
    name = found.group(2).replace("{", "").replace("}", "").replace("per cent", "percent")
    if power := _SQUARED.fullmatch(name):
        base = UNITS.get(power.group(2))
        if base is None or base.quantity != "length":
            return None
        degree = 3 if power.group(1) == "cubic" else 2
        return found.group(1).strip(), Unit("space" if degree == 3 else "area", base.size**degree, silent=True)
    if (raised := re.fullmatch(r"([A-Za-z]{2,})\^([23])", name)) and (base := UNITS.get(raised.group(1))):
        if base.quantity != "length":
            return None
        degree = int(raised.group(2))
        return found.group(1).strip(), Unit("space" if degree == 3 else "area", base.size**degree, silent=True)
    unit = UNITS.get(name) or (UNITS.get(name.lower()) if len(name) > 2 else None)
    return None if unit is None else (found.group(1).strip(), unit)
