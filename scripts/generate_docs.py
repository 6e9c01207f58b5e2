"""Write the parts of the documentation that say what the code says: settings, operators, lint codes, modules.

    .venv/bin/python scripts/generate_docs.py

Only the text between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->`` is replaced; the rest of a page is
written by hand. An operator's prompts are what its class really sends, with its arguments' names for values.
``tests/test_docs.py`` fails when a page differs from the code.
"""

import ast
import asyncio
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic.fields import FieldInfo

from llm_as_judge.config.fields import members, names_input
from llm_as_judge.config.schema import SECTIONS, WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox
from llm_as_judge.types import Exchange, Question
from llm_as_judge.workflow.contract import contract
from llm_as_judge.workflow.lint.codes import CODES

ROOT = Path(__file__).parents[1]
PAGES = (
    "docs/configuration.md",
    "docs/workflows.md",
    "docs/code.md",
    "config/operator_descriptions/operators.md",
)


def settings() -> str:
    """Write a table for each section of the configuration."""
    parts = []
    for section, cls in SECTIONS.items():
        rows = [
            (f"`{name}`", _type_name(field), f"`{_yaml_text(field.get_default())}`", field.description or "")
            for name, field in cls.model_fields.items()
        ]
        parts.append(f"### {section}\n\n{_table(('setting', 'type', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def lint_codes() -> str:
    """Write every code with its weight and meaning."""
    rows = [
        (code, "error" if fatal else "warning", re.sub(r"__\w+__", r"`\g<0>`", meaning))  # else it turns bold
        for code, (meaning, fatal) in CODES.items()
    ]
    return _table(("code", "kind", "meaning"), rows)


def operator_lines() -> str:
    """Write the documentation as the policy reads it."""
    return _fenced(catalog.docs())


def full_prompt() -> str:
    """Write what any instruct model is told of every workflow."""
    text = contract(catalog.OPERATORS, WorkflowConfig().max_calls, "3.11")
    return f"````text\n{text.rstrip()}\n````"


def operators() -> str:
    """Write a section for each operator: call, result, behaviour, prompts."""
    return "\n\n".join(_operator(name) for name in catalog.OPERATORS)


def modules() -> str:
    """Write a table for each folder of the package: every module, its first line, its public names."""
    package = ROOT / "llm_as_judge"
    folders: dict[str, list[tuple[str, str, str]]] = {}
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        about = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split()).replace("``", "`")
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names = [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
        if about:
            row = f"`{path.name}`", about, ", ".join(f"`{name}`" for name in names)
            folders.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(row)
    heading = ("module", "what it is", "public names")
    return "\n\n".join(f"## {folder}\n\n{_table(heading, rows)}" for folder, rows in folders.items())


BLOCKS: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "lint codes": lint_codes,
    "operator lines": operator_lines,
    "full prompt": full_prompt,
    "operators": operators,
    "modules": modules,
}


def _yaml_text(value: Any) -> str:
    """Return ``value`` on one line, as written in a file."""
    if isinstance(value, Path):
        return str(value)
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=1000).removesuffix("...\n").strip()


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


def _table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heading = list(heading)
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def _operator(name: str) -> str:
    cls = catalog.OPERATORS[name]
    keys = [f"`{key}` ({kind})" for key, kind in catalog.result_keys(cls).items() if key in cls.RESULT]
    options = [f"`{p.name}={p.default!r}`" for p in catalog.init_signature(cls).parameters.values()]
    behaviour = " ".join(cls.__doc__.split()).replace("``", "`")
    prompts = asyncio.run(_prompts(name))
    lines = [
        f"### {name}",
        f"`{catalog.call_line(cls)}` {cls.SUMMARY}.",
        f"Result: {', '.join(keys)}.",
        *([f"Constructor, after the LLM: {', '.join(options)}."] if options else []),
        behaviour,
        "Prompt:" if len(prompts) == 1 else "Prompts:",
        *map(_fenced, prompts),
    ]
    return "\n\n".join(lines)


class _Listener:
    """Notes the prompts that an operator sends; replies that fail, and failing runs, make it send them all."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def chat(self, prompt: str) -> Exchange:
        prompt = prompt.replace("ENTRY_POINT", "{entry_point}")
        if prompt not in self.prompts:
            self.prompts.append(prompt)
        return Exchange(prompt, "```python\n{program}\n```", "stop", 0, 0, 0.0, 0.0)


@dataclass(frozen=True)
class _Failed:
    outcome: str = "raised"
    value: None = None
    error: str = "{error}"


async def _prompts(name: str) -> list[str]:
    listener = _Listener()

    async def run_code(source: str, **options: Any) -> _Failed:
        return _Failed()

    arguments: dict[str, Any] = {}
    for parameter in catalog.signature(catalog.OPERATORS[name]).parameters.values():
        kind = catalog.type_word(parameter)
        if kind == "str":
            arguments[parameter.name] = "ENTRY_POINT" if parameter.name == "entry_point" else f"{{{parameter.name}}}"
        elif kind.startswith("list"):
            arguments[parameter.name] = ["{first solution}", "{second solution}"]
    question = Question("docs", "{problem}", "code", public_tests=("assert ENTRY_POINT(2) == 4",))
    await catalog.OPERATORS[name](Toolbox(listener, run_code, question))(**arguments)
    prompts = listener.prompts
    return prompts if name != "Test" else prompts[:1]  # the next ones repair the replies


def render(page: str) -> str:
    """Render ``page`` with every generated block as the code has it; raises ``ConfigError`` for a name there is not."""

    def block(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in BLOCKS:
            raise ConfigError(f"no generated block {name!r}; there are {', '.join(BLOCKS)}")
        return f"<!-- generated: {name} -->\n{BLOCKS[name]()}\n<!-- end of {name} -->"

    return re.sub(r"<!-- generated: ([a-z ]+) -->\n.*?<!-- end of \1 -->", block, page, flags=re.DOTALL)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        old = path.read_text(encoding="utf-8")
        new = render(old)
        if new != old:
            path.write_text(new, encoding="utf-8")
        sys.stdout.write(f"{name}: {'written' if new != old else 'unchanged'}\n")


if __name__ == "__main__":
    main()
