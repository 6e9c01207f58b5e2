"""Reads YAML, ``.env`` and ``--set`` text into values that remember where they were written.

Independent of the schema. Types are those of YAML 1.1 as read by PyYAML; ``${NAME}`` and ``${NAME:-default}`` in a
scalar are replaced by environment variables.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from dotenv.parser import parse_stream

from llm_as_judge.errors import ConfigError

_HERE = Path(__file__).parent
#: The configurations shipped with the package: next to this file in a wheel, in ``config`` in a clone.
SHIPPED = next((folder for folder in (_HERE / "defaults", _HERE.parents[1] / "config") if folder.is_dir()), _HERE)
#: Maximum number of values in one file; a list of benchmarks has some hundreds.
MAX_VALUES = 20_000
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Node:
    """One value: ``dict[str, Node]``, ``list[Node]`` or a scalar, with its ``text`` as written."""

    value: Any
    origin: str  # "file:line" or "--set"
    text: str | None = None
    file: Path | None = None  # the file it was read from

    def plain(self, key: str, env: Mapping[str, str], *, as_text: bool = False) -> Any:
        """The value with references replaced; ``as_text`` keeps a scalar as written (``007``, ``yes``)."""
        if isinstance(self.value, dict):
            return {name: child.plain(f"{key}.{name}", env) for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain(key, env) for child in self.value]
        if self.text is None or self.value is None:
            return self.value
        text = interpolate(self.text, env, f"{self.origin}: {key}")
        if as_text:
            return text
        return self.value if text == self.text else parse_text(text, self.origin).value


def interpolate(text: str, env: Mapping[str, str], where: str) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}``; an empty variable counts as unset, like ``:-`` in the shell."""

    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if value := env.get(name):
            return value
        if default is None:
            raise ConfigError(
                f"{where}: environment variable {name} is not set; export it, put {name}=... into .env, "
                f"or write ${{{name}:-default}}"
            )
        return str(default)

    if "${" in _REFERENCE.sub("", text):
        raise ConfigError(f"{where}: {text!r} is malformed; write ${{NAME}} or ${{NAME:-default}}")
    return _REFERENCE.sub(replace, text)


def find_file(path: Path) -> Path:
    """``path``, or the shipped configuration if ``path`` is ``config/NAME`` and does not exist."""
    shipped = SHIPPED / path.name
    return shipped if path.parent == Path("config") and not path.exists() and shipped.is_file() else path


def load_dotenv(folder: Path) -> None:
    """Add the variables of ``folder/.env`` to the process environment; variables that are set keep their values."""
    for name, value in _read_dotenv(folder / ".env").items():
        os.environ.setdefault(name, value)


def environment(folder: Path) -> dict[str, str]:
    """Variables of ``folder/.env``, overridden by the process environment."""
    return {**_read_dotenv(folder / ".env"), **os.environ}


def _read_dotenv(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    found = {}
    for binding in parse_stream(io.StringIO(_read_text(path))):
        name, value = binding.key, binding.value
        if binding.error or (name and value is None) or "\0" in f"{name}{value}":
            raise ConfigError(f"{path}:{binding.original.line}: not a line of the form NAME=value")
        if name and value is not None:
            found[name] = value
    return found


def read_yaml(path: Path) -> dict[str, Node]:
    """The mapping in a YAML file; raises ConfigError with file and line if there is none."""
    node = _compose(_read_text(path), str(path), path)
    if node is None:
        raise ConfigError(f"{path}: the file is empty; it must contain a mapping of settings")
    if not isinstance(node.value, dict):
        raise ConfigError(f"{node.origin}: expected 'name: value' lines, got {node.text or 'a list'!r}")
    return node.value


def plain_yaml(path: Path) -> Any:
    """The content of a YAML file as plain values; references are not replaced. Raises ConfigError."""
    return _bare(_compose(_read_text(path), str(path), path))


def _bare(node: Node | None) -> Any:
    value = None if node is None else node.value
    if isinstance(value, dict):
        return {name: _bare(child) for name, child in value.items()}
    return [_bare(child) for child in value] if isinstance(value, list) else value


def parse_text(text: str, origin: str) -> Node:
    """One YAML value from the command line or the environment; empty text is null."""
    node = _compose(text, origin)
    return node if node is not None else Node(None, origin, "")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file (looked from {Path.cwd()})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _compose(text: str, source: str, file: Path | None = None) -> Node | None:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if root is None else _convert(root, source, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark and file else ""
        raise ConfigError(f"{source}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply; settings are sections of names and values") from None


def _convert(root: yaml.Node, source: str, file: Path | None) -> Node:
    """``root`` with origins; refuses more than ``MAX_VALUES`` values, counting repeated anchors."""
    count = 0

    def convert(node: yaml.Node, above: tuple[yaml.Node, ...] = ()) -> Node:
        nonlocal count
        count += 1
        origin = f"{source}:{node.start_mark.line + 1}" if file else source
        if node in above:
            raise ConfigError(f"{origin}: an anchor contains itself; write the value out")
        if count > MAX_VALUES:
            raise ConfigError(f"{origin}: more than {MAX_VALUES} values, counting repeated anchors")
        inside = (*above, node)
        if isinstance(node, yaml.MappingNode):
            children: dict[str, Node] = {}
            for key, value in node.value:
                place = f"{source}:{key.start_mark.line + 1}" if file else source
                if not isinstance(key, yaml.ScalarNode):
                    raise ConfigError(f"{place}: a key must be a plain name")
                if key.value in children:
                    first = children[key.value].origin
                    raise ConfigError(f"{place}: {key.value!r} is set twice, first at {first}")
                children[key.value] = replace(convert(value, inside), origin=place)
            return Node(children, origin, file=file)
        if isinstance(node, yaml.SequenceNode):
            return Node([convert(child, inside) for child in node.value], origin, file=file)
        try:
            value = yaml.SafeLoader("").construct_object(node)
        except (ValueError, LookupError, AttributeError, TypeError) as error:  # such as !!bool x, !!int ''
            raise ConfigError(f"{origin}: {node.value!r} is not a value of type {node.tag}") from error
        return Node(value, origin, str(node.value), file)

    return convert(root)
