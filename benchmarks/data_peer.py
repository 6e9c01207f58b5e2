"""The job of ``llm-as-judge data process``, written plainly with the ``datasets`` library.

    python benchmarks/data_peer.py RAW OUT TRAIN_SIZE TEST_SIZE

Leaves out what the library does not offer: checksums, the contamination report, exact shares of every prefix.
"""

import ast
import hashlib
import random
import re
import sys
from pathlib import Path

import datasets

DOMAINS = {"gsm8k": "math", "math": "math", "squad2": "qa", "hotpotqa": "qa", "humaneval": "code", "mbpp": "code"}
SPLITS = {"humaneval": "test", "mbpp": "all"}
RATIOS = {"math": 0.4, "qa": 0.3, "code": 0.3}
COLUMNS = {
    "id": "", "dataset": "", "type": "", "problem": "", "context": "", "answer": [], "unanswerable": False,
    "entry_point": "", "public_tests": [], "tests": "", "prelude": "", "key": "", "copy": "",
}  # fmt: skip
FEATURES = datasets.Features({
    **{name: datasets.Value("string") for name in COLUMNS},
    "unanswerable": datasets.Value("bool"),
    "answer": datasets.List(datasets.Value("string")),
    "public_tests": datasets.List(datasets.Value("string")),
})  # fmt: skip


def convert(record: dict, name: str) -> dict:
    row = {**COLUMNS, "dataset": name, "type": DOMAINS[name]}
    if name == "gsm8k":
        row |= {
            "problem": record["question"],
            "answer": [record["answer"].rpartition("####")[2].strip().replace(",", "")],
        }
    elif name == "math":
        row |= {"problem": record["problem"], "answer": re.findall(r"\\boxed\{(.*)\}", record["solution"])[-1:]}
    elif name == "squad2":
        answers = list(dict.fromkeys(record["answers"]["text"]))
        row |= {"problem": record["question"], "context": record["context"], "answer": answers, "id": record["id"]}
        row["unanswerable"] = not answers
    elif name == "hotpotqa":
        paragraphs = zip(record["context"]["title"], record["context"]["sentences"], strict=True)
        context = "\n".join(f"{title}: {''.join(sentences).strip()}" for title, sentences in paragraphs)
        row |= {"problem": record["question"], "context": context, "answer": [record["answer"]], "id": record["id"]}
    elif name == "humaneval":
        row |= {"problem": record["prompt"], "tests": record["test"], "entry_point": record["entry_point"]}
        row["id"] = record["task_id"]
    else:
        call = next(n for n in ast.walk(ast.parse(record["test_list"][0])) if isinstance(n, ast.Call))
        row |= {"problem": record["prompt"], "tests": "\n".join(record["test_list"]), "entry_point": call.func.id}
        row |= {"public_tests": record["test_list"][:1], "prelude": "import math", "id": str(record["task_id"])}
    words = " ".join(re.findall(r"\w+", row["problem"].casefold()))
    row["key"] = hashlib.blake2b(words.encode(), digest_size=16).hexdigest()
    row["copy"] = hashlib.blake2b((words + "\0" + row["context"]).encode(), digest_size=16).hexdigest()
    row["id"] = f"{name}/{row['id'] or row['copy'][:12]}"
    return row


def main(raw: Path, out: Path, train_size: int, test_size: int) -> None:
    datasets.disable_progress_bars()
    train, test = {}, {}
    for name in DOMAINS:
        file = raw / name / f"{SPLITS.get(name, 'train')}.jsonl"
        rows = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(out / "cache"))
        rows = rows.map(convert, fn_kwargs={"name": name}, remove_columns=rows.column_names, features=FEATURES)
        seen: set[str] = set()
        rows = rows.filter(lambda copy, seen=seen: not (copy in seen or seen.add(copy)), input_columns="copy")
        rows = rows.sort("key")
        size = round(len(rows) / 6)
        test[name], train[name] = rows.select(range(size)), rows.select(range(size, len(rows)))
    tested = {key for rows in test.values() for key in rows["key"]}
    mixed = {"train": [], "test": []}
    for name, rows in train.items():
        train[name] = rows.filter(lambda key: key not in tested, input_columns="key")
    for side, total, sets in (("train", train_size, train), ("test", test_size, test)):
        for name, rows in sets.items():
            rows = rows.remove_columns(["key", "copy"])
            rows.to_json(out / "processed" / f"{name}_{side}.jsonl")
            if side == "test":
                rows.to_json(out / "test" / f"{name}_test.jsonl")
            indexes: list[int] = []
            while len(indexes) < int(total * RATIOS[DOMAINS[name]] / 2):
                epoch = list(range(len(rows)))
                random.Random(len(indexes)).shuffle(epoch)
                indexes += epoch
            mixed[side].append(rows.select(indexes[: int(total * RATIOS[DOMAINS[name]] / 2)]))
        datasets.concatenate_datasets(mixed[side]).shuffle(seed=0).to_json(out / "mixed" / f"{side}_mixed.jsonl")


if __name__ == "__main__":
    for folder in ("processed", "test", "mixed"):
        (Path(sys.argv[2]) / folder).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
