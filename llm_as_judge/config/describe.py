"""Names, types, defaults and descriptions of all settings, for the documentation and the loader."""

import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic.fields import FieldInfo

from llm_as_judge.config.fields import Input
from llm_as_judge.config.schema import LEAVES


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    type: str
    default: str
    description: str


def describe() -> list[Leaf]:
    """All settings in the order of the schema."""
    return [
        Leaf(name, _type_name(field), _yaml_text(field.get_default()), field.description or "")
        for name, field in LEAVES.items()
    ]


def _yaml_text(value: Any) -> str:
    """``value`` on one line, as written in a file."""
    if isinstance(value, Path):
        return str(value)
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=1000).removesuffix("...\n").strip()


def members(annotation: Any) -> list[Any]:
    """Alternatives of a type, without ``Annotated``."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return members(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return [member for part in arguments for member in members(part)]
    return [annotation]


def takes_text(annotation: Any) -> bool:
    """Whether all values of a setting are text or lists of text, whatever YAML would make of it (``off`` is a word)."""
    kinds = (str, Path, types.NoneType)
    return all(member in kinds or typing.get_origin(member) in (Literal, tuple) for member in members(annotation))


def takes_list(annotation: Any) -> bool:
    return any(typing.get_origin(member) is tuple for member in members(annotation))


def names_input(field: FieldInfo) -> bool:
    """Whether the setting names files to read."""
    inner = [mark for member in typing.get_args(field.annotation) for mark in typing.get_args(member)]
    return any(isinstance(mark, Input) for mark in (*field.metadata, *inner))


def _type_name(field: FieldInfo) -> str:
    names, path = [], "input path" if names_input(field) else "output path"
    for member in members(field.annotation):
        origin, arguments = typing.get_origin(member), typing.get_args(member)
        if origin is Literal:
            names += [str(value) for value in arguments]
        elif origin is tuple:
            names.append("list")
        elif origin is not None:
            keys = typing.get_args(arguments[0])
            names.append(f"mapping of {', '.join(map(str, keys))}" if keys else "mapping")
        else:
            names.append("null" if member is types.NoneType else path if member is Path else member.__name__)
    return " | ".join(names)
