"""Workflows on disk."""

from pathlib import Path

import pytest

from llm_as_judge.errors import DataError
from llm_as_judge.workflow.source import read_workflow


def test_a_workflow_is_read_from_a_folder_or_a_file(graphs: Path, tmp_path: Path) -> None:
    folder = graphs / "folders/metagpt_gsm8k"
    assert read_workflow(folder) == read_workflow(folder / "graph.py")
    assert "STEPS_PROMPT" in read_workflow(folder).prompt
    (tmp_path / "alone.py").write_text("class Workflow: ...")
    assert read_workflow(tmp_path / "alone.py").prompt == ""
    with pytest.raises(DataError, match=r"no graph\.py in it"):
        read_workflow(tmp_path)
