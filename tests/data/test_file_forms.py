"""Files in every form: what is read, mapped or refused with its place."""

import gzip
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from helpers.cli import CommandLine
from helpers.processes import program
from helpers.samples import write_lines
from helpers.tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.data import reading
from llm_as_judge.data.problems import read_problems
from llm_as_judge.data.reading import read
from llm_as_judge.errors import ConfigError, DataError

TABLES = tables(__file__)

Record = dict[str, Any]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 3?"}]
#: Records of other projects that all hold the same problem, and its dataset.
SCHEMAS: dict[str, tuple[Record, str]] = TABLES["SCHEMAS"]
MAPPED: Record = {"task": {"turns": [{"say": "What is 2 + 3?"}], "gold": 5}, "kind": "arithmetic", "type": "Sums"}


def table(path: Path, *records: Record) -> Path:
    """The records as a Parquet file, or as an Arrow file or stream."""
    pytest.importorskip("datasets", reason="datasets is not installed; make peers installs it")
    import pyarrow
    import pyarrow.parquet

    rows = pyarrow.Table.from_pylist(list(records))
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(rows, path)
    else:
        make = pyarrow.ipc.new_stream if "stream" in path.name else pyarrow.ipc.new_file
        with make(path, rows.schema) as writer:
            writer.write_table(rows)
    return path


def by(**fields: str) -> DataConfig:
    return DataConfig(fields=fields)


def refused(path: Path, fields: dict[str, str] | None = None) -> str:
    with pytest.raises((DataError, ConfigError)) as caught:
        read_problems(path, by(**fields or {}))
    return str(caught.value)


def test_schemas_of_other_projects_are_recognised_in_every_file_format(here: Path) -> None:
    wrong = []
    for name, (record, dataset) in SCHEMAS.items():
        file = write_lines(here / "own.jsonl", [record, record])
        array = here / "own.json"
        array.write_text(json.dumps([record, record]))
        kinds = ("a.parquet", "b.arrow", "stream.arrow") if name == "verl, DAPO" else ("a.parquet",)
        tables = [table(here / f"[1] {kind}", record, record) for kind in kinds]
        for path in (file, array, *tables):
            first, second = read_problems(path)
            found = first.question.text, first.reference.answers[0].strip("$"), first.question.domain
            if found != ("What is 2 + 3?", "5", "math") or first != second or first.question.dataset != dataset:
                wrong.append((name, path.name, first))
    assert not wrong
    assert [problem.place for problem in read_problems(tables[0])] == [f"{tables[0]}:record {n}" for n in (1, 2)]
    csv = here / "own.csv"
    for mark in ",;\t":
        csv.write_text('problem,answer,context\n"What is 2,\nin words?",two,\nWho?,Ann,"A, B"\n'.replace(",", mark))
        one, two = (problem.question for problem in read_problems(csv))
        assert (one.text, one.domain, two.context) == (f"What is 2{mark}\nin words?", "qa", f"A{mark} B")


def test_paths_are_mapped_and_a_wrong_mapping_is_answered_with_what_there_is(here: Path) -> None:
    file = table(here / "own.parquet", MAPPED, MAPPED)
    assert "{problem: PATH, answer: task.gold}'); for PATH name one of task.turns.0.say, task.gold, kind" in refused(
        file
    )
    fields = {"problem": "task.turns.0.say", "answer": "task.gold", "dataset": "kind"}
    problem = read_problems(file, by(**fields))[0]
    assert (problem.question.text, problem.reference.answers) == ("What is 2 + 3?", ("5",))
    assert (problem.question.dataset, problem.question.domain) == ("arithmetic", "math")
    assert read_problems(file, by(**fields, type="qa"))[0].question.domain == "qa"
    choice = {"train": {"question": "Which?", "choices": ["a", "b"], "answer": 1}}
    nested, paths = (
        write_lines(here / "nested.jsonl", [choice]),
        {"problem": "train.question", "answer": "train.answer"},
    )
    assert "nested.jsonl:1: 'train.choices' would not be shown" in refused(nested, paths)
    assert read_problems(nested, by(**paths, options="train.choices"))[0].question.text == "Which?\nA. a\nB. b"
    empty = write_lines(here / "empty.jsonl", [{"q": "1 + 1?", "a": 2, "note": None}, {"q": "?", "a": 3, "note": "n"}])
    some = read_problems(empty, by(problem="q", answer="a", context="note"))
    assert [problem.question.context for problem in some] == ["", "n"]
    chat = write_lines(here / "chat.jsonl", [{"dialogue": [*CHAT, {"role": "user", "content": "And 3 + 3?"}], "a": 6}])
    for path, mapping, said in (
        (file, {**fields, "problem": "task.turns.1.say"}, "record 1: data.fields: problem: the record has nothing at"),
        (file, {"problem": "task.turns.0.say", "answr": "task.gold"}, "no field 'answr'; did you mean 'answer'"),
        (file, {"answer": "task.gold"}, "name the path of 'problem'"),
        (file, {**fields, "type": "kind"}, "must be one of math, code, qa, got 'arithmetic'"),
        (chat, {"problem": "dialogue", "answer": "a"}, "a chat with 2 turns of the user; name one"),
    ):
        message = refused(path, mapping)
        assert said in message and (str(path) in message or "data.fields" in message), message
    assert read_problems(chat, by(problem="dialogue.2.content", answer="a"))[0].question.text == "And 3 + 3?"


