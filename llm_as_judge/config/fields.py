"""Value types of settings: strict numbers, paths, URLs and lists, and the base class of all sections."""

import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, field_validator
from pydantic.fields import FieldInfo


def _float(value: Any) -> Any:
    """Read ``5e-6`` as a number: YAML 1.1, which PyYAML reads, makes it a string because it has no dot."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _path(value: Any) -> Any:
    if value == "":
        raise ValueError("name a file or folder")
    return Path(value).expanduser() if isinstance(value, str) else value


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
#: A setting that a resumed run is free to change: it decides how a run goes, not what it learns.
Free = Annotated[T, "free"]
#: A setting that decides no result: how a server is accessed, where something is stored.
Access = Annotated[T, "access"]


def is_address(url: str) -> bool:
    """Tell whether ``url`` names a host, and no port that cannot be."""
    try:
        return bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:  # a port that is no number or out of range
        return False


def _url(value: str) -> str:
    if value and not (re.fullmatch(r"https?://\S+", value) and is_address(value)):
        raise ValueError("is not a URL; write http://HOST:PORT/v1")
    return value


#: Largest integer that kernel limits, sockets and tensors accept.
_MAX_INT = 2**31 - 1
#: Largest float; single-precision tensors can still calculate with it.
_MAX_FLOAT = 1e18
#: Largest number of things held in memory at once.
MAX_ITEMS = 1 << 16
Url = Annotated[str, AfterValidator(_url)]
Urls = Annotated[tuple[Url, ...], BeforeValidator(as_tuple)]
Float = Annotated[float, BeforeValidator(_float)]
#: A file to read; in a configuration file, relative to that file.
InputPath = Annotated[Path, BeforeValidator(_path), "input"]
OutputPath = Annotated[Path, BeforeValidator(_path)]
#: ``package.module:function`` or ``file.py:function``.
FunctionName = Annotated[str, "input"]


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


def fill_shares(name: str, shares: Mapping[Any, float], members: Sequence[Any]) -> dict[Any, float]:
    """Complete the shares, which must sum to 1, with 0 for ``members`` that are not named."""
    if min(shares.values(), default=0) < 0:
        raise ValueError(f"{name} must not be negative, got {dict(shares)}")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ValueError(f"{name} must sum to 1, got {sum(shares.values()):g}")
    return {**dict.fromkeys(members, 0.0), **shares}


class Strict(BaseModel):
    # protected_namespaces: pydantic would otherwise warn about ``model_name``
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    @field_validator("*")
    @classmethod
    def _number_fits(cls, value: Any) -> Any:
        most = _MAX_INT if isinstance(value, int) else _MAX_FLOAT
        if isinstance(value, (int, float)) and abs(value) > most:
            raise ValueError(f"must be at most {most}")
        return value


def members(annotation: Any) -> list[Any]:
    """List the alternatives of a type, without ``Annotated``."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return members(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return [member for part in arguments for member in members(part)]
    return [annotation]


def takes_text(annotation: Any) -> bool:
    """Tell whether a setting's values are text or lists of text, whatever YAML would make of it (``off`` is a word)."""
    kinds = (str, Path, types.NoneType)
    return all(member in kinds or typing.get_origin(member) in (Literal, tuple) for member in members(annotation))


def takes_list(annotation: Any) -> bool:
    return any(typing.get_origin(member) is tuple for member in members(annotation))


def with_paths(value: Any, change: Callable[[str], str]) -> Any:
    """Return a setting that names files, with other paths: a file, ``file.py:function``, or weights by these."""
    if isinstance(value, dict):
        return {with_paths(key, change): weight for key, weight in value.items()}
    if not isinstance(value, str) or not value:
        return value
    file, colon, name = value.rpartition(":")
    return f"{change(file)}{colon}{name}" if file.endswith(".py") else change(value)


def names_input(field: FieldInfo) -> bool:
    """Tell whether the setting names files to read."""
    inner = [mark for member in typing.get_args(field.annotation) for mark in typing.get_args(member)]
    return "input" in (*field.metadata, *inner)
