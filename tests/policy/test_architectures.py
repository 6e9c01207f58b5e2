"""The types that users train come out as docs/architectures.md has them, tried anew."""

from __future__ import annotations

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
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


architectures: Any = load()
PAGE = architectures.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", architectures.COMMON)
def test_a_common_type_is_as_the_page_has_it(kind: str) -> None:
    row = architectures.try_out(kind)
    assert not row.not_made
    if row.right:
        (right,) = (line for line in PAGE.splitlines() if line.startswith("Right in all three ways: "))
        assert f"`{kind}`" in right
    else:
        assert "| " + " | ".join(row.cells()) + " |" in PAGE
    windows = next(line for line in PAGE.splitlines() if line.startswith("Of these and the following"))
    assert ("refused: cut by its window" in row.windowed.values()) == (f"`{kind}`" in windows)


def test_what_is_wrong_and_not_refused_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "check_plain", lambda *a: None)
    monkeypatch.setattr("llm_as_judge.policy.scoring.Head", lambda base: base.get_output_embeddings())
    with pytest.raises(AssertionError, match="not refused"):
        architectures.try_out("granite")


def test_the_page_is_of_the_installed_transformers() -> None:
    named = PAGE.partition("\ntransformers ")[2].partition(":")[0]
    if named != transformers.__version__:
        pytest.skip(f"the page is of transformers {named}; write it anew with scripts/architectures.py")
    assert "WRONG" not in PAGE
    for kind in architectures.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        assert f"`{kind}`" in PAGE
