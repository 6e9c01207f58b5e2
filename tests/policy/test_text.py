"""The text of sampled ids."""

from __future__ import annotations

import pytest

from llm_as_judge.policy.text import text_of


class Characters:
    all_special_tokens = ("<eos>", "")

    def decode(self, token_ids: list[int]) -> str:
        return "".join("<eos>" if i == 0 else chr(i) for i in token_ids)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("x = 1", "x = 1"),
        ("x = 1 \0\0\n\0", "x = 1"),
        ("\0 x = 1", "x = 1"),
        ("s = '\0' + 1", "s = '<eos>' + 1"),
        ("\0", ""),
        ("", ""),
    ],
)
def test_special_tokens_at_the_ends_are_no_text(written: str, text: str) -> None:
    assert text_of(Characters(), [ord(c) for c in written]) == text
