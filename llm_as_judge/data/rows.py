"""What is known of one problem while a whole set is split: digests to group and sort by, and where its line lies.

A row takes about 300 bytes of memory whatever the problem's length, so that sets larger than memory can be sorted.
"""

from __future__ import annotations

import json
import re
import unicodedata
from array import array
from hashlib import blake2b, sha256
from typing import NamedTuple
from zlib import crc32

import msgspec

from llm_as_judge.datasets.custom import to_record
from llm_as_judge.types import Problem

#: Words of a passage that two texts must share to count as near copies (Brown et al. 2020, appendix C).
GRAM = 13
_NO_GRAMS: array[int] = array("q")  # one for all short questions
#: Text as JSON, in the bytes of ``json.dumps(text, ensure_ascii=False)``; raises ``UnicodeEncodeError``.
quoted = msgspec.json.Encoder().encode
_WORD = re.compile(r"\w+")
#: ASCII with everything that is no part of a word made a space: the words of ASCII text in a third of the time.
_SPACED = "".join(chr(i) if _WORD.match(chr(i)) else " " for i in range(128))
_EDGES = ".,;:!?\"'`\u2018\u2019\u201c\u201d"


class Row(NamedTuple):
    """Sorted by ``key``: a pseudo-random order that depends on the questions and the seed alone.

    ``key`` is 64 bytes: question (16), problem (16; the question with its context and entry point), rest (16), answer
    (8), context (8; zero without one). Rows of the same question share the first part, copies of a problem the first
    two. ``grams``: hashes of the question's passages.
    """

    key: bytes
    part: int  # of the spool
    offset: int
    length: int
    grams: array[int]

    @property
    def question(self) -> bytes:
        return self.key[:16]

    @property
    def problem(self) -> bytes:
        return self.key[:32]

    @property
    def answer(self) -> bytes:
        return self.key[48:56]

    @property
    def context(self) -> bytes:
        return self.key[56:]


def normalised(text: str) -> tuple[str, list[str]]:
    """``text`` as compared for duplicates (case, spaces and edge punctuation aside: signs make another problem), and
    its words alone, by which it is split.
    """
    plain = text.isascii()
    text = (text if plain else unicodedata.normalize("NFKC", text)).casefold()
    words = text.translate(_SPACED).split() if plain else _WORD.findall(text)
    return " ".join([word.strip(_EDGES) for word in text.split()]), words


def keys_of(problem: Problem, seed: int) -> tuple[bytes, array[int]]:
    """``Row.key`` and ``Row.grams``."""
    question, reference = problem.question, problem.reference
    same, words = normalised(question.text)
    # long, so hashed once
    context = sha256(_bytes(question.context)).digest()[:8] if question.context else bytes(8)
    copy = blake2b(_bytes("\0".join((same, question.entry_point or ""))) + context, digest_size=16).digest()
    answer = _bytes("\0".join((*reference.answers, reference.tests, str(reference.unanswerable))))
    rest = _bytes("\0".join((question.id, question.text, *question.public_tests, reference.prelude)))
    spaced = " ".join(words).encode()
    return b"".join((
        blake2b(spaced or _bytes(same), digest_size=16, key=b"%d" % seed).digest(),
        copy,
        blake2b(rest + answer, digest_size=16).digest(),
        blake2b(answer, digest_size=8).digest(),
        context,
    )), _grams(spaced)  # fmt: skip


def _grams(spaced: bytes) -> array[int]:
    if spaced.count(b" ") < GRAM - 1:
        return _NO_GRAMS
    # ``hash`` of whole numbers is the same in every process, that of text is not
    numbers = tuple(map(crc32, spaced.split()))
    return array("q", {hash(numbers[i : i + GRAM]) for i in range(len(numbers) - GRAM + 1)})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def line_of(problem: Problem) -> bytes:
    """The problem as a line of the project's own format (``datasets.custom``), put together by hand, so that it is
    spaced as ``json.dumps`` does it.
    """
    question, reference = problem.question, problem.reference
    try:
        parts = [
            b'{"id": ', quoted(question.id), b', "dataset": ', quoted(question.dataset),
            b', "type": ', quoted(question.domain), b', "problem": ', quoted(question.text),
        ]  # fmt: skip
        if question.context:
            parts += (b', "context": ', quoted(question.context))
        if question.domain == "code":
            parts += (b', "entry_point": ', quoted(question.entry_point or ""))
            parts += (b', "public_tests": ', _list(question.public_tests))
            parts += (b', "tests": ', quoted(reference.tests), b', "prelude": ', quoted(reference.prelude))
        elif reference.unanswerable:
            parts.append(b', "unanswerable": true')
        elif len(reference.answers) == 1:
            parts += (b', "answer": ', quoted(reference.answers[0]))
        else:
            parts += (b', "answer": ', _list(reference.answers))
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return (json.dumps(to_record(problem)) + "\n").encode()
    parts.append(b"}\n")
    return b"".join(parts)


def _list(texts: tuple[str, ...]) -> bytes:
    return b"[%b]" % b", ".join(map(quoted, texts))
