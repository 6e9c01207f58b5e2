"""Small invented benchmarks in the published formats, for a clone that has none of the real ones.

``write_samples`` makes every file under the name that the benchmark's authors gave it, so that whatever reads
``data/raw`` reads these as well; ``hub_record`` turns a record into the Hugging Face hub's shape. What the real files
are known for is there: thousands commas and signs, several boxes, unanswerable questions with plausible answers,
annotators who differ, records with two paragraphs, CRLF, tests that build what the solution defines.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]
_TOWNS = ("Arvel", "Bexmoor", "Corlin", "Dunsey", "Elmarsh", "Fenwold", "Gorsley", "Harrowby", "Innisk", "Jorvale")
_WARES = ("apples", "candles", "kites", "lamps", "maps", "nails", "pots", "ropes", "stamps", "tiles")


def gsm8k(split: str) -> Iterator[Record]:
    for i in range(14 if split == "train" else 6):
        town, ware, n = _TOWNS[i % 10], _WARES[(3 * i) % 10], 7 + i + (100 if split == "test" else 0)
        last = (f"{1000 * n:,}", str(3 * n), str(-n), f"${2 * n}")[i % 4]
        factor = (1000, 3, -1, 2)[i % 4]
        asked = f"A trader of {town} has {n} {ware} and multiplies them by {factor}. What is the product?"
        if last.startswith("$"):
            asked = f"A trader of {town} has {n} {ware} worth ${factor} each. How much are they worth together?"
        yield {
            "question": asked,
            "answer": f"The product is {n} * {factor} = <<{n}*{factor}={n * factor}>>{n * factor}.\n#### {last}",
        }


def math(split: str) -> Iterator[tuple[str, Record]]:
    """Subject's folder and record."""
    shift = 0 if split == "train" else 50
    for i in range(shift + 1, shift + (15 if split == "train" else 7)):
        answer = rf"\frac{{{i}}}{{{i + 1}}}"
        tries = rf"At first one takes $\boxed{{{i}}}$ for it. " if i % 3 == 0 else ""
        yield (
            ("algebra", "geometry")[i % 2],
            {
                "problem": f"The ratio $r$ has ${i + 1}r = {i}$. Find $r$.",
                "level": f"Level {i % 5 + 1}",
                "type": ("Algebra", "Geometry")[i % 2],
                "solution": rf"{tries}Dividing by ${i + 1}$ leaves $r = \boxed{{{answer}}}$.",
            },
        )


