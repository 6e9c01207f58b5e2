"""Prompts of the LLM judge: system prompt with a line per dataset, one template, and the fence around the data.

The texts are in ``prompts.yaml``; ``JUDGE_PROMPT`` is short enough for a model of a few million parameters. A file
named by ``judge.prompts`` replaces the lines of datasets:

    gsm8k: The answer is one number; units may be missing.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from llm_as_judge.config.sources import plain_yaml
from llm_as_judge.data.catalog import DATASETS
from llm_as_judge.errors import ConfigError
from llm_as_judge.judging.asking import schema_of

TEXTS: Mapping[str, str] = plain_yaml(Path(__file__).with_name("prompts.yaml"))
JUDGE_PROMPT, JSON_PROMPT, JUDGE_SYSTEM = TEXTS["verdict"], TEXTS["verdict_json"], TEXTS["system"]
#: Appended to a candidate that ended at its token limit.
CUT_OFF, RETRY_LINE = TEXTS["cut_off"], TEXTS["retry"]
EXTRACT_SYSTEM, EXTRACT_PROMPT, EXTRACT_RETRY_LINE = (TEXTS[f"extract{part}"] for part in ("_system", "", "_retry"))
#: A judge that cannot copy the answer out of this reply cannot be asked to extract.
PROBE = ("How old is Mr. Dastin?", "He was born before the war, so he must be **87** by now.", "87")
#: A reference that no answer is the same as; what is called the same as this one is a statement about references.
DECOY = "Velmora Dastin"
#: A reply out of which any judge that answers can copy, or say that it is none.
CONTROL = f"I believe that the answer to it is {DECOY}."

#: Line of each dataset after ``JUDGE_SYSTEM``; other datasets have none.
DATASET_LINES: Mapping[str, str] = {name: entry.judge_line for name, entry in DATASETS.items() if entry.judge_line}

VERDICT_SCHEMA = schema_of("verdict", analysis={"type": "string"}, true_false={"type": "boolean"})

LONGEST_FIELD = 2000  # characters of a field
_LABEL = re.compile(r"\b((?:Question|Reference|Candidate|Reply|System|User|Assistant)(?: \d+)?)\s*:", re.IGNORECASE)
_SQUARE_TAG = re.compile(r"\[(/?(?:INST|SYS))\]")
_ANGLES = str.maketrans("<>", "\u2039\u203a")
_SIGNS = str.maketrans(
    {"﹤": "<", "﹥": ">", "‹": "<", "›": ">", **{chr(c + 0xFEE0): chr(c) for c in range(0x21, 0x7F)}}
)
#: The verdict's own format, as tags, JSON or words, with the verdict that follows.
_VERDICT = re.compile(
    r"<\s?/?\s?(?:true\s?_\s?false|analysis)\s?/?\s?>(?:\s?(?:true|false)\b)?"
    r"|[\"']?(?:\btrue\s?_\s?false\b|\breply\s?:)[\"'\s:=>-]{0,5}(?:(?:true|false)\b)?",
    re.IGNORECASE,
)


def fence(text: str, longest: int = LONGEST_FIELD) -> str:
    """Write ``text`` as one line that the judge cannot take for an instruction or a verdict.

    Line breaks, tags, labels, verdicts and invisible characters are removed or replaced. A long text is cut in the
    middle.
    """
    if len(text) > 8 * longest:
        text = f"{text[: 4 * longest]} ... {text[-4 * longest :]}"
    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    line = _VERDICT.sub("\u00b7", " ".join(visible.translate(_SIGNS).split())).translate(_ANGLES)
    line = _SQUARE_TAG.sub(r"\1", _LABEL.sub(r"\1 -", line))
    if len(line) <= longest:
        return line
    gap = " ... "
    head = (longest - len(gap)) // 2
    return line[:head] + gap + line[-(longest - len(gap) - head) :]


def load_lines(path: Path | None) -> Mapping[str, str]:
    """Load ``DATASET_LINES``, overridden by those of a YAML file. Raises ``ConfigError``."""
    if path is None:
        return DATASET_LINES
    loaded = plain_yaml(path)
    if not isinstance(loaded, dict) or not all(isinstance(v, str) for pair in loaded.items() for v in pair):
        raise ConfigError(f"judge.prompts: {path} must map names of datasets to text, got {loaded!r}")
    return {**DATASET_LINES, **loaded}


def build_prompt(question: str, references: Sequence[str], candidate: str, template: str = JUDGE_PROMPT) -> str:
    """Fill ``template`` with every field fenced; several references are joined by ``or``."""
    return template.format(
        question=fence(question), reference=fence(" or ".join(dict.fromkeys(references))), candidate=fence(candidate)
    )
