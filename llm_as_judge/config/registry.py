"""Names that a user writes: the nearest of several, and the user's own plug-ins."""

import difflib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from llm_as_judge.errors import ConfigError


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Find the choice most similar to ``name``, if any is similar."""
    return next(iter(difflib.get_close_matches(name, list(choices), n=1, cutoff=0.8)), None)


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return ``did you mean 'NAME'? `` for a message, empty if no choice is similar."""
    guess = nearest(name, choices)
    return f"did you mean {guess!r}? " if guess else ""


def own_object(kind: str, name: str) -> Any:
    """Load the user's object that ``package.module:Name`` or ``file.py:Name`` names.

    ``kind`` is the word for messages ("operator"). The type of the object is checked where it is used. Raises
    ``ConfigError``, with the nearest right name, if there is no such object.
    """
    place, _, attribute = name.rpartition(":")
    file = Path(place).expanduser() if place.endswith(".py") else None
    if file is not None and not file.is_file():
        raise ConfigError(f"{kind} {name!r}: there is no file {place}")
    try:
        module = importlib.import_module(place) if file is None else _loaded(file, file.stat().st_mtime_ns)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        cure = "; is its folder in PYTHONPATH?" if file is None else ""
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"{kind} {name!r}: cannot import {place!r}: {reason}{cure}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        hint = did_you_mean(attribute, vars(module))
        raise ConfigError(f"{kind} {name!r}: {place} has no {attribute!r}{f'; {hint}' if hint else ''}") from None


@cache
def _loaded(path: Path, changed: int) -> ModuleType:
    """Load the file's module. While the file does not change, a class looked up twice is the same class."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, path  # its name ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
