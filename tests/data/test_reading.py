"""Files are read in a stream, and whatever is wrong in one is told with its place."""

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
from llm_as_judge.data.load import load_file
from llm_as_judge.data.reading import Raw, read
from llm_as_judge.errors import DataError

GOOD = {"problem": "1+1?", "answer": "2", "type": "math"}


def made(folder: Path, content: bytes | str, name: str = "a.json") -> list[Raw]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read(path))


def reasons(raws: list[Raw]) -> list[tuple[str, str]]:
    return [(raw.place, raw.reason) for raw in raws if raw.record is None]


# whole numbers of any size, infinity and control characters are in files, whoever forbids them
texts = st.text(max_size=5) | st.text(st.sampled_from('"\\\x00\x7f\u2028é\U00010000'), max_size=3)
numbers = st.integers() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
# "data" and "paragraphs" mean something to the reader
objects = st.dictionaries(st.text(max_size=3), values, max_size=4)


@settings(deadline=None, max_examples=150)
@given(st.lists(objects, max_size=8), st.integers(1, 40), st.sampled_from([None, 1, 2]), st.booleans())
def test_any_document_is_read_as_the_json_module_reads_it(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], chunk: int, indent: int | None, ascii_only: bool
) -> None:
    folder = tmp_path_factory.mktemp("r")
    kept, reading._CHUNK = reading._CHUNK, chunk
    try:
        text = json.dumps(records, indent=indent, ensure_ascii=ascii_only)
        assert [raw.record for raw in made(folder, text)] == records
        nested = json.dumps({"version": "1", "data": records}, indent=indent, ensure_ascii=ascii_only)
        assert [raw.record for raw in made(folder, nested)] == records
        lines = "\r\n\n".join(json.dumps(record, ensure_ascii=ascii_only) for record in records)
        assert [raw.record for raw in made(folder, lines, "a.jsonl")] == records
        if records:
            assert [raw.record for raw in made(folder, lines)] == records  # lines in a file called .json
    finally:
        reading._CHUNK = kept


def test_squads_articles_become_questions(tmp_path: Path) -> None:
    question = {"id": "1", "question": "?", "answers": [{"text": "a", "answer_start": 0}], "is_impossible": False}
    article = {"title": "T", "paragraphs": [{"context": "c", "qas": [question, {**question, "id": "2"}]}]}
    bad = {"title": "B", "paragraphs": [{"context": "", "qas": [question]}]}
    raws = made(tmp_path, json.dumps({"version": "v2.0", "data": [article, bad, article]}))
    assert [(raw.record or {}).get("id") for raw in raws] == ["1", "2", None, "1", "2"]
    assert reasons(raws) == [("article 'B'", "field 'context' must be a non-empty string, got ''")]


def test_a_large_array_is_not_held_in_memory(tmp_path: Path) -> None:
    record = json.dumps({"text": "x" * 10_000})
    path = tmp_path / "a.json"
    path.write_text("[" + ",\n".join([record] * 4000) + "]")  # 40 MB
    tracemalloc.start()
    assert sum(1 for _ in read(path)) == 4000
    assert tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()


def test_a_torn_or_bad_document_tells_the_line_after_what_was_whole(tmp_path: Path) -> None:
    torn = made(tmp_path, '[{"a": 1},\n {"a": 2},\n {"a": "unfin')
    assert [raw.record for raw in torn] == [{"a": 1}, {"a": 2}, None]
    assert reasons(torn) == [("3", "not JSON: Unterminated string starting at")]
    for text, place, reason in [
        ('[{"a": 1}\n {"a": 2}]', "2", "expected ',' or ']', got '{'"),
        ('[{"a": 1}', "1", "got the end"),
        ('[{"a": 1}] x', "1", "something follows"),
        ('{"a" 1}', "1", "expected ':'"),
        ("{a: 1}", "1", "a key must be"),
        ('{"data": [{"a": 1},', "1", "Expecting value"),
        ('[1, {"a": 1}]', "record 1", "must be an object, got int"),
        ('"text"', "record 1", "must be an object, got str"),
        ("[" * 100_000, "1", "nested too deeply"),
    ]:
        assert any(p == place and reason in r for p, r in reasons(made(tmp_path, text))), text[:50]
    assert reasons(made(tmp_path, b'[{"a": 1},\n{"a": "\xff"}]'))[-1][0] == "2"


