"""Forms of records: a benchmark's, the project's own, those of other projects, or what ``data.fields`` says.

The own format is flat: ``problem``; ``answer``: text, number or a list of them, which only a judge of your own can do
without; ``type``: math, code, qa or one of ``data.domains``; optional ``context``, ``id``, ``dataset``,
``unanswerable``. Code has ``tests`` (text or a list of asserts) and may have ``entry_point``, ``public_tests`` and
``prelude``. Of the names in ``SPELLINGS`` the first one present is used, of those for a context all. If the answer is
the letter of an option, the options are shown with the question; a record with options that are not shown is refused.

Recognised are verl's and DAPO's (``prompt``, ``reward_model.ground_truth``), TRL's (``prompt`` with ``answer``,
``solution``, ``ground_truth`` or ``completion``), chats in ``messages`` and ShareGPT's ``conversations``.
``data.fields`` maps names of the own format to paths of keys and list positions (``prompt.0.content``). Where a path
ends at a chat, a problem is the one turn of the user, and an answer the last turn of the assistant.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from llm_as_judge.answers import formulas
from llm_as_judge.answers.code import is_name
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.registry import did_you_mean
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.code_tests import check_tests, tested_function
from llm_as_judge.data.dataset import Dataset
from llm_as_judge.data.reading import read
from llm_as_judge.data.record import Record, choice_problem, content_id, short
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Reference, kind_of

SPELLINGS: Mapping[str, Sequence[str]] = {
    "problem": ("question",),
    "answer": ("answers", "ground_truth"),
    "type": ("problem_type", "domain"),
    "tests": ("test", "test_list"),
    "dataset": ("source",),
    "context": ("passage", "article", "paragraph", "table", "body"),
}
FIELDS = (
    "problem", "answer", "type", "context", "id", "dataset", "unanswerable", "tests", "entry_point", "public_tests",
    "prelude", "options",
)  # fmt: skip
#: Fields that are read, with their names in the own format; of several for a name, the last one present counts.
_READ = {key: name for name in FIELDS for key in reversed((name, *SPELLINGS.get(name, ())))}
_LETTERS = "ABCDEFGHIJ"  # of options that judges read
#: Records of known forms, in built-in domains.
NO_MAPPING = DataConfig()
_PROBLEMS = ("prompt", "messages", "conversations")
_ANSWERS = ("reward_model.ground_truth", "answer", "ground_truth", "solution", "completion")
_CONTEXT = ("context", *SPELLINGS["context"])
_CHOICES = re.compile(r"(option|choice)[s_]*", re.IGNORECASE)
#: Keys that say what they hold, the surest first, for the mapping of an unknown form.
_SAYING: Mapping[str, Sequence[str]] = {
    "problem": ("problem", *SPELLINGS["problem"], "prompt", "instruction", "query", "input"),
    "answer": ("answer", "final_answer", *SPELLINGS["answer"], "gold", "target", "label", "output", "solution"),
    "context": (*_CONTEXT, "input"),
}
_USER, _ASSISTANT = ("user", "human"), ("assistant", "gpt")
_SURE = 100  # records of a file that decide the domain of those without one


class Forms:
    """Reads the records of one file, with ``data.fields`` and ``data.domains``.

    Raises ``ConfigError`` for fields that are not those of a problem.
    """

    def __init__(self, file: Path, data: DataConfig = NO_MAPPING) -> None:
        self._file, self._data, fields = file, data, data.fields
        if unknown := next((name for name in fields if name not in FIELDS), None):
            hint = did_you_mean(unknown, FIELDS)
            raise ConfigError(f"data.fields: there is no field {unknown!r}; {hint}there are {', '.join(FIELDS)}")
        if fields and "problem" not in fields:
            raise ConfigError(f"data.fields: name the path of 'problem', got {dict(fields)}")

    def __call__(self, record: Record) -> tuple[Problem, Dataset | None, Record]:
        """Return the problem of a record, its benchmark if it is of one, and the record in the form that was read.

        Raises ``DataError`` that names what is missing or contradictory, or the mapping to write for an unknown form.
        """
        name, own = self._formed(record)
        if dataset := DATASETS.get(name):
            problem = dataset.parse(own)
            if problem.question.context or not any(map(own.get, _CONTEXT)):
                return problem, dataset, own
        named = spelt(own)
        if isinstance(named.get("answer"), dict) and not self._data.fields and not named.get("tests"):
            raise DataError(f"field 'answer' must be text, a number or a list of them: {_mapping(record)}")
        if "type" not in named:
            own = {**own, "type": "code" if named.get("tests") else self._usual}
        problem = parse(own, self._data)
        if problem.question.kind != "code" and (path := next(_unshown(record, problem.question.statement), None)):
            cure = f"give 2 to {len(_LETTERS)} texts and the right one's letter or index, or remove them"
            raise DataError(f"{path!r} would not be shown (with data.fields, add options: {path}); {cure}")
        return problem, None, own

    def parse(self, record: Record) -> Problem:
        """Return the problem of a record, likewise."""
        return self(record)[0]

    def _formed(self, record: Record) -> tuple[str, Record]:
        if self._data.fields:
            return "custom", {name: _mapped(record, name, path) for name, path in self._data.fields.items()}
        if bad := next((key for key, x in record.items() if _is_binary(x) or (x and key in ("image", "images"))), None):
            raise DataError(f"column {bad!r} is binary or an image; leave it out: {_mapping(record)}")
        if (named := _recognised(record, self._data.known)) is not None:
            return named, record
        if not (form := _form_of(record)):
            raise DataError(f"fields {[*record]} are those of no known benchmark or form; map them: {_mapping(record)}")
        own = {name: _mapped(record, name, path) for name, path in form.items()}
        kind = str(record.get("type") or record.get("ability")).lower()
        rest = {name: value for name, value in record.items() if name not in ("type", *SPELLINGS["type"])}
        return "custom", {**rest, **own, **({"type": kind} if kind in self._data.known else {})}

    @cached_property
    def _usual(self) -> Domain:
        """The domain of records that do not say theirs: math if most answers are numbers or formulas, else qa."""
        answers = list[str]()
        for _, record in islice(read(self._file), _SURE):
            with suppress(DataError):
                if not isinstance(record, DataError):
                    answers += parse({**self._formed(record)[1], "type": "qa"}).reference.answers[:1]
        return "math" if 2 * sum(map(_is_maths, answers)) > len(answers) else "qa"


def _recognised(record: Record, known_domains: Collection[str]) -> str | None:
    """Name the benchmark of ``record``, or ``custom`` for the project's own format; None for another form."""
    has, named = record.keys(), spelt(record)
    known = named.get("type") in known_domains
    if {"problem", "type"} <= named.keys() and (known or not {"solution", "supporting_facts"} & has):
        return "custom"
    for name, dataset in reversed(list(DATASETS.items())):
        if dataset.recognises(record):
            return name
    return "custom" if "problem" in named and {"answer", "tests", "unanswerable"} & named.keys() else None


