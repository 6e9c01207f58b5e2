"""Fuzzing of the wire formats: nothing that a child sends hangs or crashes the host, or becomes code there."""

import collections
import contextlib
import datetime
import decimal
import fractions
import itertools
import json
import tracemalloc
from typing import Any

import pytest
from helpers.any_json import any_json
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.sandbox.guest import frames, plain_data

JSON = any_json(leaves=12)
MESSAGES = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
# Data that looks like encoded values: known tags with any content.
TAGS = st.sampled_from(
    ["int", "float", "dict", "singleton", "type", "Opaque", "list_iterator", "tuple", "set", "range", "slice",
     "Decimal", "Fraction", "date", "datetime", "timedelta", "bytes", "complex", "deque", "dict_keys",
     "dict_items", "eval", "stream"]
)  # fmt: skip
TAGGED = st.recursive(
    JSON | st.text(alphabet="0123456789abcdefx-.naif", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.fixed_dictionaries({"t": TAGS, "v": inner}),
    max_leaves=12,
)
HASHABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.decimals(allow_nan=False) | st.fractions() | st.dates() | st.datetimes() | st.timedeltas(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6,
)  # fmt: skip
VALUES = st.recursive(
    HASHABLE | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HASHABLE, inner, max_size=3) | st.tuples(inner),
    max_leaves=8,
)
CROSSES = (
    type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, type,
    type(iter([])), decimal.Decimal, fractions.Fraction, datetime.date, datetime.time,
    datetime.datetime, datetime.timedelta, collections.deque, type({}.keys()), type({}.values()), type({}.items()),
    plain_data.Opaque,
)  # fmt: skip


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_give_messages_or_a_frame_error(data: bytes) -> None:
    decoder = frames.Decoder(100)
    decoder.feed(data)
    with contextlib.suppress(frames.FrameError):
        while (message := decoder.next()) is not None:
            assert type(message) is dict


@settings(max_examples=200)
@given(st.lists(MESSAGES, max_size=4), st.lists(st.integers(0, 2000), max_size=8))
def test_messages_arrive_however_they_are_cut(messages: list[dict[str, Any]], cuts: list[int]) -> None:
    data = b"".join(map(frames.encode, messages))
    decoder, arrived = frames.Decoder(1 << 20), []
    for piece in pieces(data, cuts):
        decoder.feed(piece)
        while (message := decoder.next()) is not None:
            arrived.append(message)
    assert json.dumps(arrived) == json.dumps([frames.decode(json.dumps(m).encode()) for m in messages])


def test_hostile_messages_are_refused_before_anything_is_built_of_them() -> None:
    bodies = [
        b'{"a":[' + b",".join([b"[]"] * 1_300_000) + b"]}",
        b'{"a":[' + b"0," * 1_900_000 + b"0]}",
        b"{" + b",".join(b'"%d":0' % n for n in range(400_000)) + b"}",
    ]
    for body in bodies:
        tracemalloc.start()
        try:
            with pytest.raises(frames.FrameTooLong, match="over 10000 values"):
                frames.decode(body, 10_000)
            # Decoded they would take up to 160 MB.
            assert tracemalloc.get_traced_memory()[1] < (30 if b'"1"' in body else 8) * len(body)
        finally:
            tracemalloc.stop()
    # Each took quadratic time, minutes, with a naive check.
    for body in (
        b'"' + b'\\"' * 1_900_000, b'"a\\' * 900_000, b"\\" * 3_900_000, b'{"a":"' + b"[,:" * 1_200_000 + b"\\",
        b"]" * 1_900_000 + b"[" * 400, b"[" * 400 + b"]" * 1_900_000, b'""' * 1_900_000 + b"," * 20_000,
    ):  # fmt: skip
        with pytest.raises(frames.FrameError):
            frames.decode(body, 10_000)


@settings(max_examples=150)
@given(MESSAGES)
def test_a_message_within_its_values_is_taken_and_one_beyond_refused(message: dict[str, Any]) -> None:
    def count(value: Any) -> int:
        if value in ([], {}):
            return 2
        if isinstance(value, dict):
            return 1 + len(value) + sum(map(count, value.values()))
        return 1 + sum(map(count, value)) if isinstance(value, list) else 1

    body, there = json.dumps(message).encode(), count(message) - 1
    frames.decode(body, there)
    with pytest.raises(frames.FrameTooLong):
        frames.decode(body, there - 1)


def test_nesting_is_limited() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' + b"[" * depth + b"]" * depth + b"}"

    frames.decode(nested(frames.DEPTH - 1))
    frames.decode(b'{"a":[' + b",".join([b"[[]]"] * 1000) + b"]}")
    with pytest.raises(frames.FrameError, match="inside one another"):
        frames.decode(nested(frames.DEPTH))


@settings(max_examples=150)
@given(st.binary(max_size=20))
def test_no_message_has_an_unpaired_surrogate(raw: bytes) -> None:
    for body in (b'{"a":"' + raw.replace(b'"', b"") + b'"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\\ud800"}'):
        with contextlib.suppress(frames.FrameError):
            str(frames.decode(body)).encode()


@settings(max_examples=300)
@given(TAGGED)
def test_any_data_is_a_plain_value_or_refused(data: Any) -> None:
    try:
        value = plain_data.decode(data)
    except plain_data.Undecodable:
        return
    stack = [value]
    while stack:
        item = stack.pop()
        assert type(item) in CROSSES
        if isinstance(item, dict):
            stack += [*item, *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack += item


@settings(max_examples=150)
@given(VALUES)
def test_values_come_back_equal_and_of_the_same_type(value: Any) -> None:
    again = plain_data.decode(json.loads(json.dumps(plain_data.encode(value))))
    assert again == value and type(again) is type(value)


def test_what_cannot_cross_is_named() -> None:
    class Own(dict):  # type: ignore[type-arg]
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert type(plain_data.decode(plain_data.encode(Own(a=1)))) is dict
    with pytest.raises(plain_data.Unsendable, match="a function cannot cross"):
        plain_data.encode([pieces])
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="deeply nested"):
        plain_data.encode(loop)
    wide: Any = []
    for _ in range(60):
        wide = [wide, wide]
    with pytest.raises(ValueError, match="too large"):
        plain_data.encode(wide)
