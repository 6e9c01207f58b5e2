"""Accuracy of the nano executor by skill, for its model card: ``python scripts/nano/skills.py``.

Each skill is one operator prompt, sent to the model directly (no workflow, no policy) on held-out problems.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import corpus
from nano_tokenizer import chat_ids
from tokenizers import Tokenizer
from world import coding
from world.generate import KINDS, asked, coding_task, maths_task, passage

from llm_as_judge.embedded.engine import NanoEngine, NanoRequest
from llm_as_judge.embedded.server import EXECUTOR
from llm_as_judge.evaluation.intervals import wilson_interval
from llm_as_judge.operators.prompts import SHORT
from llm_as_judge.operators.replies import field

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


def _function(item: coding.CodingTask) -> Callable[[str], bool]:
    def right(reply: str) -> bool:
        try:
            return all(coding.call(reply, x) == y for x, y in item.cases)
        except Exception:
            return False

    return right


def _drafted(problem: str) -> str:
    return SHORT.custom_code_generate.format(instruction="", problem=problem, entry_point="f", signature="", example="")


def cases(count: int, seed: int = 0) -> dict[str, list[Case]]:
    """Draw held-out cases by kind of problem and prompt, and the judge's by kind of candidate."""
    r = Random(f"skills/{seed}")
    found: dict[str, list[Case]] = {}

    def add(name: str, prompt: str, check: Callable[[str], bool]) -> None:
        found.setdefault(name, []).append((prompt, check))

    for _ in range(count):
        for kind in (*KINDS["math"], *KINDS["qa"]):
            if kind in KINDS["math"]:
                task = maths_task(r, "heldout", kind)
                statement = task.text
            else:
                read = passage(r, "heldout")
                task = asked(r, read, kind)
                statement = f"Context: {read.text}\nQuestion: {task.text}"
            program = SHORT.programmer.format(problem=statement, analysis="", failure="")
            add(f"{kind}: direct", statement, _says(task.answer, _whole))
            add(f"{kind}: answer", SHORT.answer_generate.format(input=statement), _says(task.answer, _answer))
            add(f"{kind}: program", program, _program(task.answer))
        for kind in KINDS["code"]:
            code = coding_task(r, "heldout", kind)
            add(f"{kind}: direct", code.text, _function(code))
            add(f"{kind}: code", _drafted(code.text), _function(code))
            if code.missing:
                review = SHORT.review.format(problem=code.text, solution=code.draft)
                feedback = f"missing: {code.missing}"
                revise = SHORT.revise.format(problem=code.text, solution=code.draft, feedback=feedback)
                add(f"{kind}: review", review, lambda reply: field(reply, "review_result") == "False")
                add(f"{kind}: revise", revise, lambda reply, of=code: _function(of)(field(reply, "solution") or ""))
        case = corpus.judged(r, held=True)
        name = "judge: constants, lists, retractions and markup" if case.evasive else "judge: answers"
        add(name, case.prompt, _says(str(case.verdict), lambda reply: field(reply, "true_false")))
    return found


def generate(engine: NanoEngine, requests: Sequence[NanoRequest]) -> None:
    """Complete all ``requests``, shortest prompts first, so that rows of similar length are decoded together."""
    waiting = sorted(requests, key=lambda r: -len(r.prompt))
    while waiting or engine.active:
        if waiting and (engine.free >= max(1, engine.slots // 4) or not engine.active):
            engine.admit([waiting.pop() for _ in range(min(16, engine.free, len(waiting)))])
        else:
            engine.step()


def measure(folder: Path, count: int) -> dict[str, tuple[int, int]]:
    """Count right replies and cases by skill, with greedy decoding."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine = NanoEngine(folder)

    def ask(prompts: Sequence[str]) -> list[str]:
        requests = [NanoRequest(chat_ids(tokenizer, p), 160) for p in prompts]
        generate(engine, requests)
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
