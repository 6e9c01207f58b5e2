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
        n, factor = 7 + i + (100 if split == "test" else 0), (1000, 3, -1, 2)[i % 4]
        last = (f"{1000 * n:,}", str(3 * n), str(-n), f"${2 * n}")[i % 4]
        trader = f"A trader of {_TOWNS[i % 10]} has {n} {_WARES[(3 * i) % 10]}"
        asked = f"{trader} and multiplies them by {factor}. What is the product?"
        if last.startswith("$"):
            asked = f"{trader} worth ${factor} each. How much are they worth together?"
        steps = f"The product is {n} * {factor} = <<{n}*{factor}={n * factor}>>{n * factor}."
        yield {"question": asked, "answer": f"{steps}\n#### {last}"}


def math(split: str) -> Iterator[Record]:
    shift = 0 if split == "train" else 50
    for i in range(shift + 1, shift + (15 if split == "train" else 7)):
        tries = rf"At first one takes $\boxed{{{i}}}$ for it. " if i % 3 == 0 else ""
        answer = rf"\boxed{{\frac{{{i}}}{{{i + 1}}}}}"
        yield {
            "problem": f"The ratio $r$ has ${i + 1}r = {i}$. Find $r$.", "level": f"Level {i % 5 + 1}",
            "type": ("Algebra", "Geometry")[i % 2], "solution": f"{tries}Dividing by ${i + 1}$ leaves $r = {answer}$.",
        }  # fmt: skip


def squad2(split: str) -> Record:
    articles = []
    for i, town in enumerate(_TOWNS[:5] if split == "train" else _TOWNS[5:8]):
        year = 1700 + 13 * i
        context = f"The mill of {town} was built in {year} by the guild of weavers. It stands on the west bank."
        builders = ["the guild of weavers", "guild of weavers", "the guild of weavers"]
        asked = {
            f"When was the mill of {town} built?": [f"{year}", f"in {year}"],
            f"Who built the mill of {town}?": builders, f"Who burned the mill of {town} down?": [],
        }  # fmt: skip
        qas = []
        for j, (question, answers) in enumerate(asked.items()):
            spans, plausible = (
                [{"text": text, "answer_start": context.find(text)} for text in texts]
                for texts in (answers, builders[:1])
            )
            record = {"question": question, "id": f"{split}{i:020d}{j}", "answers": spans, "is_impossible": not spans}
            qas.append(record if answers else record | {"plausible_answers": plausible})
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
        name, helped = f"scaled_{i}", i % 3 == 1
        prelude = f"def offset_{i}(x):\n    return x + {i}\n\n\n" if helped else ""
        if i % 3 == 0:
            prelude = "from typing import List\n\n\n"
        results = {x: (x + i) * 2 if helped else x * 2 + i for x in (1, 5, -4)}
        shown = (
            f">>> {name}(1)\n    {results[1]}", f"{name}(1) => {results[1]}", f"{name}(5) should return {results[5]}.",
            "It has no example.",
        )[i % 4]  # fmt: skip
        annotated = "x: int, seen: List[int] = ()" if i % 3 == 0 else "x"
        checks = [f"    assert candidate({x}) == {result}" for x, result in results.items()]
        yield {
            "task_id": f"HumanEval/{1000 + i}", "entry_point": name,
            "prompt": f'{prelude}def {name}({annotated}):\n    """Scale a number, way {i}.\n    {shown}\n    """\n',
            "canonical_solution": f"    return {f'offset_{i}(x) * 2' if helped else f'x * 2 + {i}'}\n",
            "test": "\n".join(["", "METADATA = {'author': 'nobody'}", "", "def check(candidate):", *checks, ""]),
        }  # fmt: skip


