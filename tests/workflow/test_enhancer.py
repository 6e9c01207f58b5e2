"""Layer 2's file: read, checked against the operators, looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.workflow.enhancer import load_enhancer


def test_no_file_or_an_empty_one_means_no_instruction(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    for path in (None, empty):
        assert load_enhancer(WorkflowConfig(enhancer=path))("Custom", "math") == ""


def test_an_instruction_is_found_by_operator_and_domain(tmp_path: Path) -> None:
    path = tmp_path / "enhancer.yaml"
    path.write_text("AnswerGenerate:\n  math: ' Check each step. '\nReview: {}\n", encoding="utf-8")
    enhance = load_enhancer(WorkflowConfig(enhancer=path))
    assert enhance("AnswerGenerate", "math") == "Check each step."
    assert enhance("AnswerGenerate", "qa") == ""
    assert enhance("Review", "math") == ""


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


def test_layer_two_may_be_switched_by_operator(tmp_path: Path) -> None:
    path = tmp_path / "enhancer.yaml"
    path.write_text("Custom:\n  math: One.\nReview:\n  math: Two.\n", encoding="utf-8")
    enhance = load_enhancer(WorkflowConfig(enhancer=path, enhanced_operators=("Review",)))
    assert (enhance("Custom", "math"), enhance("Review", "math")) == ("", "Two.")
    assert enhance.as_json() == {"Review": {"math": "Two."}}
    with pytest.raises(ConfigError, match=r"workflow\.enhanced_operators: unknown 'Magic'"):
        load_enhancer(WorkflowConfig(enhancer=path, enhanced_operators=("Magic",)))
