"""Look up a plug-in by name: one of the package's own, or a user's own as ``package.module:Name``.

The tables themselves live with the plug-ins (``operators.catalog.OPERATORS`` and the like); nothing registers
itself on import. Errors name the nearest right name.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from llm_as_judge.errors import ConfigError

T = TypeVar("T")


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice most like ``name``, or None when none is alike."""
    found = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return found[0] if found else None


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """``table[name]``, or the object that ``package.module:Name`` names.

    ``kind`` is the word for messages ("operator", "dataset"). A user's own object is taken as it is: its type
    is checked where it is used. Raises ConfigError when there is no such thing.
    """
    if name in table:
        return table[name]
    if ":" in name:
        return cast(T, _imported(kind, name))
    guess = nearest(name, table)
    hint = f"; did you mean {guess!r}?" if guess else "."
    raise ConfigError(
        f"unknown {kind} {name!r}{hint} There are {', '.join(sorted(table))}; write your own as 'package.module:Name'"
    )


def _imported(kind: str, name: str) -> object:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{kind} {name!r}: cannot import {module_name!r}: {error}; is its folder in PYTHONPATH?"
        ) from error
    try:
        return cast(object, getattr(module, attribute))
    except AttributeError:
        guess = nearest(attribute, vars(module))
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise ConfigError(f"{kind} {name!r}: {module_name} has no {attribute!r}{hint}") from None
