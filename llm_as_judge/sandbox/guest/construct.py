"""Arguments for the constructor of a workflow, chosen by its parameters; lint applies the same rule to the text.

AFlow's ``(name, llm_config, dataset)`` is one form; models also write others that work as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Literal

Kind = Literal["name", "llm_config", "dataset", "llm"]
#: AFlow's constructor; three required parameters with any names are treated as these.
AFLOW: tuple[Kind, ...] = ("name", "llm_config", "dataset")


def constructor_arguments(parameters: Iterable[inspect.Parameter]) -> tuple[list[Kind], dict[str, Kind]]:
    """Positional and keyword arguments for a constructor with these parameters (without ``self``).

    Known names get their value, others keep their default, ``*args`` and ``**kwargs`` get the rest of AFlow's three.
    Raises ``TypeError`` for an unknown parameter without a default.
    """
    parameters = list(parameters)
    kinds = {p.kind for p in parameters}
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in places if p.default is p.empty]
    given: dict[str, Kind] = {}
    for parameter in parameters:
        kind = _known(parameter.name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if kind is None and len(required) == len(AFLOW) and parameter in required:
            kind = AFLOW[required.index(parameter)]
        if kind is not None:
            given[parameter.name] = kind
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"Workflow.__init__ asks for {parameter.name!r}; there are name, llm_config, dataset and llm"
            )
    args: list[Kind] = []
    for place in places:
        if place.name not in given:
            break
        args.append(given.pop(place.name))
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        args += AFLOW[len(args) :]
    elif inspect.Parameter.VAR_KEYWORD in kinds:
        known = {*args, *given.values()}
        given.update({kind: kind for kind in AFLOW if kind not in known})
    return args, given


def _known(parameter: str) -> Kind | None:
    name = parameter.strip("_").lower()
    if "config" in name:
        return "llm_config"
    if name in ("llm", "model", "client") or name.startswith("llm_") or name.endswith("_llm"):
        return "llm"
    if name == "dataset":
        return "dataset"
    return "name" if name in ("name", "workflow_name") else None
