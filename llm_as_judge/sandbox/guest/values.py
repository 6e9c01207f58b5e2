"""Python values as plain data: the form in which arguments and results pass between a solution and its tests.

Only copies of exact built-in types (and a few of the standard library) pass, as tagged JSON. Classes of the solution
never do: an instance of a subclass becomes its built-in base, any other object an ``Opaque``, so that no method of the
solution (``__eq__``) can run in the tests' process. ``decode`` trusts nothing: data that ``encode`` would not have
written raises ``Undecodable``.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_DEPTH = 100
_NODES = 1_000_000
#: Maximum number of items sent of an iterator.
_ITEMS = 100_000
_SAFE_INT = 1 << 63

_T = TypeVar("_T")
Keep = Callable[[Iterator[Any]], int]
Stream = Callable[[int], Iterator[Any]]


class Unsendable(TypeError):
    """The value is of a class that cannot be sent."""


class Undecodable(ValueError):
    """The other side sent an invalid value."""


class Opaque:
    """Replaces an object of a class that cannot be sent: it keeps the truth value and is equal only to itself."""

    def __init__(self, name: str, truth: bool) -> None:
        self._name, self._truth = name, truth

    def __bool__(self) -> bool:
        return self._truth

    def __repr__(self) -> str:
        return f"<{self._name} object>"


class _Encoder:
    def __init__(self, opaque: bool, keep: Keep | None) -> None:
        self._opaque = opaque
        self._keep = keep
        self._left = _NODES

    def encode(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            raise ValueError("the value is too deeply nested" if depth > _DEPTH else "the value is too large")
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -_SAFE_INT < value < _SAFE_INT else _tagged("int", hex(value))
        if kind is float:
            return value if value - value == 0 else _tagged("float", value.hex())
        if kind is list:
            return self._all(value, depth)
        if kind in _SEQUENCES:
            return _tagged(kind.__name__, self._all(value, depth))
        if kind is dict:
            return _tagged("dict", [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in value.items()])
        if kind in _SCALARS:
            return _tagged(kind.__name__, _SCALARS[kind][0](value))
        if kind is type and value in _TYPES.values():
            return _tagged("type", value.__name__)
        for base in _BASES:  # a subclass loses its class
            if isinstance(value, base):
                plain = base.__new__(base, value) if base in (int, float, str, bytes) else base(value)
                return self.encode(plain, depth)
        if hasattr(value, "__next__"):
            if self._keep is not None:
                return _tagged("stream", self._keep(value))
            return _tagged("iterator", self._all(itertools.islice(value, _ITEMS), depth))
        if self._opaque or kind is Opaque:
            return _tagged("opaque", [kind.__name__, bool(value)])
        raise Unsendable(f"a {kind.__name__} cannot cross between solution and tests")

    def _all(self, values: Any, depth: int) -> list[Any]:
        return [self.encode(item, depth + 1) for item in values]


def encode(value: Any, *, opaque: bool = False, keep: Keep | None = None) -> Any:
    """JSON data for ``value``.

    Args:
        opaque: send objects of other classes as their truth value.
        keep: called with an iterator, returns a number under which its items can be requested. Without it, an
            iterator is sent as its items.

    Raises:
        Unsendable: the value holds an object of a class that cannot be sent.
        ValueError: it is nested too deeply or too large.
    """
    return _Encoder(opaque, keep).encode(value)


def decode(data: Any, stream: Stream | None = None) -> Any:
    """Inverse of ``encode``; ``stream`` makes an iterator from its number. Raises ``Undecodable``."""
    try:
        return _decode(data, 0, stream)
    except Undecodable:
        raise
    except (TypeError, ValueError, ArithmeticError, KeyError, AttributeError) as error:
        raise Undecodable(f"{type(error).__name__}: {error}") from None


def _decode(data: Any, depth: int, stream: Stream | None) -> Any:
    if depth > _DEPTH + 1:
        raise Undecodable("nested too deeply")
    if data is None or type(data) in (bool, int, float, str):
        return data
    if type(data) is list:
        return [_decode(item, depth + 1, stream) for item in data]
    if type(data) is not dict or set(data) != {"t", "v"}:
        raise Undecodable("not a tagged value")
    tag, content = data["t"], data["v"]
    if tag == "int":
        return int(_checked(content, str), 16)
    if tag == "float":
        return float.fromhex(_checked(content, str))
    if tag == "dict":
        pairs = (_checked(pair, list) for pair in _checked(content, list))
        return {_decode(key, depth + 1, stream): _decode(value, depth + 1, stream) for key, value in pairs}
    if tag == "type":
        return _TYPES[content]
    if tag == "opaque":
        name, truth = _checked(content, list)
        return Opaque(_checked(name, str), _checked(truth, bool))
    if tag in _SCALAR_NAMES:
        return _SCALAR_NAMES[tag](content)
    if tag == "stream" and stream is not None:
        return stream(_checked(content, int))
    items = [_decode(item, depth + 1, stream) for item in _checked(content, list)]
    return iter(items) if tag == "iterator" else _SEQUENCE_NAMES[tag](items)


def _tagged(tag: str, content: Any) -> dict[str, Any]:
    return {"t": tag, "v": content}


def _checked(value: Any, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise Undecodable(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _text(build: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda content: build(_checked(content, str))


def _numbers(build: Callable[..., Any]) -> Callable[[Any], Any]:
    def read(content: Any) -> Any:
        first, second, third = (int(_checked(number, str), 16) for number in _checked(content, list))
        return build(first, second, third)

    return read


#: Types written as one JSON value: how to write it, how to read it.
_SCALARS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: (bytes.hex, _text(bytes.fromhex)),
    bytearray: (bytearray.hex, _text(bytearray.fromhex)),
    complex: (lambda v: [v.real.hex(), v.imag.hex()], lambda v: complex(*map(float.fromhex, _checked(v, list)))),
    range: (lambda v: [hex(n) for n in (v.start, v.stop, v.step)], _numbers(range)),
    decimal.Decimal: (str, _text(decimal.Decimal)),
    fractions.Fraction: (str, _text(fractions.Fraction)),
    datetime.date: (str, _text(datetime.date.fromisoformat)),
    datetime.time: (str, _text(datetime.time.fromisoformat)),
    datetime.datetime: (str, _text(datetime.datetime.fromisoformat)),
    datetime.timedelta: (lambda v: [hex(n) for n in (v.days, v.seconds, v.microseconds)], _numbers(datetime.timedelta)),
}
_SCALAR_NAMES = {kind.__name__: read for kind, (_, read) in _SCALARS.items()}

#: Types written as the list of their items.
_SEQUENCES: dict[type, Callable[[list[Any]], Any]] = {
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
    type({}.keys()): lambda items: dict.fromkeys(items).keys(),
    type({}.values()): lambda items: dict(enumerate(items)).values(),
    type({}.items()): lambda items: dict(items).items(),
}
_SEQUENCE_NAMES = {kind.__name__: build for kind, build in _SEQUENCES.items()}

_BASES: tuple[Any, ...] = (int, float, str, bytes, list, tuple, dict, set, frozenset)
_TYPES: dict[str, type] = {kind.__name__: kind for kind in (*_BASES, complex, bytearray, bool, type(None), type)}

#: Attributes of the types that can be sent.
ATTRIBUTES = frozenset(
    name for kind in (*_SCALARS, *_SEQUENCES, *_TYPES.values(), type(_ for _ in ())) for name in dir(kind)
)