def mbpp() -> Iterator[Record]:
    """Of the full release, CRLF and all; tasks 1 to 9 and some of every split."""
    for number in (*range(1, 10), *range(11, 15), *range(511, 515), *range(601, 611)):
        name = f"shift_{number}"
        record = {
            "text": f"Write a function to move a number by {number}.", "task_id": number, "test_setup_code": "",
            "code": f"def helper(x):\r\n  return x\r\ndef {name}(x):\r\n  return helper(x) + {number}",
            "test_list": [f"assert {name}({x}) == {x + number}" for x in (0, 3, -8)],
            "challenge_test_list": [f"assert {name}(100) == {100 + number}"] if number % 2 else [],
        }  # fmt: skip
        if number == 602:  # as 367 and 927 of the real ones
            node = "class Node:\r\n  def __init__(self, x):\r\n    self.x = x\r\n"
            record |= {
                "code": f"{node}def {name}(node):\r\n  return node.x + {number}", "challenge_test_list": [],
                "test_setup_code": "root = Node(1)\r\nother = Node(5)",
                "test_list": [f"assert {name}(root) == 603", f"assert {name}(other) == 607"],
            }  # fmt: skip
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
        texts = texts[5 - i % 5 :] + texts[: 5 - i % 5]
        choices = [{"label": label, "text": text} for label, text in zip("ABCDE", texts, strict=True)]
        stem = f"Where would people of {town} buy {ware} for a feast?"
        question = {"question_concept": ware, "choices": choices, "stem": stem}
        yield {"answerKey": "ABCDE"[texts.index("shop")], "id": f"{split}{i:028d}", "question": question}


def lines(records: Iterable[Record]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def put(path: Path, content: str | bytes) -> Path:
    """The file, in folders that are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_lines(path: Path, records: Iterable[Record]) -> Path:
    return put(path, lines(records))


def write_samples(folder: Path) -> Path:
    """All files of all eight benchmarks under ``folder``, which is returned."""
    for split in ("train", "test"):
        write_lines(folder / f"gsm8k/{split}.jsonl", gsm8k(split))
        for i, record in enumerate(math(split)):
            put(folder / f"math/MATH/{split}/{record['type'].lower()}/{i}.json", json.dumps(record, indent=4))
    for split, hotpot in (("train", "train_v1.1"), ("dev", "dev_distractor_v1")):
        put(folder / f"squad_v2/{split}-v2.0.json", json.dumps(squad2(split)))
        put(folder / f"hotpotqa/hotpot_{hotpot}.json", json.dumps([*hotpotqa(split)]))
        write_lines(folder / f"commonsenseqa/{split}_rand_split.jsonl", commonsenseqa(split))
    columns = [hub_record("hotpotqa", record) for record in hotpotqa("dev")]
    put(folder / "hotpotqa/hf_columns_dev_distractor.json", json.dumps(columns))
    put(folder / "humaneval/HumanEval.jsonl.gz", gzip.compress(lines(humaneval()).encode()))
    write_lines(folder / "mbpp/mbpp.jsonl", mbpp())
    put(folder / "mbpp/sanitized-mbpp.json", json.dumps([*sanitized_mbpp()], indent=2))
    for split in ("test", "val", "auxiliary_train"):
        with put(folder / f"mmlu/{split}/counting_{split}.csv", "").open("w", newline="", encoding="utf-8") as file:
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
        rest = {key: record[key] for key in ("question", "answer", "type", "level")} | {"id": record["_id"]}
        context = {"title": titles, "sentences": sentences}
        return {**rest, "supporting_facts": {"title": titled, "sent_id": numbers}, "context": context}
    if name == "commonsenseqa":
        question = record["question"]
        columns = {key: [choice[key] for choice in question["choices"]] for key in ("label", "text")}
        stem = {"question": question["stem"], "question_concept": question["question_concept"]}
        return {"id": record["id"], **stem, "choices": columns, "answerKey": record["answerKey"]}
    if name == "mmlu":
        return {**record, "subject": "counting", "answer": "ABCD".index(record["answer"])}
    return record
