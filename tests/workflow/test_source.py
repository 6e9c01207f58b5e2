"""Workflows on disk, and ``--repair``, which binds variables that may be unbound and touches nothing else."""

from pathlib import Path

import pytest
from running import Run

from llm_as_judge.errors import DataError
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shapes import SHAPES, workflow
from llm_as_judge.workflow.source import initialise_unbound, read_workflow

FOLDERS = Path(__file__).parent / "graphs/folders"
HEAD = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
"""


def with_body(*lines: str) -> str:
    return HEAD + "\n".join(f"        {line}" for line in lines) + "\n"


def repaired(source: str) -> str:
    return initialise_unbound(source, lint(source))


BRANCH = with_body(
    "result = await self.custom(input=problem, instruction='')",
    "if len(problem) > 1000:",
    "    answer = result['response']",
    "return answer, 0.0",
)


def test_unbound_variables_are_bound_once_and_nothing_else_changes(run: Run) -> None:
    for source in (BRANCH, with_body("for part in problem.split():", "    answer = part", "return answer, 0.0")):
        assert "W301" in [f.code for f in lint(source)]
        lines = repaired(source).splitlines()
        assert lines.pop(6) == '        answer = ""' and lines == source.splitlines()
        assert "W301" not in [f.code for f in lint(repaired(source))]
    source = with_body("if problem:", "    a = b = 'x'", "print(a)", "print(a)", "return b, 0.0")
    lines = [line.strip() for line in repaired(source).splitlines()]
    assert (lines.count('a = ""'), lines.count('b = ""')) == (1, 1)
    assert not {"W101", "W301"} & {f.code for f in lint(repaired(BRANCH.replace("    ", "\t")))}
    for source in ("", "def f(", "x = 1", *(workflow(shape, "code") for shape in SHAPES.values())):
        assert repaired(source) == source
    assert "UnboundLocalError" in run(BRANCH).error
    assert (run(repaired(BRANCH)).outcome, run(repaired(BRANCH)).answer) == ("finished", "")


def test_a_workflow_is_read_from_a_folder_or_a_file(tmp_path: Path) -> None:
    folder = FOLDERS / "metagpt_gsm8k"
    assert read_workflow(folder) == read_workflow(folder / "graph.py")
    assert "STEPS_PROMPT" in read_workflow(folder).prompt
    (tmp_path / "alone.py").write_text("class Workflow: ...")
    assert read_workflow(tmp_path / "alone.py").prompt == ""
    with pytest.raises(DataError, match=r"no graph\.py in it"):
        read_workflow(tmp_path)
