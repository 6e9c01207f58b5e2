"""Judges without a reference: a model scores answers by a rubric, or ranks those of a group.

A rubric is a YAML file of weighted criteria; the score is the weighted mean of (score - low) / (high - low):

    default:
      complete: {question: "Does the answer cover all of the request?", weight: 0.7}
      brief: {question: "Is it free of padding?", weight: 0.3, scale: [0, 3]}
    poems: {...}    # criteria of one data set or domain; all others have those of default

A ranking is asked for in a random order and in the reverse; where they disagree about two answers, these are a tie. The
score is the share of the other answers beaten; in evaluations, the other one is that of the policy before training.
"""

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.config.fields import Float, Strict, as_tuple, fill_shares
from llm_as_judge.config.loading import explain
from llm_as_judge.config.sources import Setting, read_yaml
from llm_as_judge.errors import ConfigError
from llm_as_judge.judging.asking import Asking, fitting, json_objects, schema_of
from llm_as_judge.judging.prompts import CUT_OFF, TEXTS, fence
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Exchange, Problem, Question, Tier, Verdict

T = TypeVar("T")
#: Characters of all answers in a request, the fewer the less the model reads.
LENGTHS = (16_000, 4_000, 1_000)
_HALF = 6  # answers; of more than two halves, each is ranked with every other
_SYSTEM, _RETRY, _RANK = TEXTS["grade_system"], TEXTS["grade_retry"], TEXTS["rank"]
_ORDER: Mapping[str, Any] = {"best_to_worst": {"type": "array", "items": {"type": "integer"}}}
Answers = Sequence[tuple[str, str]]  # with their workflows' code


class Criterion(Strict):
    question: str = Field(min_length=1)
    weight: Float = Field(1.0, gt=0)
    scale: Annotated[tuple[Float, Float], BeforeValidator(as_tuple)] = (1.0, 5.0)


def _checked(criteria: dict[str, Criterion]) -> dict[str, Criterion]:
    fill_shares("the weights", {name: one.weight for name, one in criteria.items()}, ())
    for name, one in criteria.items():
        if one.scale[0] >= one.scale[1]:
            raise ValueError(f"the scale of {name} must be [LOW, HIGH] with LOW below HIGH")
    return criteria


_Name = Annotated[str, Field(pattern=r"^\w+$")]
_RUBRIC = TypeAdapter(dict[str, Annotated[dict[_Name, Criterion], AfterValidator(_checked)]])


def read_rubric(path: Path) -> dict[str, dict[str, Criterion]]:
    """Read the criteria by data set or domain. Raises ``ConfigError`` with file and line."""
    tree = read_yaml(path)
    places: dict[str, Setting] = dict(tree)
    for section, found in tree.items():
        places |= {f"{section}.{name}": one for name, one in found.children(f"section {section}").items()}
    try:
        rubric = _RUBRIC.validate_python({section: found.typed(False, {}) for section, found in tree.items()})
    except ValidationError as error:
        cure = "a criterion is NAME: {question: TEXT, weight: SHARE, scale: [LOW, HIGH]}, and weights sum to 1"
        raise ConfigError(f"{explain(error, str(path), places)}\n{cure}") from None
    if "default" not in rubric:
        raise ConfigError(f"{path}: there is no section default, with the criteria of all data without its own; add it")
    return rubric


class _Grader:
    """``together``: whole groups are judged, those of training. Raises ``ConfigError`` for a file that is no rubric."""

    def __init__(self, config: JudgeConfig, llm: ChatModel | None, together: bool) -> None:
        self._llm, self._asking, self._right_at, self._together = llm, Asking(config), config.right_at, together
        self._rubric = read_rubric(config.rubric) if config.rubric else {}

    async def _asked(
        self, problem: Problem, candidates: Sequence[str], criteria: Sequence[str], fields: Mapping[str, Any],
        read: Callable[[dict[str, Any]], T | None], heard: list[Exchange],
    ) -> tuple[T | bool | None, str]:  # fmt: skip
        """Ask for one object with any of ``fields``, and return what ``read`` makes of it; otherwise as ``fitting``.

        Names of fields are removed from candidates, so that these cannot speak for the judge.
        """
        own = re.compile("|".join(rf"\b{key}\b" for key in fields).replace("_", r"\s?_\s?"), re.IGNORECASE)
        form = ", ".join(f'"{key}": {field["type"]}' for key, field in fields.items())
        schema, size = schema_of("grades", reasons={"type": "string"}, **fields), len(candidates)

        def one(text: str) -> T | None:
            said = [found for found in json_objects(text) if fields.keys() & found.keys()]
            return read(said[0]) if len(said) == 1 else None

        async def ask(longest: int, shown: Sequence[str] = candidates) -> tuple[T | None, str]:
            lines = [f"Question: {fence(problem.question.statement, LENGTHS[0])}"]
            lines += [f"Reference: {fence(' or '.join(problem.reference.answers))}"] * bool(problem.reference.answers)
            for i, text in enumerate(shown, 1):
                lines.append(f"Candidate{f' {i}' * (size > 1)}: {own.sub('·', fence(text, longest // size))}")
            prompt = "\n".join([*lines, *criteria, f'Reply with JSON: {{"reasons": "text", {form}}}'])
            assert self._llm is not None
            return await self._asking.verdict(self._llm, heard, _SYSTEM, (prompt, prompt), _RETRY, schema, one)

        longest = size * max(map(len, candidates))
        return await fitting(ask, longest, LENGTHS, lambda number: ask(LENGTHS[-1], [f"-{number}"] * size))

    def _verdict(self, tier: Tier, score: float | None, said: str, heard: Sequence[Exchange] = ()) -> Verdict:
        return Verdict(None if score is None else score >= self._right_at, tier, said, tuple(heard), score=score)


