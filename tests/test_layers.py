"""Lower layers never import higher ones, and torch stays where it belongs; every import is read."""

import ast
import re
import sys
from pathlib import Path

from helpers.tables import tables

TABLES = tables(__file__)

PACKAGE = "llm_as_judge"
ROOT = Path(__file__).parents[1]

_ROWS = re.findall(r"^\| (\d+) \| (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
#: Every folder, and every file beside them, lies in one layer.
LAYERS = {name: int(layer) for layer, names in _ROWS for name in re.findall(r"`([\w.]+)`", names)}
TORCH_ALLOWED = ("policy", "rl", "embedded")
TORCH_FAMILY = {"torch", "transformers", "peft", "accelerate", "safetensors"}


def within(module: str, names: tuple[str, ...] | dict[str, int]) -> str | None:
    """The longest of ``names`` that is ``module`` or a package around it."""
    found = [name for name in names if module == name or module.startswith(name + ".")]
    return max(found, key=len, default=None)


def imports(source: str, module: str, is_package: bool = False) -> list[tuple[int, str]]:
    """Line and full name of everything imported, also in functions, under TYPE_CHECKING or relatively."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = [PACKAGE, *module.split(".")]
                parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, base] if base else parts)
            # ``from package import module`` names a module too; a name that is none is judged as its parent.
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            if called in ("__import__", "importlib.import_module", "import_module"):
                found.append((node.lineno, str(node.args[0].value)))
    return found


def breaches(source: str, module: str, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of ``module``, named without the package: ``rl.loss``."""
    own = within(module, LAYERS)
    if own is None:
        return [f"{module}: has no place in the table of layers"]
    layer, wrong = LAYERS[own], []
    for line, name in imports(source, module, is_package):
        top, _, rest = name.partition(".")
        if top == PACKAGE:
            if not rest:
                continue
            target = within(rest, LAYERS)
            if target is None:
                wrong.append(f"{module}:{line}: {name} has no place in the table of layers")
            elif LAYERS[target] > layer:
                wrong.append(f"{module}:{line}: layer {layer} imports {name} of layer {LAYERS[target]}")
        elif top in TORCH_FAMILY and not within(module, TORCH_ALLOWED):
            wrong.append(f"{module}:{line}: {top} belongs to {', '.join(TORCH_ALLOWED)}")
        elif layer == 0 and top not in sys.stdlib_module_names:
            wrong.append(f"{module}:{line}: standard library only, not {top}")
    return wrong


def modules() -> list[tuple[str, Path]]:
    base = ROOT / PACKAGE
    return [
        (".".join(path.relative_to(base).with_suffix("").parts), path)
        for path in sorted(base.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
    ]


def test_every_module_is_in_the_table_and_imports_no_higher_layer() -> None:
    wrong = [line for name, path in modules() for line in breaches(path.read_text("utf-8"), name)]
    assert not wrong, "\n".join(wrong)
    filled = [str(path) for path in (ROOT / PACKAGE).rglob("__init__.py") if path.read_text("utf-8").strip()]
    assert not filled
    base = ROOT / PACKAGE
    there = {p.name for p in base.iterdir() if (p / "__init__.py").exists()}
    there |= {p.stem for p in base.glob("*.py") if p.name not in ("__init__.py", "__main__.py")}
    assert set(LAYERS) == there


def test_the_checker_finds_bad_imports_and_passes_good_ones() -> None:
    good = [
        ("commands.app", "from llm_as_judge.rl.trainer import Trainer"),
        ("rl.loss", "import torch\nfrom llm_as_judge.types import Group"),
    ]
    assert not [case for case in TABLES["bad imports"] if not breaches(case[1], case[0])]
    assert not [case for case in good if breaches(case[1], case[0])]
