"""The documentation agrees with the code, and the commands of the quickstart run as they stand."""

import importlib.util
import itertools
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
from helpers.finished import run_settings
from helpers.processes import program
from helpers.run_logs import read_rollouts

from llm_as_judge.commands.app import app
from llm_as_judge.config.loading import load_config, to_yaml
from llm_as_judge.config.schema import LEAVES
from llm_as_judge.embedded.server import MODEL_NAME
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.workflow.lint.codes import CODES

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "config/operator_descriptions/operators.md",
]


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


def test_generated_parts_and_version_are_up_to_date(generate: ModuleType) -> None:
    with_parts = {p.relative_to(ROOT).as_posix() for p in PAGES if "<!-- generated: " in p.read_text("utf-8")}
    assert with_parts == set(generate.PAGES)
    stale = [name for name in with_parts if read(name) != generate.render(read(name))]
    assert not stale, "run .venv/bin/python scripts/generate_docs.py"
    blocks = {name for page in with_parts for name in re.findall(r"<!-- generated: ([a-z ]+) -->", read(page))}
    assert blocks == set(generate.BLOCKS)
    stated = [read(f"{folder}pyproject.toml") for folder in ("", "llm_as_judge_env/")]
    (version,) = {found for text in stated for found in re.findall(r'^version = "(.*)"$', text, re.MULTILINE)}
    assert re.findall(r"^## (\S+)$", read("CHANGELOG.md"), re.MULTILINE)[0] == version


def test_the_pages_name_every_setting_operator_lint_code_and_command() -> None:
    configuration, workflows, readme = read("docs/configuration.md"), read("docs/workflows.md"), read("README.md")
    missing = [name for name in LEAVES if f"\n| `{name.partition('.')[2]}` | " not in configuration]
    missing += [
        name
        for name, cls in catalog.OPERATORS.items()
        if f"\n### {name}\n\n`{catalog.call_line(cls)}`" not in workflows
    ]
    missing += [code for code in CODES if f"\n| {code} | " not in workflows]
    missing += [name for name in typer.main.get_command(app).commands if f"`{name}" not in readme]  # type: ignore[attr-defined]
    assert not missing


def test_named_files_pages_and_links_exist() -> None:
    wrong = []
    for page in PAGES:
        text = page.read_text("utf-8")
        named = re.findall(r"`((?:config|scripts|tests|docs|benchmarks|llm_as_judge)/[\w./-]+)`", text)
        wrong += [f"{page.name}: {name}" for name in named if not (ROOT / name).exists()]
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            if target.startswith("http"):
                continue
            path = page.parent / file if file else page
            if not path.exists():
                wrong.append(f"{page.name}: {target}")
            elif anchor and anchor not in anchors(path.read_text("utf-8")):
                wrong.append(f"{page.name}: no heading for {target}")
    assert not wrong
    folders = ("llm_as_judge", "config", "scripts", "benchmarks", "tests")
    files = [f for folder in folders for end in ("py", "yaml", "sh") for f in (ROOT / folder).rglob(f"*.{end}")]
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in re.findall(r"docs/[\w/]+\.md", file.read_text("utf-8"))
        if not (ROOT / name).exists()
    ]
    assert not wrong


def anchors(text: str) -> set[str]:
    """Heading anchors as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Page and words of every command line in shell blocks."""
    for page in PAGES:
        for block in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            block = re.sub(r"<<'END'\n.*?\nEND\n", "\n", block, flags=re.DOTALL).replace("\\\n", " ")
            for line in block.splitlines():
                for part in re.split(r"&&|;|&$", line):
                    try:
                        words = shlex.split(part, comments=True)
                    except ValueError:  # a loop or a quotation that spans parts
                        continue
                    while words and re.match(r"^[A-Z_]+=", words[0]):
                        words = words[1:]
                    if words:
                        yield page.name, words


