"""Files of records, and records of a benchmark's release in the shape that the Hugging Face hub has them in."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def put(path: Path, content: str | bytes) -> Path:
    """The file, in folders that are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_lines(path: Path, records: Iterable[Record]) -> Path:
    return put(path, "".join(json.dumps(record) + "\n" for record in records))


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
