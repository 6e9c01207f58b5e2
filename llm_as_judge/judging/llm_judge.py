"""The LLM judge: is the candidate the same answer as the reference?

The judge first copies the final answer out of a long candidate (``extracting``); the host compares numbers
(``answers.typed``), and the judge only text, as two short strings. Every field of a prompt is fenced
(``prompts.fence``). A reply must have exactly one verdict, outside the reasoning. If it was cut off or has none, the
judge is asked once more with more tokens and another wording (an identical request cannot help at temperature 0), then
it abstains. An abstention is never a wrong answer; what an answer alone causes is (``asking.fitting``).
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_as_judge.answers.extraction import extract_answer
from llm_as_judge.answers.nonanswers import refused
from llm_as_judge.answers.typed import compare_typed, is_copied
from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.errors import PromptRefused
from llm_as_judge.judging import extracting, prompts
from llm_as_judge.judging.asking import STOPPED, Asking, fitting, json_objects, without_thinking
from llm_as_judge.judging.prompts import fence
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.types import Exchange, Verdict

logger = logging.getLogger(__name__)

_VERDICT = re.compile(r"<true_false>(.*?)(?:</true_false>|(?=<true_false>)|\Z)", re.IGNORECASE | re.DOTALL)
_MARK = re.compile(r"[{}]|</?true_false>", re.IGNORECASE)
_TAGS = re.compile(r"</?\w+>|<\|\w+\|>")
_WORDS = {"true": True, "false": False}
#: A line that may follow a verdict: no words, or an offer or short question to the reader that denies nothing.
_OFFER = re.compile(r"(?i)\W*|\W*\w+(?: \w+)?\?\W*|(?!.*(?:\b(?:true|false|not?)\b|n['\u2019]t\b)).*\byou\b.*")
_DENIED = re.compile(r"\b(?:can)?not\b|\bnever\b|n[\'\u2019]t\b", re.IGNORECASE)
#: Words of a candidate that is compared as it is.
_SHORT = 3
#: Characters of a candidate that is refused, or whose verdicts are unreadable, at a greater length.
_SHORTER = (500, 100)


@dataclass(frozen=True, slots=True)
class _Case:
    """One comparison by one model; ``heard`` collects the exchanges without the system prompt."""

    llm: ChatModel
    question: str
    references: tuple[str, ...]
    candidate: str
    dataset: str
    heard: list[Exchange]
    cut_off: bool = False


def parse_verdict(text: str) -> bool | None:
    """Read the word in ``<true_false>`` outside ``<think>``; None unless it is one verdict. The end tag is optional."""
    said = {found.strip(" .*\n").casefold() for found in _VERDICT.findall(without_thinking(text))}
    return said == {"true"} if said in ({"true"}, {"false"}) else None


def parse_json_verdict(text: str) -> bool | None:
    """Read ``true_false`` of the one JSON object in a reply, whatever is around it; None unless it is one verdict."""
    said = [found["true_false"] for found in json_objects(text) if "true_false" in found]
    return said[0] if len(said) == text.count('"true_false"') == 1 and isinstance(said[0], bool) else None


def _read(text: str) -> bool | None:
    """Read the verdict of tags and JSON; None if words but an offer to the reader follow it, or deny it before."""
    text = without_thinking(text)
    forms = ((parse_json_verdict, '"true_false"'), (parse_verdict, "<true_false>"))
    said = {parse(text) for parse, mark in forms if mark in text.casefold()}
    rest = _TAGS.sub(" ", re.split("[>}]", text[text.casefold().rfind("true_false") :], maxsplit=1)[-1])
    (line, *after), before = rest.split("\n"), re.split(r"[.,;:>\n]", _MARK.split(text)[0])
    other = {_WORDS[word] for each in before if (word := each.strip(" *\"'").casefold()) in _WORDS} - said
    whole = not other and re.sub(r"\W", "", line).casefold() in ("", *_WORDS) and not _DENIED.search(before[-1])
    return said.pop() if whole and len(said) == 1 and all(map(_OFFER.fullmatch, after)) else None


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
        self._asking = Asking(config)
        self._extracts: bool | None = None
        self._probing = asyncio.Lock()

    async def decide(
        self, question: str, references: Sequence[str], candidate: str, dataset: str = "", cut_off: bool = False
    ) -> Verdict:
        """Decide with a reason and all requests; a provider that does not answer is an abstention."""
        if cut_off:
            candidate = fence(candidate) + prompts.CUT_OFF
        case = _Case(self._llm, question, tuple(references), candidate, dataset, [], cut_off)
        verdict, compared = await self._fitting(case)
        if self._second is not None and verdict.correct is True and compared is not None:
            again, _ = await self._fitting(replace(compared, llm=self._second), hosted=False)
            if again.correct is not True:
                said = "abstained" if again.correct is None else "disagrees"
                verdict = Verdict(None, "llm", f"the second judge {said}: {again.reason}")
        return Verdict(verdict.correct, "llm", verdict.reason, tuple(case.heard))

    async def _fitting(self, case: _Case, hosted: bool = True) -> tuple[Verdict, _Case | None]:
        """Judge the candidate, cut to what the model reads and can reply to; also returns the case that it compared.

        None if the host decided, who looks first; a second judge (``hosted`` False) gets what was compared.
        """
        compares = False

        async def ask(longest: int) -> tuple[tuple[Verdict, _Case | None] | None, str]:
            nonlocal compares
            cut = case.candidate if longest == prompts.LONGEST_FIELD else fence(case.candidate, longest)
            one, compares = replace(case, candidate=cut), not hosted
            known = await self._host(one) if hosted else one
            if isinstance(known, Verdict):
                return (known, None), known.reason
            compares = True
            verdict = await (self._compared if hosted else self._decide)(known)
            return None if verdict.correct is None else (verdict, known), verdict.reason

        async def control(number: int) -> tuple[bool | None, str]:
            if compares:
                return (await self._decide(replace(case, candidate=f"-{number}"))).correct, ""
            if self._extracts:
                await self._extracted(replace(case, candidate=f"{number}. {prompts.CONTROL}"))
            return self._extracts, ""

        found, why = await fitting(ask, len(case.candidate), (prompts.LONGEST_FIELD, *_SHORTER), control)
        return found if isinstance(found, tuple) else (Verdict(found, "llm", why), None)

    async def _host(self, case: _Case) -> Verdict | _Case:
        """Find what the host decides, or the case to ask about, with the answer copied out of the candidate."""
        if case.references == ("unanswerable",):
            return case
        if is_copied(case.candidate, case.question, case.references):
            return Verdict(False, "llm", "no answer but the question's own words")
        if self._embedded:  # trained on one prompt; its True is believed, another number is not shown to it
            said = extract_answer(case.candidate, "math")
            known = await asyncio.to_thread(compare_typed, said, case.references, case.question)
            if known is False and not case.cut_off:
                return Verdict(False, "llm", f"{said[:100]!r} is another number")
            return case
        if not self._config.extract or not await self._can_extract():
            return case
        copy = await self._extracted(case) if len(case.candidate.split()) > _SHORT else case.candidate
        if not copy:
            return Verdict(False, "llm", "no answer could be copied out of the reply")
        if refused((copy,), case.references, case.question) or is_copied(copy, case.question, case.references):
            return Verdict(False, "llm", f"no answer but {copy[:100]!r}")
        if case.cut_off:
            return replace(case, candidate=copy.removesuffix(prompts.CUT_OFF) + prompts.CUT_OFF)
        known = await asyncio.to_thread(compare_typed, copy, case.references, case.question)
        if known is None:
            return replace(case, candidate=copy)
        return Verdict(known, "llm", f"the number in {copy[:100]!r}")

    async def _can_extract(self) -> bool:
        """Tell whether the judge can copy an answer out of a reply; asked once."""
        async with self._probing:
            if self._extracts is None:
                question, reply, answer = prompts.PROBE
                try:
                    copy = await self._extracted(_Case(self._llm, question, (), reply, "", []))
                except PromptRefused:
                    copy = ""
                self._extracts = copy != "" and compare_typed(copy, (answer,)) is not False
                if not self._extracts:
                    logger.warning(
                        "the judge did not copy %r out of %r; it sees whole replies, which it may believe. "
                        "Use a larger model, or judge.extract=false to silence this",
                        answer,
                        reply,
                    )
        return self._extracts

    async def _extracted(self, case: _Case) -> str:
        """Copy the final answer in the candidate; empty if none. Raises ``PromptRefused`` for two replies without."""
        for attempt in range(2):
            prompt = extracting.build(case.question, case.candidate, attempt)
            reply = await case.llm.chat(prompt, **self._asking.request(attempt, prompts.EXTRACT_SYSTEM))
            case.heard.append(reply)
            copy = extracting.read_copy(reply.reply, case.candidate)
            whole = STOPPED.search(reply.finish_reason) and reply.reply.strip()
            if whole and (copy == "" or extracting.is_part(copy, case.candidate)):
                return copy
        raise PromptRefused(f"judge abstained: its copies of the answer were cut off or no part of it: {copy[:100]!r}")

    async def _compared(self, case: _Case) -> Verdict:
        """Ask for the verdict; True only if the judge does not call the answer the same as any other reference."""
        verdict = await self._decide(case)
        if not verdict.correct or self._embedded or not self._config.extract:
            return verdict
        any_other = await self._decide(replace(case, references=(prompts.DECOY,)))
        return replace(verdict, correct=False, reason="the same as any reference") if any_other.correct else verdict

    async def _decide(self, case: _Case) -> Verdict:
        """Ask for one verdict, at most twice."""
        data = case.question, case.references, case.candidate
        system = f"{prompts.JUDGE_SYSTEM} {self._lines.get(case.dataset, '')}".rstrip()
        correct, said = await self._asking.verdict(
            case.llm,
            case.heard,
            None if self._embedded else system,
            (prompts.build_prompt(*data, prompts.JSON_PROMPT), prompts.build_prompt(*data)),
            prompts.RETRY_LINE,
            prompts.VERDICT_SCHEMA,
            _read,
        )
        return Verdict(correct, "llm", said)
