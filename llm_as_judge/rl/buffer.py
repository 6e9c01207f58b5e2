"""The experience buffer: good workflows by domain, retrieved by the similarity of their problems.

Copies are dropped, no shape of workflow may fill more than its share, and a problem never gets an example made on
itself. Problems' answers are not stored.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_as_judge.config.schema import BufferConfig
from llm_as_judge.data.problems import words_of
from llm_as_judge.files import write_whole
from llm_as_judge.types import DOMAINS, Domain, Group, Question, in_order
from llm_as_judge.workflow.shapes import Example

#: Unit vectors [N, dimensions] of texts; ``Policy.embed`` is one.
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
#: Share of a domain's places that workflows of one shape may take.
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
    shape: str  # this and the digest as of its execution
    digest: str


class ExperienceBuffer:
    """At most ``buffer_size`` experiences per domain, half of one shape; stored in ``folder`` if there is one."""

    def __init__(self, config: BufferConfig, embed: Embed, folder: Path | None = None) -> None:
        self.config, self._folder = config, folder
        self._embed = embed
        self._per_shape = max(1, math.ceil(config.buffer_size * _MAX_SHARE))
        self._entries: defaultdict[Domain, list[Experience]] = defaultdict(list)
        self._vectors: dict[str, NDArray[np.float64]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def entries(self, domain: Domain) -> tuple[Experience, ...]:
        """Return a domain's experiences in the order in which they were added."""
        return tuple(self._entries[domain])

    def add(self, experience: Experience) -> bool:
        """Keep ``experience`` if it is good enough; True if it was taken.

        A copy (same problem, same code except for layout) is kept once, with its best reward. If the places of the
        shape or of the domain are taken, the worst one there makes room for a better one.
        """
        if not experience.reward >= self.config.reward_threshold:  # also refuses nan
            return False
        entries, same = self._entries[experience.domain], (experience.digest, words_of(experience.problem_text))
        rivals = [e for e in entries if (e.digest, words_of(e.problem_text)) == same]
        if not rivals:
            alike = [e for e in entries if e.shape == experience.shape]
            if len(alike) >= self._per_shape:
                rivals = alike
            elif len(entries) >= self.config.buffer_size:
                rivals = entries
        if rivals:
            worst = min(rivals, key=lambda e: (e.reward, e.step))
            if worst.reward >= experience.reward:
                return False
            entries.remove(worst)
        entries.append(experience)
        return True

    def update(self, groups: Sequence[Group], step: int) -> None:
        """Add the right rollouts of a finished step."""
        for rollout in (r for group in groups for r in group.rollouts):
            question, reward, ran = rollout.problem.question, rollout.reward.total, rollout.execution
            if rollout.verdict.correct and reward is not None:
                what = question.id, question.statement, rollout.workflow, reward, question.domain, step
                self.add(Experience(*what, ran.shape, ran.digest))

    def examples(self, question: Question) -> list[Example]:
        """Find good workflows for the most similar problems; the pipeline shows those that fit."""
        experiences = self.top_k(question.statement, question.domain, problem_id=question.id)
        return [Example(e.problem_text, e.workflow) for e in experiences]

    def top_k(self, text: str, domain: Domain, *, problem_id: str = "") -> list[Experience]:
        """Find the ``config.top_k`` experiences on the problems of highest cosine similarity; of equally similar ones,
        the better reward first.

        One per problem, and never one of the problem asked for, by id or by text.
        """
        own = words_of(text)
        best: dict[str, Experience] = {}
        for entry in sorted(self._entries[domain], key=lambda e: (-e.reward, -e.step)):
            if entry.problem_id != problem_id and (problem := words_of(entry.problem_text)) != own:
                best.setdefault(problem, entry)
        if not best or self.config.top_k < 1:
            return []
        question, *vectors = self._embedded([text, *(e.problem_text for e in best.values())])
        scored = [(float(question @ vector), e) for vector, e in zip(vectors, best.values(), strict=True)]
        scored.sort(key=lambda pair: (-round(pair[0], 6), -pair[1].reward, -pair[1].step))
        return [e for _, e in scored[: self.config.top_k]]

    def _embedded(self, texts: list[str]) -> list[NDArray[np.float64]]:
        """Embed ``texts`` as unit vectors; those of stored problems are computed once."""
        known = dict(self._vectors)
        if missing := [text for text in dict.fromkeys(texts) if text not in known]:
            known |= zip(missing, self._embed(missing).astype(np.float64), strict=True)
        stored = {e.problem_text for entries in self._entries.values() for e in entries}
        self._vectors = {text: vector for text, vector in known.items() if text in stored}
        return [known[text] for text in texts]

    def save(self) -> None:
        """Write ``{domain}_top_samples.jsonl``, best first, each file atomically."""
        if self._folder is None:
            return
        for domain in in_order([*DOMAINS, *self._entries]):
            best_first = sorted(self.entries(domain), key=lambda e: -e.reward)
            path = self._folder / f"{domain}_top_samples.jsonl"
            write_whole(path, "".join(json.dumps(asdict(e), ensure_ascii=False) + "\n" for e in best_first))

    def state_dict(self) -> dict[str, Any]:
        return {domain: [asdict(entry) for entry in entries] for domain, entries in self._entries.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._entries = defaultdict(list, {d: [Experience(**kept) for kept in own] for d, own in state.items()})
        self._vectors = {}