def _form_of(record: Record) -> Mapping[str, str]:
    """Find the paths of a record of another project; empty for an unknown form."""
    asked = next((name for name in _PROBLEMS if record.get(name)), None)
    if asked is None:
        return {}
    answer = next((path for path in _ANSWERS if _at(record, path) is not None), None)
    if answer is None and (turns := _turns(record[asked])) and turns[-1][0] in _ASSISTANT:
        answer = asked
    paths = {"problem": asked, "answer": answer, "dataset": "data_source" if "data_source" in record else None}
    return {name: path for name, path in paths.items() if path}


def _mapped(record: Record, name: str, path: str) -> Any:
    """Read the value at ``path`` for field ``name``. Raises ``DataError`` if there is none, or it is no such value."""
    if name == "type" and path in DOMAINS and path not in record:
        return path
    if (value := _at(record, path, _at)) is _at:
        raise DataError(
            f"data.fields: {name}: the record has nothing at {path!r}; there are {', '.join(_leaves(record))}. A file "
            "that needs no mapping is read with data.fields={}"
        )
    if _is_binary(value):
        raise DataError(f"data.fields: {name}: {path!r} is binary, which no workflow can read; name another column")
    if name not in ("problem", "answer") or not (turns := _turns(value)):
        return value
    roles = _USER if name == "problem" else _ASSISTANT
    said = [text for role, text in turns if role in roles]
    if not said or (name == "problem" and len(said) > 1):
        cure = f"name one, such as data.fields={{{name}: {next(_leaves(value, path))}}}"
        raise DataError(f"{path!r} is a chat with {len(said)} turns of the {roles[0]}; {cure}")
    return said[-1]


def _at(record: Any, path: str, missing: Any = None) -> Any:
    """Return the value at a path; ``missing`` if there is none."""
    try:
        for key in path.split("."):
            record = record[int(key)] if isinstance(record, list) else record[key]
    except (KeyError, IndexError, TypeError, ValueError):
        return missing
    return record


def _turns(value: Any) -> list[tuple[str, str]]:
    """Read role and text of every turn of a chat; empty if it is none."""
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        return []
    turns = [(turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))) for turn in value]
    parts = [(role, _said(content)) for role, content in turns]
    return [(role, text) for role, text in parts if isinstance(role, str) and text is not None]