def squad2(split: str) -> Record:
    articles = []
    for i, town in enumerate(_TOWNS[:5] if split == "train" else _TOWNS[5:8]):
        year = 1700 + 13 * i
        context = f"The mill of {town} was built in {year} by the guild of weavers. It stands on the west bank."
        named = [f"{year}", f"in {year}"]
        questions = [
            (f"When was the mill of {town} built?", named),
            (f"Who built the mill of {town}?", ["the guild of weavers", "guild of weavers", "the guild of weavers"]),
            (f"Who burned the mill of {town} down?", []),
        ]
        qas = []
        for j, (question, answers) in enumerate(questions):
            spans = [{"text": text, "answer_start": context.find(text)} for text in answers]
            record = {"question": question, "id": f"{split}{i:020d}{j}", "answers": spans, "is_impossible": not answers}
            if not answers:
                record["plausible_answers"] = [{"text": "the guild of weavers", "answer_start": context.find("the g")}]
            qas.append(record)
        articles.append({"title": town, "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0", "data": articles}


def hotpotqa(split: str) -> Iterator[Record]:
    for i in range(12 if split == "train" else 6):
        town, river = _TOWNS[i % 10], f"the {_WARES[(i + (5 if split == 'train' else 0)) % 10].title()} Brook"
        paragraphs = [
            [town, [f"{town} is a town of weavers.", f" It lies on {river}, number {i}."]],
            [river, [f"{river.capitalize()} flows into Lake Marn."]],
            *([other, [f"{other} is another town.", " It has a market."]] for other in _TOWNS if other != town),
        ]
        yield {
            "_id": f"{split}{i:020d}",
            "question": f"Into which lake flows the river of {town} that was counted as number {i} of {split}?",
            "answer": "Lake Marn", "type": ("bridge", "comparison")[i % 2], "level": "medium",
            "supporting_facts": [[town, 1], [river, 0]], "context": paragraphs[: 2 if i % 4 == 0 else 10],
        }  # fmt: skip


def humaneval() -> Iterator[Record]:
    for i in range(8):
        name, prelude = f"scaled_{i}", ""
        if i % 3 == 0:
            prelude = "from typing import List\n\n\n"
        if i % 3 == 1:
            prelude = f"def offset_{i}(x):\n    return x + {i}\n\n\n"
        body = f"offset_{i}(x) * 2" if i % 3 == 1 else f"x * 2 + {i}"
        results = [(x + i) * 2 if i % 3 == 1 else x * 2 + i for x in (1, 5, -4)]
        shown = (
            f">>> {name}(1)\n    {results[0]}", f"{name}(1) => {results[0]}", f"{name}(5) should return {results[1]}.",
            "It has no example.",
        )[i % 4]  # fmt: skip
        annotated = "x: int, seen: List[int] = ()" if i % 3 == 0 else "x"
        checks = [f"    assert candidate({x}) == {result}" for x, result in zip((1, 5, -4), results, strict=True)]
        yield {
            "task_id": f"HumanEval/{1000 + i}",
            "prompt": f'{prelude}def {name}({annotated}):\n    """Scale a number, way {i}.\n    {shown}\n    """\n',
            "entry_point": name,
            "canonical_solution": f"    return {body}\n",
            "test": "\n".join(["", "METADATA = {'author': 'nobody'}", "", "def check(candidate):", *checks, ""]),
        }


def mbpp() -> Iterator[Record]:
    """Of the full release, CRLF and all; tasks 1 to 9 and some of every split."""
    for number in (*range(1, 10), *range(11, 15), *range(511, 515), *range(601, 611)):
        name = f"shift_{number}"
        record = {
            "text": f"Write a function to move a number by {number}.",
            "code": f"def helper(x):\r\n  return x\r\ndef {name}(x):\r\n  return helper(x) + {number}",
            "task_id": number,
            "test_setup_code": "",
            "test_list": [f"assert {name}({x}) == {x + number}" for x in (0, 3, -8)],
            "challenge_test_list": [f"assert {name}(100) == {100 + number}"] if number % 2 else [],
        }
        if number == 602:  # as 367 and 927 of the real ones
            record |= {
                "code": f"class Node:\r\n  def __init__(self, x):\r\n    self.x = x\r\ndef {name}(node):\r\n"
                f"  return node.x + {number}",
                "test_setup_code": "root = Node(1)\r\nother = Node(5)",
                "test_list": [f"assert {name}(root) == 603", f"assert {name}(other) == 607"],
                "challenge_test_list": [],
            }
        if number == 603:  # as ten of the real ones
            record["code"] = f"def {name}(x):\r\n  return math.floor(x) + {number}"
        yield record


def sanitized_mbpp() -> Iterator[Record]:
    for record in mbpp():
        if record["task_id"] != 602:
            yield {
                "source_file": "Invented samples", "task_id": record["task_id"], "prompt": record["text"],
                "code": record["code"].replace("\r\n", "\n"),
                "test_imports": ["import math"] if "math." in record["code"] else [], "test_list": record["test_list"],
            }  # fmt: skip


def mmlu(split: str) -> Iterator[list[str]]:
    shift = {"test": 0, "val": 40, "auxiliary_train": 60}[split]
    for i in range(shift, shift + 10):
        # the last two choices read alike here and there, as they do in the real ones
        choices = [f"{i + 1}", f"{i + 2}", f"{i + 3}, rounded", f"{i + (3 if i % 4 else 2)}, rounded"]
        yield [f"Which number comes after {i}, said slowly?", *choices, "A" if i % 2 else "B"]


def commonsenseqa(split: str) -> Iterator[Record]:
    for i in range(12 if split == "train" else 6):
        ware, town = _WARES[i % 10], _TOWNS[(i // 10 + (5 if split == "train" else 0)) % 10]
        texts = ["shop", "cloud", "river", "moon", "volcano"]
        texts = texts[-(i % 5) :] + texts[: -(i % 5)] if i % 5 else texts
        yield {
            "answerKey": "ABCDE"[texts.index("shop")],
            "id": f"{split}{i:028d}",
            "question": {
                "question_concept": ware,
                "choices": [{"label": label, "text": text} for label, text in zip("ABCDE", texts, strict=True)],
                "stem": f"Where would people of {town} buy {ware} for a feast?",
            },
        }


def write_lines(path: Path, records: Iterable[Record]) -> Path:
    """JSON lines, in folders that are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_samples(folder: Path) -> Path:
    """All files of all eight benchmarks under ``folder``, which is returned."""

    def put(name: str, content: str | bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def lines(records: Iterator[Record]) -> str:
        return "".join(json.dumps(record) + "\n" for record in records)

    for split in ("train", "test"):
        put(f"gsm8k/{split}.jsonl", lines(gsm8k(split)))
        for i, (subject, record) in enumerate(math(split)):
            put(f"math/MATH/{split}/{subject}/{i}.json", json.dumps(record, indent=4))
    for split, squad, hotpot in (
        ("train", "train-v2.0", "hotpot_train_v1.1"), ("dev", "dev-v2.0", "hotpot_dev_distractor_v1"),
    ):  # fmt: skip
        put(f"squad_v2/{squad}.json", json.dumps(squad2(split)))
        put(f"hotpotqa/{hotpot}.json", json.dumps([*hotpotqa(split)]))
        put(f"commonsenseqa/{split}_rand_split.jsonl", lines(commonsenseqa(split)))
    put("hotpotqa/hf_columns_dev_distractor.json", json.dumps([hub_record("hotpotqa", r) for r in hotpotqa("dev")]))
    put("humaneval/HumanEval.jsonl.gz", gzip.compress(lines(humaneval()).encode()))
    put("mbpp/mbpp.jsonl", lines(mbpp()))
    put("mbpp/sanitized-mbpp.json", json.dumps([*sanitized_mbpp()], indent=2))
    for split in ("test", "val", "auxiliary_train"):
        (folder / "mmlu" / split).mkdir(parents=True)
        with (folder / "mmlu" / split / f"counting_{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(mmlu(split))
    return folder


def hub_record(name: str, record: Record) -> Record:
    """A record of the release (SQuAD2: flat, with its context) as the hub has it."""
    if name == "squad2":
        columns = {key: [answer[key] for answer in record["answers"]] for key in ("text", "answer_start")}
        return {key: record[key] for key in ("id", "context", "question")} | {"answers": columns}
    if name == "hotpotqa":
        titles, sentences = ([paragraph[i] for paragraph in record["context"]] for i in (0, 1))
        titled, numbers = ([fact[i] for fact in record["supporting_facts"]] for i in (0, 1))
        facts = {"title": titled, "sent_id": numbers}
        rest = {key: record[key] for key in ("question", "answer", "type", "level")}
        context = {"title": titles, "sentences": sentences}
        return {"id": record["_id"], **rest, "supporting_facts": facts, "context": context}
    if name == "commonsenseqa":
        choices = record["question"]["choices"]
        columns = {key: [choice[key] for choice in choices] for key in ("label", "text")}
        stem = {"question": record["question"]["stem"], "question_concept": record["question"]["question_concept"]}
        return {"id": record["id"], **stem, "choices": columns, "answerKey": record["answerKey"]}
    if name == "mmlu":
        return {**record, "subject": "counting", "answer": "ABCD".index(record["answer"])}
    return record
