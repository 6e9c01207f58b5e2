"""The outcome of a test does not depend on the tests before it."""

import importlib
import sys
from collections.abc import Callable

import pytest

from llm_as_judge.assembly import policy
from llm_as_judge.policy import forward, local

RECORDING = "llm_as_judge.assembly.recording"


def test_a_stub_does_not_outlive_its_patch_in_modules_imported_meanwhile() -> None:
    for stub in (lambda: None, None):
        with pytest.MonkeyPatch.context() as outer:
            outer.delitem(sys.modules, RECORDING, raising=False)
            original: Callable[..., object] = policy.load_author
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(policy, "load_author", stub)
                imported = importlib.import_module(RECORDING)
                assert imported.load_author is stub
            assert imported.load_author is policy.load_author is original
            sys.modules.pop(RECORDING)


def test_a_name_that_is_patched_twice_gets_its_first_value_back() -> None:
    own = forward.replayable
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "replayable", str)
        patch.setattr(forward, "replayable", own)
    assert forward.replayable is own
    assert local.replayable is own