def _said(content: Any) -> str | None:
    """Read a turn's text, which may be a list of parts. Raises ``DataError`` for a part that is no text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    if other := [part for part in content if not isinstance(_at(part, "text"), str)]:
        raise DataError(f"a turn of the chat has a part that is no text, which no workflow can read: {short(other[0])}")
    return "\n".join(part["text"] for part in content)


def _is_binary(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_binary, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bytes)


def _is_maths(answer: str) -> bool:
    text = clean(answer.strip().strip("$"))
    return number(text) is not None or (bool(re.search(r"[\d\\]", text)) and formulas.parse(text) is not None)


def _mapping(record: Record) -> str:
    """Name the setting that a record of an unknown form needs; PATH where no key says it."""
    paths, found = list(_leaves(record)), dict[str, str]()
    for name, words in _SAYING.items():
        for word in words:
            fitting = [path for path in paths if word in path.lower().split(".") and path not in found.values()]
            if fitting and name not in found:  # rather the text itself than what is beside it
                found[name] = min(fitting, key=lambda path: path.lower().split(".")[-1] not in (word, "value", "text"))
    found = {"problem": "PATH", "answer": "PATH"} | found | dict(zip(["options"], _unshown(record), strict=False))
    fields = f"{{{', '.join(f'{name}: {path}' for name, path in found.items())}}}"
    cure = f"--set 'data.fields={fields}' (commands of data: --fields '{fields}')"
    return f"{cure}; for PATH name one of {', '.join(paths)}" if "PATH" in found.values() else cure


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield paths of the texts and numbers in a record."""
    if isinstance(value, str | int | float):
        yield path
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else list(enumerate(value))[:3]
        for key, inner in items:
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))


def spelt(record: Record) -> dict[str, Any]:
    """Return the record's values under the project's names, without absent and null ones."""
    return {name: record[key] for key, name in _READ.items() if record.get(key) is not None}


def parse(record: Record, data: DataConfig = NO_MAPPING) -> Problem:
    """Parse one record. Raises ``DataError`` that names what is missing or contradictory."""
    named = spelt(record)
    text, domain = named.get("problem"), named.get("type")
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"field {_spellings('problem')} must be a non-empty string")
    if domain not in data.known:
        cure = "or add it: --set 'data.domains={NAME: {answer: text}}' (commands of data: --domains)"
        raise DataError(
            f"field {_spellings('type')} must be one of {', '.join(data.known)}, got {short(domain)}; {cure}"
        )
    like = data.like(domain)
    entry_point, public, prelude = None, tuple[str, ...](), ""
    if kind_of(domain, like) == "code":
        told = {name: record[name] for name in ("tests", *SPELLINGS["tests"]) if record.get(name)}
        if len({tuple(_lines(told, name)) for name in told}) > 1:
            raise DataError(f"fields {' and '.join(told)} hold different tests: keep the one that decides")
        prelude = _text(named, "prelude")
        entry_point, public, reference = _code(named, prelude)
    else:
        answers, unanswerable = _answers(named.get("answer")), named.get("unanswerable", False)
        if not isinstance(unanswerable, bool):
            raise DataError(f"field 'unanswerable' must be true or false, got {short(unanswerable)}")
        if unanswerable and answers:
            raise DataError(f"give either an {_spellings('answer')} or 'unanswerable': true")
        text, reference = _with_options(record, named, text, Reference(answers, unanswerable=unanswerable))
    dataset, context, id_ = _text(named, "dataset") or "custom", _context(record), named.get("id", "")
    if isinstance(id_, bool) or not isinstance(id_, (str, int)):
        raise DataError(f"field 'id' must be text or a number, got {short(id_)}")
    name = content_id(dataset, text, context) if id_ == "" else str(id_)
    return Problem(Question(name, text, domain, context, entry_point, public, dataset, like, prelude), reference)


def _code(named: Mapping[str, Any], prelude: str) -> tuple[str, tuple[str, ...], Reference]:
    """Read the function's name, the public tests, and the reference with the hidden tests."""
    tests, public = "\n".join(_lines(named, "tests")), _lines(named, "public_tests")
    if not tests and ({"answer", "tests"} & named.keys() or not is_name(_text(named, "entry_point"))):
        raise DataError("a code problem needs 'tests': asserts, or 'def check(candidate)'")
    entry_point = _text(named, "entry_point") or tested_function(tests)
    if tests:
        check_tests(tests, entry_point, prelude, public)
    return entry_point, public, Reference(tests=tests)


