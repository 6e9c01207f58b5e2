"""Builds the tokenizer of the nano models: one token per word of a closed lexicon, single bytes for everything else.

Every digit is a token, a tag such as ``<answer>`` is one token, and a line break includes the Python indentation after
it. The file is a byte-level BPE without merges (``ignore_merges``), which transformers and vLLM read.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

PAD, USER, ASSISTANT, END, SYSTEM = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>", "<|system|>"
SPECIAL = (PAD, USER, ASSISTANT, END, SYSTEM)
PAD_ID, USER_ID, ASSISTANT_ID, END_ID, SYSTEM_ID = range(len(SPECIAL))
_PIECES = r"</?[a-z_]+>|\n(?: {4})*| ?[A-Za-z_]+|[0-9]|[^\sA-Za-z0-9_]|\s"
#: Each message after the mark of its role, then the assistant's mark if a reply is requested.
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def _byte_level(pieces: Regex) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def build(texts: Iterable[str], words: Iterable[str]) -> Tokenizer:
    """Build a tokenizer whose vocabulary is each piece and word of ``texts``, with and without a leading space."""
    splitter = _byte_level(Regex(_PIECES))
    vocabulary = {token: i for i, token in enumerate(SPECIAL)}
    for byte in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary.setdefault(byte, len(vocabulary))
    pieces: set[str] = set()
    for text in texts:
        pieces.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    for word in words:
        pieces.update(piece for form in (word, " " + word) for piece, _ in splitter.pre_tokenize_str(form))
    for piece in sorted(pieces):
        vocabulary.setdefault(piece, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and the configuration files of transformers."""
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)


def copy(source: Path, out: Path) -> None:
    """Copy the files written by ``save`` from ``source`` to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, out / name)


def chat_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Return token ids of one user message up to the beginning of the reply."""
    return [USER_ID, *tokenizer.encode(prompt, add_special_tokens=False).ids, ASSISTANT_ID]
