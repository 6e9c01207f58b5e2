"""The documentation says what the code says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from test_layers import LAYERS

from llm_as_judge.config.schema import LEAVES
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.workflow.lint.codes import CODES

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "config/operator_descriptions/operators.md"]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts/generate_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_generated_parts_are_as_the_code_has_them(page: Path, generate: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == generate.render(text), "run .venv/bin/python scripts/generate_docs.py"
    assert text.count("<!-- generated: ") == text.count("<!-- end of ")


def test_every_page_with_a_generated_part_is_written_and_every_part_has_a_page(generate: ModuleType) -> None:
    used = {page.relative_to(ROOT).as_posix() for page in PAGES if "<!-- generated: " in page.read_text("utf-8")}
    assert used == set(generate.PAGES)
    blocks = {name for page in used for name in re.findall(r"<!-- generated: ([a-z ]+) -->", read(page))}
    assert blocks == set(generate.BLOCKS)


def test_a_changed_line_is_noticed_and_put_right(generate: ModuleType) -> None:
    page = read("docs/lint.md")
    wrong = page.replace("the text is not Python", "the text is Python")
    assert wrong != page and generate.render(wrong) == page


def test_text_written_by_hand_is_left_alone(generate: ModuleType) -> None:
    assert generate.render("before\n\nafter {x} \\1\n") == "before\n\nafter {x} \\1\n"


def test_an_unknown_part_is_an_error(generate: ModuleType) -> None:
    with pytest.raises(ConfigError, match="no generated block 'weather'"):
        generate.render("<!-- generated: weather -->\n<!-- end of weather -->")


def test_the_pages_name_everything() -> None:
    configuration, operators, lint = (read(f"docs/{name}.md") for name in ("configuration", "operators", "lint"))
    assert not [name for name in LEAVES if f"\n| `{name.partition('.')[2]}` | " not in configuration]
    assert not [
        name
        for name, cls in catalog.OPERATORS.items()
        if f"\n### {name}\n\n`{catalog.call_line(cls)}`" not in operators
    ]
    assert not [code for code in CODES if f"\n| {code} | " not in lint]


def test_every_operators_prompt_is_shown_with_its_arguments(generate: ModuleType) -> None:
    for name in catalog.OPERATORS:
        section = generate._operator(name).partition("Prompt")[2]
        texts = [
            p.name for p in catalog.signature(catalog.OPERATORS[name]).parameters.values() if str(p.annotation) == "str"
        ]
        assert texts and not [argument for argument in texts if f"{{{argument}}}" not in section], name


def test_the_table_of_layers_is_the_one_that_is_tested() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", read("docs/architecture.md"), re.MULTILINE)
    told = {name: int(layer) for layer, names in rows for name in re.findall(r"`([\w.]+)`", names)}
    assert {name: told.get(name) for name in LAYERS} == LAYERS
    modules = {
        p.stem
        for p in (ROOT / "llm_as_judge").iterdir()
        if p.suffix == ".py" and p.stem not in ("__init__", "__main__")
    }
    folders = {p.parent.name for p in (ROOT / "llm_as_judge").glob("*/__init__.py")}
    assert not (modules | folders) - set(told)
    assert not [name for name in told if not (ROOT / "llm_as_judge" / name.replace(".", "/")).is_dir()
                and not (ROOT / "llm_as_judge" / f"{name.replace('.', '/')}.py").is_file()]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:config|scripts|tests|docs)/[\w./-]+)`", page.read_text("utf-8"))
    assert not [name for name in named if not (ROOT / name).exists()]
