"""The LLM judge: is the candidate the same answer as the reference?

Every field of the prompt is fenced (``prompts.fence``). The last verdict of the reply counts, never one inside the
reasoning. If a reply was cut off or has no verdict, the judge is asked once more with more tokens and another wording
(an identical request cannot help at temperature 0), then it abstains. An abstention is never a wrong answer.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.errors import PromptRefused, ProviderError, RequestRefused
from llm_as_judge.judging import prompts
from llm_as_judge.judging.prompts import fence
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.types import Exchange

logger = logging.getLogger(__name__)

_TAG = "<true_false>"
_VERDICT = re.compile(r"<true_false>\s*(True|False)\b", re.IGNORECASE)
_RETRY_TEMPERATURE = 0.3
#: Characters of a candidate that is refused, or whose verdicts are unreadable, at a greater length.
_SHORTER = (500, 100)


@dataclass(frozen=True, slots=True)
class Decision:
    """``correct`` is None if the judge abstained; ``reason`` says why, or what it compared."""

    correct: bool | None
    reason: str = ""
    exchanges: tuple[Exchange, ...] = ()  # all requests made for it
    unreadable: bool = False  # the model replied, but without a verdict


@dataclass(frozen=True, slots=True)
class _Case:
    """One comparison by one model; ``heard`` collects the exchanges without the system prompt."""

    llm: ChatModel
    question: str
    references: Sequence[str]
    candidate: str
    dataset: str
    heard: list[Exchange]

    async def chat(self, prompt: str, **request: Any) -> Exchange:
        reply = await self.llm.chat(prompt, **request)
        self.heard.append(reply)
        return reply


def parse_verdict(text: str) -> bool | None:
    """The word of the last ``<true_false>`` outside ``<think>``; None without one. The closing tag is optional."""
    text = _without_thinking(text)
    found = _VERDICT.match(text, max(text.lower().rfind(_TAG), 0))
    return None if found is None else found.group(1).lower() == "true"


def parse_json_verdict(text: str) -> bool | None:
    """``true_false`` of a reply that is one JSON object; else None."""
    try:
        loaded = json.loads(_without_thinking(text).strip().removeprefix("```json").removesuffix("```"))
    except (ValueError, RecursionError):
        return None
    said = loaded.get("true_false") if isinstance(loaded, dict) else None
    return said if isinstance(said, bool) else None


def _without_thinking(text: str) -> str:
    return text.rpartition("</think>")[2].partition("<think>")[0]


class LLMJudge:
    """Asks ``llm`` and, if given, ``second``: True needs both, a disagreement is an abstention.

    The embedded judge is asked as it was trained: no system prompt, no schema. Raises ``ConfigError`` if
    ``config.prompts`` cannot be read.
    """

    def __init__(self, config: JudgeConfig, llm: ChatModel, second: ChatModel | None = None) -> None:
        self._config = config
        self._llm = llm
        self._second = second
        self._lines = prompts.load_lines(config.prompts)
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
            candidate = fence(candidate) + prompts.CUT_OFF
        case = _Case(self._llm, question, references, candidate, dataset, [])
        decision = await self._fitting(case)
        if self._second is not None and decision.correct is True:
            again = await self._fitting(replace(case, llm=self._second))
            if again.correct is not True:
                said = "abstained" if again.correct is None else "disagrees"
                decision = Decision(None, f"the second judge {said}: {again.reason}")
        return replace(decision, exchanges=tuple(case.heard))

    async def _fitting(self, case: _Case) -> Decision:
        """The verdict on the candidate, cut to what the model reads and can reply to.

        If it is refused at any length, but the same request without a candidate is answered, the answer is at fault.
        """
        decision, refused = Decision(None), ""
        for longest in (prompts.LONGEST_FIELD, *_SHORTER):
            if refused or decision.reason:
                if len(case.candidate) <= longest:
                    continue
                case = replace(case, candidate=fence(case.candidate, longest))
            try:
                decision, refused = await self._decide(case), ""
            except PromptRefused as error:
                refused = str(error)
                continue
            if not decision.unreadable:
                return decision
        if not refused:
            return decision
        try:
            answered = (await self._decide(replace(case, candidate="-"))).correct is not None
        except PromptRefused:
            answered = False
        return Decision(False if answered else None, f"the judge refuses this answer: {refused}")

    async def _decide(self, case: _Case) -> Decision:
        """One verdict, asked for at most twice."""
        problem = ""
        system = f"{prompts.JUDGE_SYSTEM} {self._lines.get(case.dataset, '')}".rstrip()
        temperature = self._config.temperature
        for attempt in range(2):
            request = {
                "system": None if self._embedded else system,
                "temperature": max(temperature, _RETRY_TEMPERATURE) if attempt else temperature,
                "max_tokens": self._config.max_tokens * (1 + attempt),
                "seed": attempt,
            }
            try:
                reply, correct = await self._ask(case, attempt, request)
            except PromptRefused:
                raise
            except ProviderError as error:
                return Decision(None, f"judge unreachable: {error}")
            if reply.finish_reason == "length":
                problem = f"cut off at {request['max_tokens']} tokens"
            elif correct is None:
                problem = f"no verdict in {reply.reply[-120:]!r}"
            else:
                return Decision(correct, " ".join(reply.reply[:2000].split())[:200])
        return Decision(None, f"judge abstained twice, last: {problem}", unreadable=True)

    async def _ask(self, case: _Case, attempt: int, request: dict[str, Any]) -> tuple[Exchange, bool | None]:
        """One request, with a JSON schema until the server refuses one."""
        data = case.question, case.references, case.candidate
        if self._structured:
            prompt = prompts.build_prompt(*data, prompts.JSON_PROMPT) + prompts.JSON_RETRY_LINE * attempt
            try:
                reply = await case.chat(prompt, **request, response_format=prompts.VERDICT_SCHEMA)
                return reply, parse_json_verdict(reply.reply)
            except RequestRefused as error:
                logger.warning("the judge's server refuses JSON schemas, plain replies from here on: %s", error)
                self._structured = False
        reply = await case.chat(prompts.build_prompt(*data) + prompts.RETRY_LINE * attempt, **request)
        return reply, parse_verdict(reply.reply)
