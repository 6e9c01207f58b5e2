"""The LLM judge: is the candidate the same answer as the reference?

What the candidate says is data (``fence``). The last verdict of the reply counts, and only of the reply: reasoning is
not a verdict. A reply that was cut off or holds no verdict gets one retry that differs (an identical one at temperature
0 cannot help), then the judge abstains. An abstention is never a wrong answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_as_judge.config.schema import JudgeConfig
from llm_as_judge.errors import ProviderError, RequestRefused
from llm_as_judge.judging.fence import fence
from llm_as_judge.judging.prompts import (
    CUT_OFF,
    EXTRACT_PROMPT,
    EXTRACT_SYSTEM,
    JSON_PROMPT,
    JSON_RETRY_LINE,
    JUDGE_PROMPT,
    JUDGE_SYSTEM,
    RETRY_LINE,
    VERDICT_SCHEMA,
    build_prompt,
    load_lines,
)
from llm_as_judge.llm.client import ChatModel, LLMReply
from llm_as_judge.types import Exchange

logger = logging.getLogger(__name__)

_TAG = "<true_false>"
_VERDICT = re.compile(r"<true_false>\s*(True|False)\b", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.IGNORECASE | re.DOTALL)
_RETRY_TEMPERATURE = 0.3
_VOTE_TEMPERATURE = 0.7


@dataclass(frozen=True, slots=True)
class Decision:
    """``correct`` is None when the judge abstained; ``reason`` says why, or what it compared; ``exchanges`` are all
    that led to it.
    """

    correct: bool | None
    reason: str = ""
    exchanges: tuple[Exchange, ...] = ()


def parse_verdict(text: str) -> bool | None:
    """The last ``<true_false>``'s word, its closing tag optional; None when that tag holds neither word.

    What stands inside ``<think>`` is not the reply.
    """
    text = _without_thinking(text)
    found = _VERDICT.match(text, max(text.lower().rfind(_TAG), 0))
    return None if found is None else found.group(1).lower() == "true"


def parse_json_verdict(text: str) -> bool | None:
    """``true_false`` of a JSON object that is the whole reply; None for anything else."""
    try:
        loaded = json.loads(_without_thinking(text).strip().removeprefix("```json").removesuffix("```"))
    except (ValueError, RecursionError):
        return None
    said = loaded.get("true_false") if isinstance(loaded, dict) else None
    return said if isinstance(said, bool) else None


def _without_thinking(text: str) -> str:
    return text.rpartition("</think>")[2].partition("<think>")[0]


@dataclass(frozen=True, slots=True)
class _Overheard:
    """``llm`` whose exchanges are written down in ``heard``, without the system prompt, which is always the same."""

    llm: ChatModel
    heard: list[Exchange]

    async def chat(self, prompt: str, **request: Any) -> LLMReply:
        reply = await self.llm.chat(prompt, **request)
        self.heard.append(reply.answering(prompt))
        return reply


class LLMJudge:
    """Asks ``llm``, and where ``second`` is given that one too: True needs both, a disagreement is an abstention.

    The embedded judge is asked as it was trained: no system prompt, no schema. Raises ``ConfigError`` for a file of
    ``config.prompts`` that cannot be read.
    """

    def __init__(self, config: JudgeConfig, llm: ChatModel, second: ChatModel | None = None) -> None:
        self._config = config
        self._llm = llm
        self._second = second
        self._lines = load_lines(config.prompts)
        self._embedded = config.provider == "embedded"
        self._structured = config.structured and not self._embedded  # until the server refuses it

    async def judge(self, question: str, references: Sequence[str], candidate: str) -> bool | None:
        """True, False, or None for an abstention."""
        return (await self.decide(question, references, candidate)).correct

    async def decide(
        self, question: str, references: Sequence[str], candidate: str, dataset: str = "", cut_off: bool = False
    ) -> Decision:
        """The verdict with its reason; a provider that does not answer is an abstention."""
        if cut_off:
            candidate = fence(candidate) + CUT_OFF
        heard = list[Exchange]()
        decision = await self._decide_with(_Overheard(self._llm, heard), question, references, candidate, dataset)
        if self._second is not None and decision.correct is True:
            again = await self._decide_with(_Overheard(self._second, heard), question, references, candidate, dataset)
            if again.correct is not True:
                said = "abstained" if again.correct is None else "disagrees"
                decision = Decision(None, f"the second judge {said}: {again.reason}")
        return replace(decision, exchanges=tuple(heard))

    async def _decide_with(
        self, llm: ChatModel, question: str, references: Sequence[str], candidate: str, dataset: str
    ) -> Decision:
        if self._config.two_stage:
            try:
                found = await self._extract(llm, question, candidate)
            except ProviderError as error:
                return Decision(None, f"judge unreachable: {error}")
            if found == "":
                return Decision(False, "the candidate gives no single final answer")
            candidate = found or candidate
        votes = self._config.votes
        if votes == 1:
            return await self._verdict(llm, question, references, candidate, dataset, self._config.temperature, 0)
        drawn = await asyncio.gather(
            *(
                self._verdict(
                    llm,
                    question,
                    references,
                    candidate,
                    dataset,
                    max(self._config.temperature, _VOTE_TEMPERATURE),
                    seed,
                )
                for seed in range(votes)
            )
        )
        yes, no = ([d for d in drawn if d.correct is word] for word in (True, False))
        if len(yes) == len(no):
            return Decision(None, f"{len(yes)} votes against {len(no)}: {drawn[0].reason}")
        winner = max(yes, no, key=len)
        return Decision(winner[0].correct, f"{len(winner)} of {votes} votes: {winner[0].reason}")

    async def _verdict(
        self,
        llm: ChatModel,
        question: str,
        references: Sequence[str],
        candidate: str,
        dataset: str,
        temperature: float,
        seed: int,
    ) -> Decision:
        problem = ""
        system = None if self._embedded else f"{JUDGE_SYSTEM} {self._lines.get(dataset, '')}".rstrip()
        for attempt in range(2):
            max_tokens = self._config.max_tokens * (1 + attempt)
            heat = max(temperature, _RETRY_TEMPERATURE) if attempt else temperature
            try:
                reply, correct = await self._ask(
                    llm,
                    (question, references, candidate),
                    attempt,
                    {
                        "system": system,
                        "temperature": heat,
                        "max_tokens": max_tokens,
                        "seed": seed + attempt * self._config.votes,
                    },
                )
            except ProviderError as error:
                return Decision(None, f"judge unreachable: {error}")
            if reply.finish_reason == "length":
                problem = f"cut off at {max_tokens} tokens"
            elif correct is None:
                problem = f"no verdict in {reply.text[-120:]!r}"
            else:
                return Decision(correct, " ".join(reply.text.split())[:200])
        return Decision(None, f"judge abstained twice, last: {problem}")

    async def _ask(
        self, llm: ChatModel, fields: tuple[str, Sequence[str], str], attempt: int, request: dict[str, Any]
    ) -> tuple[LLMReply, bool | None]:
        """One request; as JSON while the server takes that."""
        if self._structured:
            prompt = build_prompt(*fields, JSON_PROMPT) + JSON_RETRY_LINE * attempt
            try:
                reply = await llm.chat(prompt, **request, response_format=VERDICT_SCHEMA)
                return reply, parse_json_verdict(reply.text)
            except RequestRefused as error:
                logger.warning("the judge's server takes no JSON schema, plain replies from here on: %s", error)
                self._structured = False
        prompt = build_prompt(*fields, JUDGE_PROMPT) + RETRY_LINE * attempt
        reply = await llm.chat(prompt, **request)
        return reply, parse_verdict(reply.text)

    async def _extract(self, llm: ChatModel, question: str, candidate: str) -> str | None:
        """The candidate's final answer; empty for none, None where no answer was copied that stands there."""
        prompt = EXTRACT_PROMPT.format(question=fence(question), candidate=fence(candidate))
        system = None if self._embedded else EXTRACT_SYSTEM
        reply = await llm.chat(prompt, system=system, max_tokens=self._config.max_tokens)
        found = _ANSWER.findall(_without_thinking(reply.text))
        if reply.finish_reason == "length" or not found:
            return None
        answer = " ".join(found[-1].split())
        if answer.strip(".") in ("", "NONE"):
            return ""
        return answer if _squeezed(answer) in _squeezed(fence(candidate, len(candidate) + 1)) else None


def _squeezed(text: str) -> str:
    return re.sub(r"[\s$*]", "", text).casefold()
