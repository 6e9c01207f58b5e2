"""Workflows on disk, and ``--repair``, which binds variables that may be unbound and touches nothing else."""

from pathlib import Path

import pytest
from helpers.workflows import workflow
from running import Run

from llm_as_judge.errors import DataError
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.shapes import SHAPES
from llm_as_judge.workflow.shapes import workflow as written
from llm_as_judge.workflow.source import initialise_unbound, read_workflow

FOLDERS = Path(__file__).parent / "graphs/folders"


def repaired(source: str) -> str:
    return initialise_unbound(source, lint(source))


BRANCH = workflow(
    "r = await self.custom(input=problem, instruction='')\nif len(problem) > 1000:\n    answer = r['response']\n"
    "return answer, 0.0"
)


def test_unbound_variables_are_bound_once_and_nothing_else_changes(run: Run) -> None:
    for source in (BRANCH, workflow("for part in problem.split():\n    answer = part\nreturn answer, 0.0")):
        assert "W301" in [f.code for f in lint(source)]
        lines = repaired(source).splitlines()
        assert lines.pop(6) == '        answer = ""' and lines == source.splitlines()
        assert "W301" not in [f.code for f in lint(repaired(source))]
    source = workflow("if problem:\n    a = b = 'x'\nprint(a)\nprint(a)\nreturn b, 0.0")
    lines = [line.strip() for line in repaired(source).splitlines()]
    assert (lines.count('a = ""'), lines.count('b = ""')) == (1, 1)
    assert not {"W101", "W301"} & {f.code for f in lint(repaired(BRANCH.replace("    ", "\t")))}
    for source in ("", "def f(", "x = 1", *(written(shape, "code") for shape in SHAPES.values())):
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
