"""Repetition: a penalty for asking an operator the same thing twice and for a workflow text that repeats
itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from llm_as_judge.types import OperatorCall

_NGRAM = 6  # words; shorter ones recur in any class that builds and awaits several operators


def repetition(calls: Sequence[OperatorCall], text: str) -> float:
    """0 for none to 10: the larger share of repeated calls (same name and arguments) and repeated n-grams."""
    asked = [(call.name, json.dumps(dict(call.arguments), sort_keys=True, default=repr)) for call in calls]
    words = re.findall(r"\w+", text)
    ngrams = [tuple(words[i : i + _NGRAM]) for i in range(len(words) - _NGRAM + 1)]
    return 10.0 * max(_repeated(asked), _repeated(ngrams))


def _repeated(items: Sequence[object]) -> float:
    return 1.0 - len(set(items)) / len(items) if items else 0.0
