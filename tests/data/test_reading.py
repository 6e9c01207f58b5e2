"""Files are streamed in bounded memory, and every unreadable record is reported with its place."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.data import reading
from llm_as_judge.data.reading import read
from llm_as_judge.errors import DataError


def made(folder: Path, content: bytes | str, name: str = "a.json") -> list[Any]:
    """The records of a file with ``content``; for a bad one ``place: reason``."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [
        f"{place.removeprefix(f'{path}:')}: {record}" if isinstance(record, DataError) else record
        for place, record in read(path)
    ]


# large whole numbers, infinity and control characters occur in files, whatever the standards say
texts = st.text(max_size=5) | st.text(st.sampled_from('"\\\x00\x7f\u2028é\U00010000'), max_size=3)
numbers = st.integers() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
# three letters, because the keys "data" and "paragraphs" have a meaning
objects = st.dictionaries(st.text(max_size=3), values, max_size=4)


@settings(max_examples=100)
@given(st.lists(objects, max_size=8), st.integers(64, 120), st.sampled_from([None, 1, 2]), st.booleans())
def test_any_document_is_read_as_by_the_json_module(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], chunk: int, indent: int | None, ascii_only: bool
) -> None:
    folder = tmp_path_factory.mktemp("r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", chunk)
        wrapped = {"version": "1", "n": 3, "data": records, "end": None}
        for document in (records, wrapped):
            assert made(folder, json.dumps(document, indent=indent, ensure_ascii=ascii_only)) == records
        lines = "\r\n\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records)
        for name in ("a.jsonl", "a.json") if records else ("a.jsonl",):
            assert made(folder, lines, name) == records


def test_memory_is_bounded_by_a_record_for_every_format(tmp_path: Path) -> None:
    """A large array, and small gzipped files that unpack to one record of 100 MB."""
    big = {
        "array.json": b"[" + b",".join([b'{"a": "%s"}' % (b"x" * 10_000)] * 4000) + b"]",
        "line.jsonl.gz": b'{"a": 1}\n{"a": "' + b"x" * 100_000_000 + b'"}\n{"a": 2}\n',
        "keys.json.gz": b"{" + b",".join(b'"%d": "%s"' % (i, b"x" * 1_000_000) for i in range(100)) + b"}",
        "line.csv.gz": b"x" * 100_000_000,
    }
    found = {}
    for name, content in big.items():
        path = tmp_path / name
        path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
        del content
        tracemalloc.start()
        wrong = [str(record) if isinstance(record, DataError) else "" for _, record in read(path)]
        assert tracemalloc.get_traced_memory()[1] < (8e6 if name == "array.json" else 7 * reading.LONGEST), name
        tracemalloc.stop()
        reasons = ["longer than 16 MB" in reason or "field larger" in reason for reason in wrong if reason]
        found[name] = (wrong.count(""), reasons)
    assert found == {
        "array.json": (4000, []), "line.jsonl.gz": (2, [True]), "keys.json.gz": (0, [True]), "line.csv.gz": (0, [True]),
    }  # fmt: skip


def test_what_cannot_be_read_is_reported_with_its_place_and_the_rest_is_read(tmp_path: Path) -> None:
    question = {"id": "1", "question": "q"}
    article = {"title": "A", "paragraphs": [{"context": "c", "qas": [question, {**question, "id": "2"}]}]}
    empty = {"title": "B", "paragraphs": [{"context": "", "qas": [question]}]}
    flat = [{"context": "c", "id": id_, "question": "q"} for id_ in "12"]
    packed = gzip.compress(b'{"a": 1}\n' * 1000)
    one: dict[str, Any] = {"a": 1}
    cases: list[tuple[str, bytes | str, list[Any]]] = [
        ("a.json", '[{"a": 1},\n {"a": 1},\n {"a": "unfin', [one, one, "record 3: not JSON: Unterminated string"]),
        ("a.json", '{"v": "1", "data": [{"a": 1}', [one, "record 2: not JSON: Expecting value"]),
        ("a.json", '{"a" 1}', ["record 1: not JSON: Expecting ':'"]),
        ("a.json", '[1, {"a": 1}]', ["record 1: must be an object, got int", one]),
        ("a.json", "[" * 100_000, ["record 1: not JSON: nested too deeply"]),
        ("a.json", b'[{"a": 1},\n{"a": "\xff"}]', ["record 1: not UTF-8"]),
        ("a.json", '{"a": "x\\ud83d"}', ["record 1: contains half a surrogate pair"]),
        ("a.json", json.dumps({"version": "v2.0", "data": [article, empty, article]}),
         [*flat, "record 3: field 'context' must be a non-empty string, got ''", *flat]),
        ("a.jsonl", b'{"a": "\\ud83d\\ude00"}\n{\n{"a": "\xe9"}\n[1]\n\n{"a": 1}\n' + b"[" * 100_000 + b'\n{"a": 3',
         [{"a": "\U0001f600"}, "2: not JSON", "3: not UTF-8", "4: must be an object, got list", one,
          "7: not JSON: nested too deeply", "8: not JSON"]),
        ("a.csv", 'q,a,b,c,d,A\nq,a\n"two\nlines",a,b,c,d,B\n',
         [{"question": "q", "choices": [*"abcd"], "answer": "A", "subject": ""}, "2: an MMLU row has 6 columns",
          {"question": "two\nlines", "choices": [*"abcd"], "answer": "B", "subject": ""}]),
        ("b.csv", b"q,a,b,c,d,A\n\xff,a,b,c,d,A\n",
         [{"question": "q", "choices": [*"abcd"], "answer": "A", "subject": ""}, "2: not UTF-8"]),
        ("a.jsonl.gz", packed, [one] * 1000), ("b.jsonl.gz", b"plain", ["1: cannot be read: Not a gzipped file"]),
        ("c.jsonl.gz", gzip.compress(b'{"a": 1}\n')[:-8], [one, "2: cannot be read: Compressed file ended"]),
    ]  # fmt: skip
    wrong = []
    for name, content, expected in cases:
        found = made(tmp_path, content, name)
        pairs = zip(found, expected, strict=len(found) == len(expected))
        same = [f == e or (isinstance(f, str) and isinstance(e, str) and f.startswith(e)) for f, e in pairs]
        if len(found) != len(expected) or not all(same):
            wrong.append((content[:60], [str(item)[:200] for item in found[:8]]))
    assert not wrong
