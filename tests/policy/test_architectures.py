"""Common model types give the results that docs/reports/architectures.md lists."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import transformers

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architectures", ROOT / "scripts/architectures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # needed by its dataclasses
    spec.loader.exec_module(module)
    return module


architectures: Any = load()
PAGE = architectures.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("qwen2", "llama") else pytest.param(kind, marks=pytest.mark.slow)
        for kind in architectures.COMMON
    ],
)
def test_a_common_type_gives_the_listed_results(kind: str) -> None:
    row = architectures.try_out(kind)
    assert not row.not_made
    if row.right:
        (right,) = (line for line in PAGE.splitlines() if line.startswith("Right in all three ways: "))
        assert f"`{kind}`" in right
    else:
        assert "| " + " | ".join(row.cells()) + " |" in PAGE
    windows = next(line for line in PAGE.splitlines() if line.startswith("Of these and the following"))
    assert ("refused: cut by its window" in row.windowed.values()) == (f"`{kind}`" in windows)


def test_a_wrong_result_that_is_not_refused_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "check_plain", lambda *a: None)
    wrong = lambda base, hidden: base.get_output_embeddings()(hidden)  # noqa: E731
    monkeypatch.setattr("llm_as_judge.policy.scoring.logits_of", wrong)
    with pytest.raises(AssertionError, match="not refused"):
        architectures.try_out("granite")


def test_the_page_lists_the_installed_transformers() -> None:
    named = PAGE.partition("\ntransformers ")[2].partition(":")[0]
    if named != transformers.__version__:
        pytest.skip(f"the page is for transformers {named}; update it with scripts/architectures.py")
    assert "WRONG" not in PAGE
    assert [k for k in architectures.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if f"`{k}`" not in PAGE] == []
