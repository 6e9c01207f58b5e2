"""Accuracy of the nano executor by skill, for its model card: ``python scripts/nano/skills.py``.

Each skill is one operator prompt, sent to the model directly (no workflow, no policy) on held-out problems.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import corpus
from nano_tokenizer import chat_ids
from tokenizers import Tokenizer

from llm_as_judge.embedded.engine import Engine, Request
from llm_as_judge.embedded.server import EXECUTOR
from llm_as_judge.embedded.tasks import coding, reading
from llm_as_judge.embedded.tasks.generate import PUBLIC_TESTS, coding_item, maths_item, passage
from llm_as_judge.evaluation.metrics import wilson_interval
from llm_as_judge.judging.prompts import JUDGE_PROMPT
from llm_as_judge.operators.prompts import SHORT
from llm_as_judge.operators.reading import field

Case = tuple[str, Callable[[str], bool]]  # prompt and test of a reply


def _says(answer: str, extract: Callable[[str], str | None]) -> Callable[[str], bool]:
    return lambda reply: (extract(reply) or "").strip().rstrip(".") == answer


def _whole(reply: str) -> str:
    return reply


def _answer(reply: str) -> str | None:
    return field(reply, "answer")


def _program(answer: str) -> Callable[[str], bool]:
    """Run a program of the nano model in this process: its vocabulary has no import, no file and no builtin."""

    def right(reply: str) -> bool:
        names: dict[str, Any] = {}
        try:
            exec(reply, {"__builtins__": {}}, names)
            return str(names["solve"]()) == answer
        except Exception:
            return False

    return right


def _function(item: coding.CodingItem) -> Callable[[str], bool]:
    def right(reply: str) -> bool:
        try:
            return all(coding.call(reply, x) == y for x, y in item.cases)
        except Exception:
            return False

    return right


def _drafted(problem: str) -> str:
    return SHORT.custom_code_generate.format(instruction="", problem=problem, entry_point="f", signature="", example="")


def cases(count: int, seed: int = 0) -> dict[str, list[Case]]:
    """Held-out cases by skill."""
    r = Random(f"skills/{seed}")
    found: dict[str, list[Case]] = {}
    sums = [maths_item(r, "heldout") for _ in range(count)]
    found["maths, result only"] = [(m.text, _says(m.answer, _whole)) for m in sums]
    found["maths, step by step"] = [
        (SHORT.answer_generate.format(input=m.text), _says(m.answer, _answer)) for m in sums
    ]
    found["maths, program"] = [
        (SHORT.programmer.format(problem=m.text, analysis="", failure=""), _program(m.answer)) for m in sums
    ]
    texts: list[tuple[reading.Passage, reading.Query]] = []
    for _ in range(count):
        p = passage(r, "heldout")
        texts.append((p, p.draw(r)))
    statements = [(f"Context: {p.text}\nQuestion: {q.text}", q.answer) for p, q in texts]
    found["qa, result only"] = [(s, _says(a, _whole)) for s, a in statements]
    found["qa, step by step"] = [(SHORT.answer_generate.format(input=s), _says(a, _answer)) for s, a in statements]
    tasks = [coding_item(r, "heldout") for _ in range(count)]
    found[f"code, one draft ({PUBLIC_TESTS} public tests unseen)"] = [(_drafted(c.text), _function(c)) for c in tasks]
    found["judge, True or False"] = [_judging(r, m.text, m.answer) for m in sums[: count // 2]]
    found["judge, True or False"] += [_judging(r, q.text, q.answer) for _, q in texts[: count // 2]]
    return found


def _judging(r: Random, question: str, answer: str) -> Case:
    candidate = answer if r.random() < 0.5 else corpus.near(r, answer)
    prompt = JUDGE_PROMPT.format(question=question, reference=answer, candidate=corpus.dressed(r, candidate))
    return prompt, _says(str(candidate == answer), lambda reply: field(reply, "true_false"))


def measure(folder: Path, count: int) -> dict[str, tuple[int, int]]:
    """Number of right replies and of cases by skill, with greedy decoding."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine = Engine(folder)

    def ask(prompts: Sequence[str]) -> list[str]:
        requests = [Request(chat_ids(tokenizer, p), 160) for p in prompts]
        engine.generate(requests)
        return [tokenizer.decode(q.output).strip() for q in requests]

    scores = {}
    for skill, members in cases(count).items():
        replies = ask([prompt for prompt, _ in members])
        right = sum(check(reply) for (_, check), reply in zip(members, replies, strict=True))
        scores[skill] = (right, len(members))
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=EXECUTOR)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scores = measure(options.folder, options.count)
    if options.json:
        print(json.dumps(scores))
        return
    print("| skill | right, % | 95 % interval | cases |\n|---|---|---|---|")
    for skill, (right, n) in scores.items():
        low, high = wilson_interval(right, n)
        print(f"| {skill} | {100 * right / n:.1f} | {100 * low:.0f} to {100 * high:.0f} | {n} |")


if __name__ == "__main__":
    main()
