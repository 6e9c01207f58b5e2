"""Reads YAML and ``.env`` files; independent of the schema.

The values of settings stay text, as written, until their type is known: ``007`` may be a name and ``off`` a word.
"""

import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from dotenv.parser import parse_stream

from llm_as_judge.errors import ConfigError
from llm_as_judge.files import LONGEST_SOURCE, read_regular

T = TypeVar("T")
_HERE = Path(__file__).parent
#: The configurations shipped with the package: next to this file in a wheel, in ``config`` in a clone.
SHIPPED = next((folder for folder in (_HERE / "defaults", _HERE.parents[1] / "config") if folder.is_dir()), _HERE)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Quoted(str):
    """Text in quotes, which is no number or word of YAML."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value with its place: ``dict[str, Setting]``, a list, text as written, or the typed value of a flag."""

    value: Any
    origin: str  # "file:line", "--set NAME" or an option
    file: Path | None = None

    def children(self, what: str, example: str = "") -> "dict[str, Setting]":
        """Return the settings of a section; raises ConfigError if it is not one."""
        if isinstance(self.value, dict):
            return self.value
        raise ConfigError(f"{self.origin}: {what} must contain 'name: value' lines, got {self.value!r}{example}")

    def typed(self, as_text: bool, env: Mapping[str, str]) -> Any:
        """Replace references in the value; scalars are typed as in YAML or stay text."""
        if isinstance(self.value, dict):
            return {name: child.typed(as_text, env) for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [Setting(item, self.origin).typed(as_text, env) for item in self.value]
        if not isinstance(self.value, str):
            return self.value
        text = interpolate(self.value, env, self.origin)
        if as_text or isinstance(self.value, Quoted):
            return text
        try:
            return yaml.load(text, _Loader)
        except Exception:  # PyYAML raises many kinds; the schema says what is expected
            return text


def interpolate(text: str, env: Mapping[str, str], where: str) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}``; an empty variable counts as unset, like ``:-`` in the shell."""

    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if (value := env.get(name) or default) is None:
            raise ConfigError(
                f"{where}: environment variable {name} is not set; export it, put {name}=... into .env, "
                f"or write ${{{name}:-default}}"
            )
        return str(value)

    if "${" in _REFERENCE.sub("", text):
        raise ConfigError(f"{where}: {text!r} is malformed; write ${{NAME}} or ${{NAME:-default}}")
    return _REFERENCE.sub(replace, text)


def find_file(path: Path) -> Path:
    """Return ``path``, or the shipped file if ``path`` is in ``config`` and does not exist."""
    shipped = SHIPPED.joinpath(*path.parts[1:])
    return shipped if path.parts[:1] == ("config",) and not path.exists() and shipped.is_file() else path


def environment(folder: Path) -> dict[str, str]:
    """Read the variables of ``folder/.env``, overridden by the process environment."""
    path, found = folder / ".env", dict[str, str]()
    for binding in parse_stream(io.StringIO(_read_text(path))) if path.is_file() else ():
        name, value = binding.key, binding.value
        if binding.error or (name and value is None) or "\0" in f"{name}{value}":
            raise ConfigError(f"{path}:{binding.original.line}: not a line of the form NAME=value")
        if name and value is not None:
            found[name] = value
    return {**found, **os.environ}


def read_yaml(path: Path) -> dict[str, Setting]:
    """Read the settings in a YAML file; raises ConfigError with file and line if there are none."""
    root = _parsed(_read_text(path), path, lambda loader: loader.get_single_node())
    if root is None:
        raise ConfigError(f"{path}: the file is empty; it must contain a mapping of settings")
    return _setting(root, path).children("the file")


def read_value(text: str, origin: str) -> Setting:
    """Read one YAML value from the command line; empty text is null."""
    root = _parsed(text, origin, lambda loader: loader.get_single_node())
    return _setting(root, origin) if root is not None else Setting("", origin)


def plain_yaml(path: Path) -> Any:
    """Read the content of a YAML file as plain values; references are not replaced. Raises ConfigError."""
    return _parsed(_read_text(path), path, lambda loader: loader.get_single_data())


def _read_text(path: Path) -> str:
    try:
        return read_regular(path, LONGEST_SOURCE, "utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file (looked from {Path.cwd()})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}; name another") from error


class _Loader(yaml.SafeLoader):
    """Reads 1:30 as text, not as 90 (YAML 1.1).

    Refuses tags, aliases (which could repeat a value without end) and keys that are repeated or not plain names.
    """

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        clock = kind is yaml.ScalarNode and ":" in value and tag.endswith((":int", ":float"))
        return self.DEFAULT_SCALAR_TAG if clock else tag

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.tag is not None:
            problem = "tags (!!name) and aliases (*name) are not supported; write the value out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.MarkedYAMLError(problem="a key must be a plain name", problem_mark=key.start_mark)
                if key.value in lines:
                    problem = f"{key.value!r} is set twice, first in line {lines[key.value]}"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                lines[key.value] = key.start_mark.line + 1
        return node


def _parsed(text: str, source: str | Path, read: Callable[[_Loader], T]) -> T:
    """Apply ``read`` to the YAML in ``text``. Raises ConfigError with the line."""
    try:
        return read(_Loader(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark and isinstance(source, Path) else ""
        raise ConfigError(f"{source}{line}: not valid YAML: {error.problem or error.context}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply; settings are sections of names and values") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:  # such as !!int x
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None


def _setting(node: yaml.Node, source: str | Path) -> Setting:
    """Return ``node`` with origins; the line of a value is that of its name."""

    def origin(mark: yaml.Mark) -> str:
        return f"{source}:{mark.line + 1}" if isinstance(source, Path) else source

    file = source if isinstance(source, Path) else None
    value: Any = node.value
    if isinstance(node, yaml.MappingNode):
        value = {k.value: Setting(_setting(v, source).value, origin(k.start_mark), file) for k, v in node.value}
    elif isinstance(node, yaml.SequenceNode):
        value = [_setting(child, source).value for child in node.value]
    elif isinstance(node, yaml.ScalarNode) and node.style:
        value = Quoted(node.value)
    return Setting(value, origin(node.start_mark), file)
