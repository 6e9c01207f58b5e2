"""The index of a set while it is split: digests of each problem to group and sort by, and where its line lies.

An entry takes about half a kilobyte of memory whatever the problem's length, so that sets larger than memory can be
sorted.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable
from hashlib import blake2b, sha256
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from llm_as_judge.data.benchmarks.custom import to_record
from llm_as_judge.types import Problem

#: Words of a passage that two texts must share to count as near copies (Brown et al. 2020, appendix C).
PASSAGE = 13
NO_CONTEXT = bytes(8)
_NO_PASSAGES: array[int] = array("q")  # one for all short questions
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, Any]).decode
_WORD = re.compile(r"\w+")
#: ASCII with everything that is no part of a word made a space: the words of ASCII text in a third of the time.
_SPACED = "".join(chr(i) if _WORD.match(chr(i)) else " " for i in range(128))
_EDGES = ".,;:!?\"'`\u2018\u2019\u201c\u201d"


class Entry(NamedTuple):
    """One problem, and its line from ``offset`` on in the spool."""

    question: bytes  # the question's words and the seed
    problem: bytes  # the question, its context and entry point; equal in copies of a problem
    content: bytes  # everything
    answer: bytes
    context: bytes  # NO_CONTEXT without one
    passages: array[int]  # hashes of the question's runs of PASSAGE words
    offset: int
    length: int


#: Entries are sorted by it: a pseudo-random order that depends on the problems and the seed alone.
order: Callable[[Entry], tuple[bytes, ...]] = attrgetter("question", "problem", "content")


def normalised(text: str) -> tuple[str, list[str]]:
    """``text`` as compared for duplicates (case, spaces and edge punctuation aside: signs make another problem), and
    its words alone, by which it is split.
    """
    plain = text.isascii()
    text = (text if plain else unicodedata.normalize("NFKC", text)).casefold()
    words = text.translate(_SPACED).split() if plain else _WORD.findall(text)
    return " ".join([word.strip(_EDGES) for word in text.split()]), words


def entry_of(problem: Problem, seed: int, offset: int, length: int) -> Entry:
    """The index entry of a problem whose line lies there."""
    question, reference = problem.question, problem.reference
    same, words = normalised(question.text)
    spaced = " ".join(words).encode()
    # long, so hashed once
    context = sha256(question.context.encode()).digest()[:8] if question.context else NO_CONTEXT
    answer = "\0".join((*reference.answers, reference.tests, str(reference.unanswerable))).encode()
    rest = "\0".join((question.id, question.text, *question.public_tests, reference.prelude)).encode()
    return Entry(
        blake2b(spaced or same.encode(), digest_size=16, key=b"%d" % seed).digest(),
        blake2b(f"{same}\0{question.entry_point or ''}".encode() + context, digest_size=16).digest(),
        blake2b(rest + answer, digest_size=16).digest(),
        blake2b(answer, digest_size=8).digest(),
        context,
        _passages(spaced),
        offset,
        length,
    )


def _passages(spaced: bytes) -> array[int]:
    if spaced.count(b" ") < PASSAGE - 1:
        return _NO_PASSAGES
    # ``hash`` of whole numbers is the same in every process, that of text is not
    numbers = tuple(map(crc32, spaced.split()))
    return array("q", {hash(numbers[i : i + PASSAGE]) for i in range(len(numbers) - PASSAGE + 1)})


def line_of(problem: Problem) -> bytes:
    """The problem as a line of the project's own format (``datasets.custom``)."""
    return _line(to_record(problem))


def repeated(line: bytes, repeat: int) -> bytes:
    """The line as it is written for the ``repeat``-th time again (0 = the first)."""
    return _line({**_decode(line), "repeat": repeat}) if repeat else line


def _line(record: dict[str, Any]) -> bytes:
    """Spaced as ``json.dumps`` does it."""
    return msgspec.json.format(_encode(record), indent=0) + b"\n"
