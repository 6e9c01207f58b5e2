"""``data process`` at full size, and the same job written plainly with the ``datasets`` library: time and memory.

    python benchmarks/data.py [--json] [--peer-python PYTHON] [--size 1.0] [--folder DIR]

Raw files are synthetic, in the hub's shape and of real size: SQuAD2 130,319 questions, HotpotQA 90,447 with ten
paragraphs. On a busy machine, CPU seconds and memory are more reliable than wall-clock time. The library may use
several threads, ours is one process with one thread. Without the ``datasets`` library its comparison is skipped. Needs
3 GB of disk.
"""

import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Claim, command_line, report

ROOT = Path(__file__).resolve().parents[1]
RECORDS = {"gsm8k": 7473, "math": 7500, "squad2": 130_319, "hotpotqa": 90_447, "humaneval": 164, "mbpp": 427}
SPLITS = {"humaneval": "test", "mbpp": "all"}
TRAIN, TEST = 160_000, 32_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a process and its children: wall-clock and CPU seconds, peak memory of one process in bytes."""

    wall: float
    cpu: float
    peak: int


def measured(command: Sequence[str | Path]) -> Cost:
    """Run ``command``; raises ``SystemExit`` with its output when it fails."""
    with tempfile.TemporaryFile() as output:
        begun = time.perf_counter()
        env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(output.read().decode(errors="replace"))
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def records(name: str, n: int) -> Iterator[dict[str, Any]]:
    """Yield ``n`` raw records of benchmark ``name`` with different questions."""
    rng = random.Random(name)
    words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9))) for _ in range(5000)]
    sentences = [" ".join(rng.choices(words, k=rng.randint(10, 24))).capitalize() + "." for _ in range(4000)]
    context = ""
    for i in range(n):
        if name == "gsm8k":
            yield {
                "question": f"{' '.join(rng.choices(sentences, k=3))} How many are {i}?",
                "answer": f"So.\n#### {i:,}",
            }
        elif name == "math":
            solution = rf"Thus $\boxed{{\frac{{{i}}}{{7}}}}$."
            yield {"problem": f"{rng.choice(sentences)} Find $x+{i}$.", "solution": solution, "type": "Algebra"}
        elif name == "squad2":
            if i % 6 == 0:
                context = " ".join(rng.choices(sentences, k=7))
            answers = [] if i % 3 == 0 else [context[:20]]
            question = f"What did {rng.choice(words)} {i} do?"
            yield {"id": f"{i:024x}", "title": "T", "context": context, "question": question,
                   "answers": {"text": answers, "answer_start": [0] * len(answers)}}  # fmt: skip
        elif name == "hotpotqa":
            titles = [f"{rng.choice(words)} {j}" for j in range(10)]
            paragraphs = [rng.choices(sentences, k=4) for _ in titles]
            yield {"id": f"{i:024x}", "question": f"Which {' '.join(rng.choices(words, k=14))} is number {i}?",
                   "answer": rng.choice(words), "type": "bridge", "level": "hard",
                   "supporting_facts": {"title": titles[:2], "sent_id": [0, 1]},
                   "context": {"title": titles, "sentences": paragraphs}}  # fmt: skip
        elif name == "humaneval":
            text = " ".join(rng.choices(sentences, k=4))
            yield {"task_id": f"HumanEval/{i}", "entry_point": f"f{i}", "canonical_solution": "    return x\n",
                   "prompt": f'def f{i}(x):\n    """{text}\n    >>> f{i}(1)\n    1\n    """\n',
                   "test": f"def check(candidate):\n    assert candidate({i}) == {i}\n" * 4}  # fmt: skip
        else:
            yield {"task_id": i + 1, "prompt": f"{rng.choice(sentences)} {i}", "code": f"def f{i}(x):\r\n    return x",
                   "test_list": [f"assert f{i}({j}) == {j}" for j in range(3)], "test_imports": []}  # fmt: skip


def write_raw(folder: Path, size: float) -> int:
    """Write all six benchmarks at ``size`` times their real number of records; bytes written."""
    total = 0
    for name, n in RECORDS.items():
        path = folder / name / f"{SPLITS.get(name, 'train')}.jsonl"
        path.parent.mkdir(parents=True)
        with path.open("w", encoding="utf-8") as file:
            for record in records(name, max(12, round(n * size))):
                file.write(json.dumps(record) + "\n")
        total += path.stat().st_size
    return total


def ours(raw: Path, out: Path, size: float) -> Cost:
    sizes = ["--train-size", str(round(TRAIN * size)), "--test-size", str(round(TEST * size))]
    config = ROOT / "config/dataset.yaml"
    cost = measured([
        sys.executable, "-m", "llm_as_judge", "data", "process", "--config", config, "--raw", raw, "--out", out,
        *sizes, "--json",
    ])  # fmt: skip
    info = json.loads((out / "mixed/info.json").read_text())
    assert info["mixed"]["train"]["lines"] == round(TRAIN * size)
    shutil.rmtree(out)
    return cost


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the datasets library")
    parser.add_argument("--size", type=float, default=1.0, help="share of the real number of records")
    parser.add_argument("--folder", type=Path, help="parent of the working folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        work = Path(name)
        full, half = work / "full", work / "half"
        volume = write_raw(full, options.size)
        write_raw(half, options.size / 2)
        whole, part = ours(full, work / "out", options.size), ours(half, work / "out", options.size / 2)
        peer = None
        have = options.peer_python != sys.executable or importlib.util.find_spec("datasets") is not None
        if have:
            sizes = [str(round(TRAIN * options.size)), str(round(TEST * options.size))]
            peer = measured([options.peer_python, ROOT / "benchmarks/data_peer.py", full, work / "peer", *sizes])
    growth = whole.cpu / part.cpu / 2
    claims = {
        "peak memory, GB": Claim(whole.peak / 1e9, 1.0, at_most=True),
        "CPU growth over linear": Claim(growth, 1.15, at_most=True),
        "times faster than the datasets library": Claim(peer.wall / whole.wall if peer else math.nan, 2.0),
        "times less CPU than the datasets library": Claim(peer.cpu / whole.cpu if peer else math.nan, 2.0),
    }
    costs = {"llm-as-judge": whole, "llm-as-judge, half the size": part} | ({"datasets library": peer} if peer else {})
    rows = {"raw files": f"{volume / 1e6:.0f} MB"}
    rows |= {name: f"{c.wall:.1f} s, {c.cpu:.1f} CPU s, {c.peak / 1e6:.0f} MB" for name, c in costs.items()}
    if not peer:
        rows["datasets library"] = "not installed (make peers); --peer-python names an interpreter that has it"
    report("data process at full size", rows, claims, options)


if __name__ == "__main__":
    main()