def test_binary_columns_and_damaged_files_are_refused_with_file_and_record(here: Path) -> None:
    seen = {"question": "What is shown?", "answer": "a cat", "image": {"bytes": b"\x89PNG", "path": "cat.png"}}
    file = table(here / "seen.parquet", seen)
    message = refused(file)
    assert message.startswith(f"{file}:record 1: column 'image' is binary") and "{problem: question, answer" in message
    assert "'image.bytes' is binary" in refused(file, {"problem": "question", "answer": "image.bytes"})
    named = {"problem": "question", "answer": "answer", "context": "image.path"}
    assert read_problems(file, by(**named))[0].question.context == "cat.png"
    pictured = [{"type": "image_url", "image_url": "x.png"}, {"type": "text", "text": "What is shown?"}]
    chat = write_lines(here / "chat.jsonl", [{"prompt": [{"role": "user", "content": pictured}], "answer": "a cat"}])
    assert "chat.jsonl:1: a turn of the chat has a part that is no text" in refused(chat)
    for name in ("a.parquet", "a.arrow"):
        (here / name).write_bytes(b"nothing of the kind")
        assert refused(here / name).startswith(f"{here / name}:record 1: ")


def test_the_hub_needs_a_network_and_its_files_are_read_like_any(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed; make peers installs it")
    for name in ("hub:owner", "hub:owner/name:train:1", "hub:a/b/c/d"):
        assert "write hub:owner/name" in refused(Path(name))
    words = ["data", "inspect", "--file", "hub:nobody/none:test"]
    ended = program(sys.executable, "-m", "llm_as_judge", *words, HF_HUB_OFFLINE=1, HF_HOME=here)
    assert ended.returncode == 2 and "hub:nobody/none:test: cannot be fetched" in ended.stderr
    assert "without a network, name a file" in ended.stderr and "Traceback" not in ended.stderr
    asked = []

    def load(name: str, config: str | None, split: str) -> Any:
        asked.append((name, config, split))
        file = table(here / "hub.parquet", SCHEMAS["TRL"][0])
        return datasets.Dataset.from_parquet(str(file), cache_dir=str(here / "cache"))

    with monkeypatch.context() as patch:
        patch.setattr("llm_as_judge.data.reading.fetch_from_hub", load)
        (problem,) = read_problems(Path("hub:owner/my-data.v2/main:validation"))
        read_problems(Path("hub:owner/name"))
    assert asked == [("owner/my-data.v2", "main", "validation"), ("owner/name", None, "train")]
    assert problem.question.text == "What is 2 + 3?" and str(here / "cache") in problem.place


def test_runs_and_data_commands_read_them(here: Path, cli: CommandLine) -> None:
    rows = [{**MAPPED, "task": {"turns": [{"say": f"What is {n} + {n}?"}], "gold": 2 * n}} for n in range(12)]
    own = table(here / "own.parquet", *rows)
    held = write_lines(here / "held.jsonl", [{**rows[0], "task": {"turns": [{"say": "What is 9 + 9?"}], "gold": 18}}])
    fields = "{problem: task.turns.0.say, answer: task.gold}"
    (here / "run.yaml").write_text(
        f"data: {{train_dataset: own.parquet, test_dataset: held.jsonl, fields: {fields},\n"
        "  domain_ratios: {math: 1}}\n",
        encoding="utf-8",
    )
    problems = open_problems(load_config("run.yaml"))
    assert len(problems.sampler.peek(None)) == 12 and problems.heldout[0].reference.answers == ("18",)
    shown = cli("data", "inspect", "--file", own, "--fields", fields)
    assert all(f"problem: What is {n} + {n}?" in shown for n in range(3)) and "What is 3 + 3?" not in shown
    assert "answer: 4" in shown and "math" in shown
    assert "12 answers of 12 records, 0 faults" in cli("data", "check", "--file", own, "--fields", fields)
    process = ["data", "process", "--custom", own, "--custom", held, "--fields", fields, "--ratios", "1:0:0"]
    cli(*process, "--train-size", 8, "--test-size", 2)
    info = json.loads(Path("data/mixed/info.json").read_text())
    assert info["raw"]["custom"]["files"] == 2 and info["datasets"]["custom_math"]["records"] == 13
    assert "there is no field 'q'" in cli.refused("data", "inspect", "--file", own, "--fields", "{q: task}")
    assert "data.fields" in cli.refused("data", "inspect", "--file", own, "--fields", "[task]")
    opened = write_lines(here / "open.jsonl", [{"prompt": f"Write {n} lines."} for n in range(3)])
    process = ["data", "process", "--custom", opened, "--ratios", "0:1:0", "--train-size", 2, "--test-size", 1]
    assert "3 of them have no answer: set judge.function, rubric or relative" in cli(*process)


def test_json_lines_need_no_extra(here: Path) -> None:
    """Nothing imports ``datasets`` for files that the package reads itself; without it, a table names the extra."""
    write_lines(here / "own.jsonl", [SCHEMAS["TRL"][0]])
    (here / "own.csv").write_text("problem,answer\n1 + 1?,2\n", encoding="utf-8")
    (here / "own.parquet").write_bytes(b"")
    code = (
        "import sys\nsys.modules['datasets'] = None\nfrom pathlib import Path\n"
        "from llm_as_judge.data.problems import read_problems\n"
        "print(len(read_problems(Path('own.jsonl')) + read_problems(Path('own.csv'))))\n"
        "try:\n    read_problems(Path('own.parquet'))\nexcept Exception as error:\n    print(error)\n"
    )
    out = program(sys.executable, "-c", code).stdout
    assert out.startswith("2\n") and "pip install 'llm-as-judge[data]'" in out


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
