"""Layer 2's file: read, checked against the operators, looked up."""

from pathlib import Path

import pytest

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.workflow.enhancer import load_enhancer


def test_an_instruction_is_found_by_operator_and_domain(tmp_path: Path) -> None:
    path, empty = tmp_path / "enhancer.yaml", tmp_path / "empty.yaml"
    path.write_text("AnswerGenerate:\n  math: ' Check each step. '\nReview:\n  math: Two.\n", encoding="utf-8")
    empty.touch()
    enhance = load_enhancer(WorkflowConfig(enhancer=path))
    assert (enhance("AnswerGenerate", "math"), enhance("AnswerGenerate", "qa")) == ("Check each step.", "")
    for nothing in (None, empty):
        assert load_enhancer(WorkflowConfig(enhancer=nothing))("Custom", "math") == ""
    only = WorkflowConfig(enhancer=path, enhanced_operators=("Review",))
    assert load_enhancer(only).as_json() == {"Review": {"math": "Two."}}


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "enhancer.yaml"
    for text, message in (
        ("Magic:\n  math: x", "unknown operator 'Magic'"),
        ("Custom:\n  maths: x", "Custom.maths.*: Input should be 'math', 'code' or 'qa'"),
        ("Custom:\n  math: 3", "Custom.math: Input should be a valid string"),
        ("Custom: x", "Custom: Input should be a valid dictionary"),
        ("- Custom", "Input should be a valid dictionary"),
        ("a: [", "cannot be read"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            load_enhancer(WorkflowConfig(enhancer=path))
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        load_enhancer(WorkflowConfig(enhancer=Path("none.yaml")))
    path.write_text("Custom: {}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"workflow\.enhanced_operators: unknown operator 'Magic'"):
        load_enhancer(WorkflowConfig(enhancer=path, enhanced_operators=("Magic",)))
