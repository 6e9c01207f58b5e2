"""The experience buffer: good workflows, kept by domain and found again by the likeness of their problems.

An entry is one rewarded workflow. Copies of it are dropped, no shape of workflow may fill more than its
share, and a problem never gets an example made on itself. Problems' answers are not stored. The embedding is
handed in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.config.schema import BufferConfig
from llm_as_judge.errors import DataError
from llm_as_judge.files import write_whole
from llm_as_judge.types import DOMAINS, Domain
from llm_as_judge.workflow.shape import normalise_code, shape

Embed = Callable[[list[str]], Iterable[Iterable[float]]]
#: Part of a domain's places that workflows of one shape may take.
_MAX_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Experience:
    """One workflow, the problem it solved, and the reward it got at ``step``."""

    problem_id: str
    problem_text: str
    workflow: str
    reward: float
    domain: Domain
    step: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """An experience and what it is compared by, worked out once: parsing takes longer than all else here."""

    experience: Experience
    problem: str
    code: str
    shape: str


class ExperienceBuffer:
    """``config.buffer_size`` experiences a domain at most, half of them of one shape, each with a reward of
    ``config.reward_threshold`` at least. Without ``config.persistence_dir`` it stays in memory.
    """

    def __init__(self, config: BufferConfig, embed: Embed) -> None:
        self.config = config
        self._embed = embed
        self._per_shape = max(1, math.ceil(config.buffer_size * _MAX_SHARE))
        self._entries: dict[Domain, list[_Entry]] = {domain: [] for domain in DOMAINS}
        self._vectors: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def entries(self, domain: Domain) -> tuple[Experience, ...]:
        """A domain's experiences in the order in which they came."""
        return tuple(entry.experience for entry in self._entries[domain])

    def add(self, experience: Experience) -> bool:
        """Keep ``experience`` if it is good enough; True when it was taken.

        A copy (same problem, same code but for layout) stays once, with its best reward. Where the shape's or
        the domain's places are taken, the worst of them makes room for a better one.
        """
        if not experience.reward >= self.config.reward_threshold:  # also refuses nan
            return False
        entries, new = self._entries[experience.domain], self._entry(experience)
        rivals = [e for e in entries if (e.problem, e.code) == (new.problem, new.code)]
        if not rivals:
            alike = [e for e in entries if e.shape == new.shape]
            if len(alike) >= self._per_shape:
                rivals = alike
            elif len(entries) >= self.config.buffer_size:
                rivals = entries
        if rivals:
            worst = min(rivals, key=lambda e: (e.experience.reward, e.experience.step))
            if worst.experience.reward >= experience.reward:
                return False
            entries.remove(worst)
        entries.append(new)
        return True

    def _entry(self, experience: Experience) -> _Entry:
        workflow = experience.workflow
        return _Entry(experience, _problem_key(experience.problem_text), normalise_code(workflow), shape(workflow))

    def expire(self, oldest: int) -> int:
        """Drop what was added before step ``oldest``; how many these were. What is good is found again."""
        before = len(self)
        for domain, entries in self._entries.items():
            self._entries[domain] = [entry for entry in entries if entry.experience.step >= oldest]
        return before - len(self)

    def top_k(self, text: str, domain: Domain, *, problem_id: str = "") -> list[Experience]:
        """The ``config.top_k`` experiences on the most similar problems by cosine, each at least
        ``config.min_similarity`` alike, the better reward first among equals.

        One a problem, and never one of the problem asked for, by id or by text.
        """
        own = _problem_key(text)
        best: dict[str, Experience] = {}
        for kept in self._entries[domain]:
            key, entry = kept.problem, kept.experience
            if entry.problem_id == problem_id or key == own:
                continue
            known = best.get(key)
            if known is None or (entry.reward, entry.step) > (known.reward, known.step):
                best[key] = entry
        k = self.config.top_k
        if not best or k < 1:
            return []
        question, *vectors = self._embedded([text, *(entry.problem_text for entry in best.values())])
        scored = [(_cosine(question, v), e) for v, e in zip(vectors, best.values(), strict=True)]
        scored = [(similarity, e) for similarity, e in scored if similarity >= self.config.min_similarity]
        scored.sort(key=lambda pair: (-round(pair[0], 6), -pair[1].reward, -pair[1].step))
        return [entry for _, entry in scored[:k]]

    def _embedded(self, texts: list[str]) -> list[list[float]]:
        """Vectors of ``texts``; those of stored problems are computed once."""
        kept = {e.experience.problem_text for entries in self._entries.values() for e in entries}
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        fresh: dict[str, list[float]] = {}
        if missing:
            for text, vector in zip(missing, self._embed(missing), strict=True):
                fresh[text] = [float(x) for x in vector]
        vectors = [self._vectors[text] if text in self._vectors else fresh[text] for text in texts]
        self._vectors = {t: v for t, v in {**self._vectors, **fresh}.items() if t in kept}
        return vectors

    def save(self) -> None:
        """Write ``{domain}_top_samples.jsonl``, best first; each file is replaced whole or not at all."""
        directory = self.config.persistence_dir
        if directory is None:
            return
        for domain, path in sample_files(directory).items():
            best_first = sorted(self.entries(domain), key=lambda e: -e.reward)
            write_whole(path, "".join(json.dumps(asdict(e), ensure_ascii=False) + "\n" for e in best_first))

    def load(self) -> None:
        """Offer what ``save`` wrote to the buffer; missing files are empty. Raises ``DataError``."""
        directory = self.config.persistence_dir
        for path in sample_files(directory).values() if directory is not None else ():
            if not path.exists():
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{path}: no experiences: {error}; delete the file, or set reuse=false") from error
            for number, line in enumerate(text.split("\n"), 1):
                if line.strip():
                    try:
                        self.add(Experience(**json.loads(line)))
                    except (ValueError, TypeError, KeyError) as error:
                        raise DataError(f"{path}:{number}: no experience: {error}; delete the line") from error

    def state_dict(self) -> dict[str, Any]:
        """All experiences in order, as plain data."""
        return {domain: [asdict(entry) for entry in self.entries(domain)] for domain in self._entries}

    def load_state_dict(self, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Replace the contents by those of ``state``."""
        self._entries = {d: [self._entry(Experience(**kept)) for kept in state.get(d, ())] for d in DOMAINS}
        self._vectors = {}


def sample_files(directory: Path) -> dict[Domain, Path]:
    """Where a buffer keeps each domain's experiences."""
    return {domain: directory / f"{domain}_top_samples.jsonl" for domain in DOMAINS}


def _problem_key(text: str) -> str:
    """A problem by its words: the same one may come under several ids."""
    return " ".join(text.split()).casefold()


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0.0
