"""Every word of the lexicon is one token, and decoding restores any text."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from llm_as_judge.embedded import lexicon
from llm_as_judge.embedded.server import EXECUTOR

TOKENIZER = Tokenizer.from_file(str(EXECUTOR / "tokenizer.json"))


def test_every_word_is_one_token() -> None:
    assert not [word for word in lexicon.everything() if len(TOKENIZER.encode(" " + word).ids) != 1]


@given(st.text(max_size=80).filter(lambda t: "<|" not in t))
def test_any_text_is_decoded_as_it_was(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


def test_policy_and_executor_share_the_tokenizer() -> None:
    policy = Path(EXECUTOR).parent / "policy" / "tokenizer.json"
    assert policy.read_bytes() == (EXECUTOR / "tokenizer.json").read_bytes()
