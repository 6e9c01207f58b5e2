"""Forms of records: a benchmark's, the project's own, those of other projects, or what ``data.fields`` says.

Recognised are verl's and DAPO's (``prompt``, ``reward_model.ground_truth``), TRL's (``prompt`` with ``answer``,
``solution``, ``ground_truth`` or ``completion``), chats in ``messages`` and ShareGPT's ``conversations``.
``data.fields`` maps names of the project's own format to paths of keys and list positions (``prompt.0.content``). Where
a path ends at a chat, a problem is the one turn of the user, and an answer the last turn of the assistant.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from llm_as_judge.answers import formulas
from llm_as_judge.answers.notation import clean, number
from llm_as_judge.config.registry import did_you_mean
from llm_as_judge.data.benchmarks import custom
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.data.reading import read
from llm_as_judge.data.record import Record, short
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import DOMAINS, Domain

#: Names of the project's own format and their paths.
Fields = Mapping[str, str]
NO_FIELDS: Fields = {}
_PROBLEMS = ("prompt", "messages", "conversations")
_ANSWERS = ("reward_model.ground_truth", "answer", "ground_truth", "solution", "completion")
_USER, _ASSISTANT = ("user", "human"), ("assistant", "gpt")
_SURE = 100  # records of a file that decide the domain of those without one


class Forms:
    """Reads the records of one file. Raises ``ConfigError`` for ``fields`` that are not those of a problem."""

    def __init__(self, file: Path, fields: Fields) -> None:
        self._file, self._fields = file, fields
        if unknown := next((name for name in fields if name not in custom.NAMES), None):
            hint = did_you_mean(unknown, custom.NAMES)
            raise ConfigError(f"data.fields: there is no field {unknown!r}; {hint}there are {', '.join(custom.NAMES)}")
        if fields and "problem" not in fields:
            raise ConfigError(f"data.fields: name the path of 'problem', got {dict(fields)}")

    def __call__(self, record: Record) -> tuple[str, Record]:
        """The name of the record's benchmark and the record; or ``custom``, and the record in the project's own format.

        Raises ``DataError`` with the mapping to write for a record of no known form.
        """
        name, own = self._formed(record)
        if name == "custom" and "type" not in custom.spelt(own):
            own = {**own, "type": "code" if custom.spelt(own).get("tests") else self._usual}
        return name, own

    def _formed(self, record: Record) -> tuple[str, Record]:
        if self._fields:
            return "custom", {name: _mapped(record, name, path) for name, path in self._fields.items()}
        if binary := next((name for name, value in record.items() if _is_binary(value)), None):
            cure = f"remove it, or name the columns to read: {_mapping(record)}"
            raise DataError(f"column {binary!r} is binary, which no workflow can read; {cure}")
        if (named := _recognised(record)) is not None:
            return named, record
        if not (form := _form_of(record)):
            known = f"fields {sorted(map(str, record))} are those of no known benchmark or form"
            raise DataError(f"{known}; say which are the problem and its answer: {_mapping(record)}")
        own = {name: _mapped(record, name, path) for name, path in form.items()}
        kind = str(record.get("type") or record.get("ability")).lower()
        rest = {name: value for name, value in record.items() if name not in ("type", *custom.SPELLINGS["type"])}
        return "custom", {**rest, **own, **({"type": kind} if kind in DOMAINS else {})}

    @cached_property
    def _usual(self) -> Domain:
        """The domain of records that do not say theirs: math if most answers are numbers or formulas, else qa."""
        answers = list[str]()
        for _, record in islice(read(self._file), _SURE):
            with suppress(DataError):
                if not isinstance(record, DataError):
                    own = {**self._formed(record)[1], "type": "qa"}
                    answers += custom.parse(own).reference.answers[:1]
        return "math" if 2 * sum(map(_is_maths, answers)) > len(answers) else "qa"


def _recognised(record: Record) -> str | None:
    """Name of the benchmark of ``record``, or ``custom`` for the project's own format; None for another form."""
    has, named = record.keys(), custom.spelt(record)
    if {"problem", "type"} <= named.keys() and (named["type"] in DOMAINS or not {"solution", "supporting_facts"} & has):
        return "custom"
    for name, dataset in reversed(list(DATASETS.items())):
        if dataset.recognises(record):
            return name
    return "custom" if "problem" in named and {"answer", "tests", "unanswerable"} & named.keys() else None


def _form_of(record: Record) -> Fields:
    """The paths of a record of another project; empty for an unknown form."""
    asked = next((name for name in _PROBLEMS if record.get(name)), None)
    if asked is None:
        return {}
    answer = next((path for path in _ANSWERS if _at(record, path) is not None), None)
    if answer is None and (turns := _turns(record[asked])) and turns[-1][0] in _ASSISTANT:
        answer = asked
    paths = {"problem": asked, "answer": answer, "dataset": "data_source" if "data_source" in record else None}
    return {name: path for name, path in paths.items() if path}


def _mapped(record: Record, name: str, path: str) -> Any:
    """The value at ``path`` for the field ``name``. Raises ``DataError`` if there is none, or it is no such value."""
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
    """The value at a path; ``missing`` if there is none."""
    try:
        for key in path.split("."):
            record = record[int(key)] if isinstance(record, list) else record[key]
    except (KeyError, IndexError, TypeError, ValueError):
        return missing
    return record


def _turns(value: Any) -> list[tuple[str, str]]:
    """Role and text of every turn of a chat; empty if it is none."""
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        return []
    turns = [(turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))) for turn in value]
    parts = [(role, _text(content)) for role, content in turns]
    return [(role, text) for role, text in parts if isinstance(role, str) and text is not None]


def _text(content: Any) -> str | None:
    """A turn's text, which may be a list of parts. Raises ``DataError`` for a part that is no text."""
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
    """The setting that a record of an unknown form needs, with its first two texts."""
    problem, answer = [*_leaves(record), "PATH", "PATH"][:2]
    fields = f"{{problem: {problem}, answer: {answer}}}"
    return f"--set 'data.fields={fields}' (commands of data: --fields '{fields}')"


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    """Paths of the texts and numbers in a record."""
    if isinstance(value, str | int | float):
        yield path
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else list(enumerate(value))[:3]
        for key, inner in items:
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