def _with_options(record: Record, named: Mapping[str, Any], text: str, reference: Reference) -> tuple[str, Reference]:
    """Add options to the question, which needs them if the answer is a letter, or an index or an item of ``options``.

    Raises ``DataError`` if the record has several lists that may hold them.
    """
    given, lists = named.get("answer"), _lists(record)
    chosen = [name for name in lists if _CHOICES.fullmatch(name)]
    if isinstance(given, str) and (label := re.fullmatch(r"\(?([A-Z])\)?\.?", given.strip())):
        place = ord(label[1]) - ord("A")
        fitting = [name for name, texts in lists.items() if len(texts) > place]
        shown = re.search(rf"(?:^|[\s(]){label[1]}[).:]", f"{_context(record)}\n{text}", re.MULTILINE)
        if shown or not fitting:
            return text, reference
        chosen = [name for name in chosen if name in fitting] or fitting
        if len(chosen) > 1:
            raise DataError(f"answer {given!r} is a letter, and the options may be in {' or '.join(chosen)}: keep one")
    elif chosen and str(given) in lists[chosen[0]]:
        place = lists[chosen[0]].index(str(given))
    elif chosen and isinstance(given, int) and 0 <= given < len(lists[chosen[0]]):
        place = given
    else:
        return text, reference
    texts = lists[chosen[0]]
    if len(texts) > len(_LETTERS):
        raise DataError(f"{chosen[0]!r} has {len(texts)} options, of which at most {len(_LETTERS)} can be shown")
    shown_with = choice_problem("", None, text, list(_LETTERS[: len(texts)]), texts, _LETTERS[place])
    return shown_with.question.text, shown_with.reference


def _lists(record: Record) -> dict[str, list[str]]:
    """Find what may be a question's options: lists of 2 to 10 texts, also written as an object or lettered columns."""
    found, columns = dict[str, list[str]](), dict[str, list[str]]()
    for name, value in record.items():
        if isinstance(value, dict):
            value = value["text"] if isinstance(value.get("text"), list) else list(value.values())
        if name in _READ and name != "options":
            continue
        if isinstance(value, list) and 2 <= len(value) <= 10 and all(isinstance(item, str) for item in value):
            found[name] = value
        elif isinstance(value, str) and (column := re.fullmatch(r"(.*?)_?([A-Za-z]|\d)", name)):
            columns.setdefault(column[1] or "options", []).append(value)
    return {**{name: texts for name, texts in columns.items() if len(texts) > 1}, **found}


def _unshown(record: Record, shown: str = "", path: str = "") -> Iterator[str]:
    """Yield paths of the options that ``shown`` lacks."""
    for key, value in record.items():
        if _CHOICES.fullmatch(key) and isinstance(value, list | dict) and len(value) > 1:
            texts = _lists({key: value}).get(key)
            if not texts or any(text.strip() not in shown for text in texts):
                yield f"{path}{key}"
        elif isinstance(value, dict):
            yield from _unshown(value, shown, f"{path}{key}.")


def to_record(problem: Problem) -> dict[str, Any]:
    """Write the flat record that ``parse`` reads back as the same problem."""
    question, reference = problem.question, problem.reference
    record: dict[str, Any] = {
        "id": question.id,
        "dataset": question.dataset,
        "type": question.domain,
        "problem": question.text,
        "context": question.context,
    }
    if question.kind == "code":
        record |= {"entry_point": question.entry_point, "public_tests": list(question.public_tests)}
        record |= {"tests": reference.tests, "prelude": question.prelude}
    elif reference.unanswerable:
        record["unanswerable"] = True
    elif reference.answers:
        # a list means that each of several answers is right
        record["answer"] = reference.answers[0] if len(reference.answers) == 1 else list(reference.answers)
    return {name: value for name, value in record.items() if value}


def _spellings(name: str) -> str:
    others = ", ".join(repr(spelling) for spelling in SPELLINGS.get(name, ()))
    return f"{name!r} (or {others})" if others else repr(name)


def _answers(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in values):
        raise DataError(f"field 'answer' must be text, a number or a list of them, got {short(value)}")
    if any(isinstance(item, float) and not math.isfinite(item) for item in values):
        raise DataError(f"field 'answer' must be a finite number, got {short(value)}")
    # other mixtures keep GSM8K's raw answers, which end in "#### N"
    answers = tuple(dict.fromkeys(str(item).rpartition("\n#### ")[2].strip() for item in values))
    if "" in answers:
        raise DataError("field 'answer' is empty; for a question without an answer write \"unanswerable\": true")
    return answers


def _text(named: Mapping[str, Any], name: str) -> str:
    value = named.get(name, "")
    if not isinstance(value, str):
        raise DataError(f"field {name!r} must be text, got {short(value)}")
    return value


def _context(record: Record) -> str:
    """Return what a question is about, under all its names."""
    return "\n\n".join(dict.fromkeys(_text(record, name) for name in _CONTEXT if record.get(name)))


def _lines(named: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = named.get(name)
    lines = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(line, str) for line in lines):
        raise DataError(f"field {name!r} must be text or a list of text, got {short(value)}")
    return tuple(line for line in lines if line.strip())
