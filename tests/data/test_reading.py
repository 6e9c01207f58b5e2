"""Files are streamed in bounded memory, and every unreadable record is reported with its place."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.data import reading
from llm_as_judge.data.reading import Raw, read


def made(folder: Path, content: bytes | str, name: str = "a.json") -> list[Raw]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read(path))


def reasons(raws: list[Raw]) -> list[tuple[str, str]]:
    return [(raw.place, raw.reason) for raw in raws if raw.record is None]


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
    kept, reading._CHUNK = reading._CHUNK, chunk
    try:
        text = json.dumps(records, indent=indent, ensure_ascii=ascii_only)
        assert [raw.record for raw in made(folder, text)] == records
        wrapped = {"version": "1", "n": 3, "data": records, "end": None}
        nested = json.dumps(wrapped, indent=indent, ensure_ascii=ascii_only)
        assert [raw.record for raw in made(folder, nested)] == records
        lines = "\r\n\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records)
        assert [raw.record for raw in made(folder, lines, "a.jsonl")] == records
        if records:
            assert [raw.record for raw in made(folder, lines)] == records  # JSON lines in a file called .json
    finally:
        reading._CHUNK = kept


def test_squads_articles_become_questions_and_a_bad_article_is_reported(tmp_path: Path) -> None:
    question = {"id": "1", "question": "q"}
    article = {"title": "A", "paragraphs": [{"context": "c", "qas": [question, {**question, "id": "2"}]}]}
    bad = {"title": "B", "paragraphs": [{"context": "", "qas": [question]}]}
    raws = made(tmp_path, json.dumps({"version": "v2.0", "data": [article, bad, article]}))
    assert [(raw.record or {}).get("id") for raw in raws] == ["1", "2", None, "1", "2"]
    assert reasons(raws) == [("article 'B'", "field 'context' must be a non-empty string, got ''")]


def test_memory_is_bounded_by_a_record_for_every_format(tmp_path: Path) -> None:
    """A large array, and small gzipped files that unpack to one record of 100 MB."""
    big = {
        "array.json": b"[" + b",".join([b'{"a": "%s"}' % (b"x" * 10_000)] * 4000) + b"]",
        "line.jsonl.gz": b'{"a": 1}\n{"a": "' + b"x" * 100_000_000 + b'"}\n{"a": 2}\n',
        "keys.json.gz": b"{" + b",".join(b'"%d": "%s"' % (i, b"x" * 1_000_000) for i in range(100)) + b"}",
        "line.csv.gz": b"x" * 100_000_000,
    }
    limit = {"array.json": 8e6}
    found = {}
    for name, content in big.items():
        path = tmp_path / name
        path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
        del content
        tracemalloc.start()
        counts, wrong = 0, list[str]()
        for raw in read(path):
            counts += raw.record is not None
            wrong += [raw.reason] if raw.record is None else []
        assert tracemalloc.get_traced_memory()[1] < limit.get(name, 7 * reading.LONGEST), name
        tracemalloc.stop()
        found[name] = (counts, ["longer than 16 MB" in reason or "field larger" in reason for reason in wrong])
    assert found == {
        "array.json": (4000, []), "line.jsonl.gz": (2, [True]), "keys.json.gz": (0, [True]), "line.csv.gz": (0, [True]),
    }  # fmt: skip


def test_a_bad_document_gives_the_records_before_the_fault_and_the_reason(tmp_path: Path) -> None:
    torn = made(tmp_path, '[{"a": 1},\n {"a": 2},\n {"a": "unfin')
    assert [raw.record for raw in torn] == [{"a": 1}, {"a": 2}, None]
    cases: list[tuple[str | bytes, str, str]] = [
        ('[{"a": 1}', "record 2", "Expecting value"),
        ('[{"a": 1}] x', "record 2", "nothing else after the array"),
        ('{"version": "1", "data": [{"a": 1}', "record 2", "Expecting value"),
        ('{"a" 1}', "record 1", "Expecting ':'"),
        ("{a: 1}", "record 1", "Expecting property name"),
        ('[1, {"a": 1}]', "record 1", "must be an object, got int"),
        ('"text"', "record 1", "must be an object, got str"),
        ("[" * 100_000, "record 1", "nested too deeply"),
        (b'[{"a": 1},\n{"a": "\xff"}]', "record 1", "not UTF-8"),
        ('{"a": "x\\ud83d"}', "record 1", "half a surrogate pair"),
    ]
    found = [(text, place, reason, reasons(made(tmp_path, text))) for text, place, reason in cases]
    missed = [
        (text[:50], given)
        for text, place, reason, given in found
        if not any(p == place and reason in r for p, r in given)
    ]
    assert not missed


def test_every_bad_line_is_reported_and_the_good_ones_are_read(tmp_path: Path) -> None:
    lines = [b'{"a": "\\ud83d\\ude00"}', b"{", b'{"a": "\xe9"}', b"[1]", b"", b'{"a": 2}', b"[" * 100_000,
             b'{"a": "x\\ud83d"}', b'{"a": 3']  # fmt: skip
    raws = made(tmp_path, b"\n".join(lines), "a.jsonl")
    assert [raw.record for raw in raws if raw.record] == [{"a": "\U0001f600"}, {"a": 2}]
    assert [(place, reason.split(":")[0][:20]) for place, reason in reasons(raws)] == [
        ("2", "not JSON"), ("3", "not UTF-8"), ("4", "must be an object, g"), ("7", "not JSON"),
        ("8", "contains half a surr"), ("9", "not JSON"),
    ]  # fmt: skip


def test_torn_or_fake_gzip_files_are_reported(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n' * 1000)
    assert len(made(tmp_path, packed, "a.jsonl.gz")) == 1000
    for content in (packed[:-20], b"plain", packed[:50] + b"\0" * 50):
        assert "cannot be read" in reasons(made(tmp_path, content, "b.jsonl.gz"))[-1][1]


def test_csv_faults_have_their_line(tmp_path: Path) -> None:
    raws = made(tmp_path, 'q,a,b,c,d,A\nq,a\n"two\nlines",a,b,c,d,B\n', "a.csv")
    assert [(raw.place, bool(raw.record)) for raw in raws] == [("1", True), ("2", False), ("4", True)]
    assert reasons(made(tmp_path, b"q,a,b,c,d,A\n\xff,a,b,c,d,A\n", "a.csv"))[-1][0] == "2"