class Rubric(_Grader):
    """Scores answers one by one."""

    async def verdicts(self, problem: Problem, answers: Answers, cut_off: bool = False) -> list[Verdict]:
        sections = problem.question.dataset, problem.question.domain, "default"
        criteria = next(self._rubric[section] for section in sections if section in self._rubric)
        asked = [f"{name}_score, from {c.scale[0]:g} to {c.scale[1]:g}: {c.question}" for name, c in criteria.items()]
        fields = {f"{name}_score": {"type": "number"} for name in criteria}

        def read(said: dict[str, Any]) -> float | None:
            """Compute the weighted mean; None unless there is a score within its scale for each criterion."""
            given = [(c.weight, *c.scale, said.get(f"{name}_score", "")) for name, c in criteria.items()]
            if not all(type(score) in (int, float) and low <= score <= high for _, low, high, score in given):
                return None
            return round(float(sum(weight * (score - low) / (high - low) for weight, low, high, score in given)), 9)

        verdicts = []
        for answer, _ in answers:
            heard: list[Exchange] = []
            score, said = await self._asked(problem, [answer + CUT_OFF * cut_off], asked, fields, read, heard)
            verdicts.append(self._verdict("rubric", None if score is None else float(score), said, heard))
        return verdicts


class Ranking(_Grader):
    """Ranks the answers of a group, or each with that of ``untrained`` if they do not come ``together``."""

    #: Answers of the policy before training, None for those that could not run; other questions are a tie.
    untrained: Mapping[Question, str | None] | None = None

    async def verdicts(self, problem: Problem, answers: Answers, cut_off: bool = False) -> list[Verdict]:
        texts = [answer for answer, _ in answers]
        if self._together:
            return await self._ranked(problem, texts)
        if self.untrained is None:
            raise ConfigError("judge.relative has no answers to compare with here; use judge.rubric or judge.function")
        others = [self.untrained.get(problem.question, answer) for answer in texts]
        if None in others:
            return [self._verdict("relative", None, "the untrained policy's workflow could not run")] * len(others)
        return [(await self._ranked(problem, [one, other or ""]))[0] for one, other in zip(texts, others, strict=True)]

    async def _ranked(self, problem: Problem, answers: Sequence[str]) -> list[Verdict]:
        """Rank the answers; equal ones are one entry, and an empty one is beaten by all."""
        answers, heard = [" ".join(answer.split()) for answer in answers], list[Exchange]()
        entries = sorted({*answers} - {""})
        random.Random(derived_seed(problem.question.id, *entries)).shuffle(entries)
        halves = [entries[i : i + _HALF] for i in range(0, len(entries), _HALF)]
        lists = [one + other for one, other in combinations(halves, 2)] or halves[: len(entries) > 1]

        async def order(shown: list[str]) -> tuple[list[str] | bool | None, str]:
            def read(said: dict[str, Any]) -> list[str] | None:
                places, every = said["best_to_worst"], [*range(1, len(shown) + 1)]
                valid = isinstance(places, list) and all(type(i) is int for i in places) and sorted(places) == every
                return [shown[i - 1] for i in places] if valid else None

            return await self._asked(problem, shown, [_RANK], _ORDER, read, heard)

        found = await asyncio.gather(*(order(shown) for some in lists for shown in (some, some[::-1])))
        orders = [ranked for ranked, _ in found if isinstance(ranked, list)]
        if len(orders) < len(found):
            alone = [(entry, await order([entry, "-"])) for entry in entries]
            if refused := [entry for entry, (ranked, _) in alone if ranked is False]:
                return await self._ranked(problem, ["" if answer in refused else answer for answer in answers])
            why = next(why for ranked, why in found if not isinstance(ranked, list))
            return [self._verdict("relative", None, why, heard * (not i)) for i in range(len(answers))]

        def beats(one: str, other: str) -> bool:
            both = [order for order in orders if one in order and other in order]
            return bool(one) and (not other or all(order.index(one) < order.index(other) for order in both))

        verdicts = []
        for i, one in enumerate(answers):
            points = [(1 + beats(one, b) - beats(b, one)) / 2 for j, b in enumerate(answers) if i != j] or [0.5]
            said = f"beats {points.count(1)} of {len(points)}, {points.count(0.5)} ties"
            verdicts.append(self._verdict("relative", sum(points) / len(points), said, heard * (not i)))
        return verdicts
