"""Python values as plain data: the form in which arguments and results pass between a solution and its tests.

Only copies of exact built-in types (and a few of the standard library) pass, as tagged JSON. Classes of the solution
never do: an instance of a subclass becomes its built-in base, any other object an ``Opaque``, so that no method of the
solution (``__eq__``) can run in the tests' process. ``decode`` trusts nothing: data that ``encode`` would not have
written raises ``Undecodable``, or gives another plain value.
"""

import collections
import datetime
import decimal
import fractions
import itertools
from collections.abc import Callable, Iterator
from typing import Any

#: Nesting of the JSON data: a dictionary takes three levels. ``frames.DEPTH`` is a little more.
_DEPTH = 300
_NODES = 1_000_000
#: Maximum number of items sent of an iterator.
_ITEMS = 100_000
_SAFE_INT = 1 << 63


class Unsendable(TypeError):
    """The value is of a class that cannot be sent."""


class Undecodable(ValueError):
    """The other side sent an invalid value."""


class Opaque:
    """Replaces an object of a class that cannot be sent: it keeps the truth value and is equal only to itself."""

    def __init__(self, name: str, truth: bool) -> None:
        self._name, self._truth = name, truth is True

    def __bool__(self) -> bool:
        return self._truth

    def __repr__(self) -> str:
        return f"<{self._name} object>"


_BASES: tuple[Any, ...] = (int, float, str, bytes, list, tuple, dict, set, frozenset)
_TYPES: dict[str, type] = {kind.__name__: kind for kind in (*_BASES, complex, bytearray, bool, type(None), type)}

#: How a value of each type is taken apart into simpler values, and made of them again.
_TABLE: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: (hex, lambda text: int(text, 16)),
    float: (float.hex, float.fromhex),
    bytes: (bytes.hex, bytes.fromhex),
    bytearray: (bytearray.hex, bytearray.fromhex),
    complex: (lambda v: [v.real, v.imag], lambda parts: complex(*parts)),
    range: (lambda v: [v.start, v.stop, v.step], lambda parts: range(*parts)),
    decimal.Decimal: (str, decimal.Decimal),
    fractions.Fraction: (str, fractions.Fraction),
    datetime.date: (str, datetime.date.fromisoformat),
    datetime.time: (str, datetime.time.fromisoformat),
    datetime.datetime: (str, datetime.datetime.fromisoformat),
    datetime.timedelta: (lambda v: [v.days, v.seconds, v.microseconds], lambda parts: datetime.timedelta(*parts)),
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    collections.deque: (list, collections.deque),
    dict: (lambda v: [list(pair) for pair in v.items()], dict),
    type({}.keys()): (list, lambda items: dict.fromkeys(items).keys()),
    type({}.values()): (list, lambda items: dict(enumerate(items)).values()),
    type({}.items()): (lambda v: [list(pair) for pair in v], lambda pairs: dict(pairs).items()),
    type: (lambda v: v.__name__, _TYPES.__getitem__),
    type(iter([])): (list, lambda items: iter(list(items))),
    Opaque: (lambda v: [v._name, v._truth], lambda parts: Opaque(*parts)),
}
_BUILD = {kind.__name__: build for kind, (_, build) in _TABLE.items()}

#: Attributes of the types that can be sent.
ATTRIBUTES = frozenset[str]().union(*map(dir, {*_TABLE, *_TYPES.values(), type(_ for _ in ())} - {Opaque}))


def encode(value: Any, *, opaque: bool = False, keep: Callable[[Iterator[Any]], int] | None = None) -> Any:
    """Encode ``value`` as JSON data; raises ``Unsendable``, or ``ValueError`` if it is nested too deeply or too large.

    ``opaque``: objects of other classes are sent as their truth value. ``keep`` returns the number under which an
    iterator's items can be requested; without it, an iterator is sent as its items.
    """
    left = _NODES

    def encoded(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > _DEPTH or left < 0:
            raise ValueError("the value is too deeply nested" if depth > _DEPTH else "the value is too large")
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if (kind is int and -_SAFE_INT < value < _SAFE_INT) or (kind is float and value - value == 0):
            return value
        if kind is list:
            return [encoded(item, depth + 1) for item in value]
        if kind in _TABLE and (kind is not type or value in _TYPES.values()):
            return tagged(kind, _TABLE[kind][0](value), depth)
        for base in _BASES:  # a subclass loses its class
            if isinstance(value, base):
                return encoded(base.__new__(base, value) if base in (int, float, str, bytes) else base(value), depth)
        if hasattr(value, "__next__"):
            if keep is not None:
                return {"t": "stream", "v": keep(value)}
            return tagged(type(iter([])), list(itertools.islice(value, _ITEMS)), depth)
        if opaque:
            return tagged(Opaque, [kind.__name__, bool(value)], depth)
        raise Unsendable(f"a {kind.__name__} cannot cross between solution and tests")

    def tagged(kind: type, content: Any, depth: int) -> Any:
        return {"t": kind.__name__, "v": encoded(content, depth + 1)}

    return encoded(value, 0)


def decode(data: Any, stream: Callable[[int], Iterator[Any]] | None = None) -> Any:
    """Decode what ``encode`` returned; ``stream`` makes an iterator from its number. Raises ``Undecodable``."""

    def decoded(data: Any) -> Any:
        if isinstance(data, list):
            return [decoded(item) for item in data]
        if not isinstance(data, dict):
            return data
        content = decoded(data["v"])
        if data["t"] == "stream" and stream is not None and type(content) is int:
            return stream(content)
        return _BUILD[data["t"]](content)

    try:
        return decoded(data)
    except Exception as error:
        raise Undecodable(f"not a value: {type(error).__name__}: {error}") from None
