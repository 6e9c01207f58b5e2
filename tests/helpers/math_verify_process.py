"""What math-verify says of the labelled maths pairs, run as a file: pairs on standard input, a verdict a line.

Plain wrapping: dollar signs around every text.
"""

from __future__ import annotations

import json
import sys

from math_verify import parse, verify


def wrapped(text: str) -> str:
    return f"${text}$"


for line in sys.stdin:
    pair = json.loads(line)
    try:
        gold, said = (parse(wrapped(pair[key])) for key in ("gold", "candidate"))
        equal = bool(verify(gold, said))
    except Exception:  # whatever it raises, it did not accept
        equal = False
    sys.stdout.write(f"{int(equal)}\n")
    sys.stdout.flush()