def test_shown_commands_have_real_options_and_settings() -> None:
    """Every ``llm-as-judge`` line on the pages is parsed by the real command line; every make target exists."""
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
    root = typer.main.get_command(app)
    wrong, checked = [], 0
    for page, words in shown_commands():
        line = f"{page}: {' '.join(words)}"
        if words[0] == "make":
            wrong += [line] if words[1] not in targets else []
        program = next((i for i, w in enumerate(words) if Path(w).name in ("llm-as-judge", "llm_as_judge")), None)
        if program is None or words[0] == "cd" or "pip" in words:
            continue
        command: Any = root
        rest = words[program + 1 :]
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        if hasattr(command, "commands"):
            wrong.append(line)
            continue
        options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
        wrong += [f"{line}: {w}" for w in rest if w.startswith("--") and w.partition("=")[0] not in options]
        config = next((v for o, v in itertools.pairwise(rest) if o == "--config"), "config/embedded.yaml")
        changes = [value for option, value in itertools.pairwise(rest) if option == "--set"]
        changes = [change for change in changes if ".py:" not in change]  # files that the page itself writes
        if changes:
            try:
                load_config(ROOT / config, changes)
            except ConfigError as error:
                wrong.append(f"{line}: {error}")
        checked += 1
    assert checked > 50 and not wrong, "\n".join(wrong)


PAGE = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
#: Needs a fresh clone; continuous integration does it before any test.
OUTSIDE = ("git clone ", "make setup", ". .venv/", "mkdir ")
#: Replaces the installed command: the same program with this test's own port and less training.
COMMAND = """llm-as-judge() {{
    case $1 in doctor|solve|train|evaluate|judge|workflow) set -- "$@" {address} ;; esac
    case $1 in train) set -- "$@" --max-steps 1 {less} ;; esac
    echo "ran: $1" >&2
    {python} -m llm_as_judge "$@"
}}
set -eu
"""
LESS = "rollout_batch_size=2 num_return_sequences_in_group=2 eval_problems=2 baselines=none"


@pytest.mark.slow
def test_every_command_of_the_quickstart_works(here: Path, address: str) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(OUTSIDE)]
    to = " ".join(f"--set {role}.base_url={address}" for role in ("executor", "judge"))
    less = " ".join(f"--set {change}" for change in LESS.split())
    script = COMMAND.format(address=to, less=less, python=sys.executable) + "\n".join(lines)
    done = program("bash", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^ran: (\w+)$", done.stderr, re.MULTILINE)
    assert ran == [
        "doctor", "solve", "train", "monitor", "analyze", "init", "train", "solve", "data", "evaluate", "train",
        "workflow", "train", "analyze", "judge", "export",
    ]  # fmt: skip
    assert "2 answers of 2 records, 0 faults" in done.stdout and "Twice" in done.stdout
    assert (here / "my-policy/adapter_model.safetensors").is_file()
    (log,) = (here / "logs").rglob("brief.jsonl")
    terms = [event.rollout.reward.terms for event in read_rollouts(log) if event.rollout.reward.terms]
    assert terms and all("my_rewards.py:brevity" in of for of in terms)


def python_blocks() -> list[str]:
    """Programs on the pages for users."""
    pages = map(read, ("README.md", "docs/using.md", "docs/integrations.md"))
    return [block for page in pages for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]


def test_python_programs_on_the_pages_compile_as_they_stand() -> None:
    blocks = python_blocks()
    for block in blocks:
        compile(block, block, "exec")  # a top-level await does not
    assert len(blocks) >= 5


@pytest.mark.slow
def test_python_programs_on_the_pages_run_as_they_stand(here: Path, address: str) -> None:
    (here / "small.yaml").write_text(
        to_yaml(load_config("config/embedded.yaml", run_settings(here, address, baselines="none")))
    )
    changes = {
        "config/training.yaml": "small.yaml", "num_steps=500": "num_steps=1", "http://127.0.0.1:8010/v1": address,
        "config/embedded.yaml": "small.yaml", 'model="nano"': f'model="{MODEL_NAME}"',
    }  # fmt: skip
    ran = []
    for block in sorted(python_blocks(), key=lambda block: "GRPOTrainer" in block):  # solvers use the shipped policy
        if "from trl " in block:  # tests/integrations/test_trl_training.py trains so
            continue
        for shown, here_ in changes.items():
            block = block.replace(shown, here_)
        done = program(sys.executable, "-c", block)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        assert "import Solver" not in block or done.stdout.startswith("7"), done.stdout
        ran.append(done.stdout)
    assert len(ran) == 5 and all(ran[:-1])