def test_every_bad_line_is_told_and_the_good_ones_read(tmp_path: Path) -> None:
    lines = [b'{"a": 1}', b"{", b'{"a": "\xe9"}', b"[1]", b"", b'{"a": 2}', b"[" * 100_000, b'{"a": 3']
    raws = made(tmp_path, b"\n".join(lines), "a.jsonl")
    assert [raw.record for raw in raws if raw.record] == [{"a": 1}, {"a": 2}]
    assert [place for place, _ in reasons(raws)] == ["2", "3", "4", "7", "8"]
    assert [reason.split(":")[0] for _, reason in reasons(raws)] == [
        "not JSON", "not UTF-8", "must be an object, got list", "not a record", "not JSON",
    ]  # fmt: skip


def test_a_line_of_50_mb_is_an_error_and_takes_no_such_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "' + b"x" * 50_000_000 + b'"}\n{"a": 2}\n')
    tracemalloc.start()
    raws = list(read(path))
    assert tracemalloc.get_traced_memory()[1] < 2.5 * reading.LONGEST
    tracemalloc.stop()
    assert [raw.record for raw in raws] == [{"a": 1}, None, {"a": 2}]
    assert reasons(raws) == [("2", "the line is longer than 16 MB")]
    path = path.rename(tmp_path / "a.json")
    path.write_bytes(b'[{"a": "' + b"x" * 50_000_000 + b'"}]')
    assert "longer than 16 MB" in reasons(list(read(path)))[0][1]


def test_gzip_torn_or_fake_is_told(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n' * 1000)
    assert len(made(tmp_path, packed, "a.jsonl.gz")) == 1000
    for content in (packed[:-20], b"plain", packed[:50] + b"\0" * 50):
        assert "cannot be read" in reasons(made(tmp_path, content, "b.jsonl.gz"))[-1][1]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_half_a_surrogate_pair_which_no_tokenizer_takes_is_told(tmp_path: Path, name: str) -> None:
    raws = made(tmp_path, '{"a": "\\ud83d\\ude00"}\n{"a": ["x\\ud83d"]}\n', name)
    assert raws[0].record == {"a": "\U0001f600"}
    assert "half a surrogate pair" in reasons(raws)[0][1]


def test_csv_faults_have_their_line(tmp_path: Path) -> None:
    raws = made(tmp_path, 'q,a,b,c,d,A\nq,a\n"two\nlines",a,b,c,d,B\n', "a.csv")
    assert [(raw.place, bool(raw.record)) for raw in raws] == [("1", True), ("2", False), ("4", True)]
    assert "not UTF-8" in reasons(made(tmp_path, b"q,a,b,c,d,A\n\xff,a,b,c,d,A\n", "a.csv"))[-1][1]


def test_a_load_tells_all_bad_lines_of_all_files(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        lines = [json.dumps(GOOD), "{", json.dumps({**GOOD, "answer": ""}), json.dumps({**GOOD, "type": "x"})]
        (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(DataError) as caught:
        load_file(tmp_path)
    told = str(caught.value).split("\n")
    assert [line.split(": ")[0] for line in told] == [
        f"{tmp_path}/{name}.jsonl:{line}" for name in "ab" for line in (2, 3, 4)
    ]
    assert "field 'answer' is empty" in told[1]


def test_fields_may_be_spelt_as_the_user_says(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"instruction": "1+1?", "target": 2, "kind": "math"}) + "\n")
    fields = {"problem": ["instruction"], "answer": ["target"], "type": ["kind"]}
    (problem,) = load_file(path, fields=fields)
    assert (problem.question.text, problem.reference.answers) == ("1+1?", ("2",))
    with pytest.raises(DataError, match="no known benchmark"):
        load_file(path)
