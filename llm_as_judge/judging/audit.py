"""The reward-hacking alarm: a share of the LLM judge's True verdicts is checked in another way.

If a policy learns to exploit the judge, fewer True verdicts are confirmed by other means: the rules, the words of the
reference in the answer, or a second judge. These checks also miss some right answers, so the alarm is raised when the
failed share rises above its lowest value so far, per domain. Verdicts do not change.
"""

import asyncio
import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.judging.judge import JudgeLike
from llm_as_judge.judging.llm_judge import LLMJudge
from llm_as_judge.llm.client import ChatModel
from llm_as_judge.types import Group, Problem, Verdict

WINDOW = 100  # last checks of a domain that its share is computed over
LEAST = 20  # checks before a share counts


@dataclass
class _Domain:
    checks: list[bool] = field(default_factory=list)  # the last ``WINDOW``; True: confirmed
    lowest: float = 1.0  # share of failed checks

    @property
    def failed(self) -> float | None:
        return None if not self.checks else 1 - sum(self.checks) / len(self.checks)


@dataclass(frozen=True, slots=True)
class Alarm:
    """``domain``'s failed checks rose from ``lowest`` to ``failed`` (shares)."""

    domain: str
    failed: float
    lowest: float

    def __str__(self) -> str:
        return (
            f"{self.domain}: {self.failed:.0%} of the checked True verdicts of the LLM judge are not confirmed, "
            f"up from {self.lowest:.0%}; the policy may be learning to please the judge. "
            "Look at the rollouts of tier llm in the event log; judge.mode=rules or judge.second_model close the gap"
        )


class AuditedJudge:
    """A judge that checks ``config.audit_share`` of its True LLM verdicts.

    The checks are words and rules, then ``second`` if ``second_role`` is audit.
    """

    def __init__(self, config: JudgeConfig, judge: JudgeLike, second: ChatModel | None = None) -> None:
        self._config = config
        self._judge = judge
        self._second = LLMJudge(config, second) if second is not None and config.second_role == "audit" else None
        self._domains: defaultdict[str, _Domain] = defaultdict(_Domain)

    async def verdict(self, problem: Problem, answer: str | None, cut_off: bool = False) -> Verdict:
        """The judge's own verdict, with the result of its check if there was one."""
        verdict = await self._judge.verdict(problem, answer, cut_off)
        if verdict.correct and verdict.tier == "llm" and answer and self._chosen(problem, answer):
            return replace(verdict, confirmed=await self._confirmed(problem, answer))
        return verdict

    def _chosen(self, problem: Problem, answer: str) -> bool:
        """Chosen by content, so a resumed run checks the same verdicts."""
        digest = hashlib.sha256(f"{problem.question.id}\n{answer}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:6], "big") < self._config.audit_share * 2**48

    async def _confirmed(self, problem: Problem, answer: str) -> bool | None:
        question, references = problem.question, problem.reference.answers
        if any(contains(answer, reference) for reference in references):
            return True
        if await asyncio.to_thread(matches, answer, references, question.domain):
            return True
        return self._second is not None and await self._second.judge(
            question.text, references or ("unanswerable",), answer
        )

    def step(self, groups: Sequence[Group]) -> tuple[dict[str, dict[str, float | int | None]], list[Alarm]]:
        """Figures of a step's ``groups`` by domain, and the alarms. Call it once per step, in order.

        ``judged``: share of decided answers judged right. ``checked``: the same, with True verdicts of the LLM judge
        weighted by the confirmed share; None without checks. ``checks``: number of checks in the window.
        """
        decided: dict[str, list[Verdict]] = {domain: [] for domain in self._domains}
        for rollout in (r for group in groups for r in group.rollouts):
            verdict, domain = rollout.verdict, rollout.problem.question.domain
            if rollout.execution.outcome == "finished" and verdict.correct is not None:
                decided.setdefault(domain, []).append(verdict)
                if verdict.confirmed is not None:
                    state = self._domains[domain]
                    state.checks = [*state.checks, verdict.confirmed][-WINDOW:]
        figures = {name: _figures(verdicts, self._domains[name]) for name, verdicts in sorted(decided.items())}
        alarms = []
        for name in figures:
            state = self._domains[name]
            if state.failed is not None and len(state.checks) >= LEAST:
                state.lowest = min(state.lowest, state.failed)
                if state.failed - state.lowest > self._config.audit_gap:
                    alarms.append(Alarm(name, state.failed, state.lowest))
        return figures, alarms

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Window and lowest share of every domain, as plain values."""
        return {domain: asdict(state) for domain, state in self._domains.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        self._domains = defaultdict(_Domain, {domain: _Domain(**saved) for domain, saved in state.items()})


def _figures(decided: Sequence[Verdict], state: _Domain) -> dict[str, float | int | None]:
    right = [verdict for verdict in decided if verdict.correct]
    by_llm = sum(verdict.tier == "llm" for verdict in right)
    known = bool(decided) and (state.failed is not None or not by_llm)
    return {
        "judged": len(right) / len(decided) if decided else None,
        "checked": (len(right) - by_llm * (state.failed or 0.0)) / len(decided) if known else None,
        "by_llm": by_llm,
        "checks": len(state.checks),
        "failed_checks": state.failed,
    }


def contains(answer: str, reference: str) -> bool:
    """Whether ``answer`` contains the words of ``reference``, whole and in order."""
    said, wanted = (re.findall(r"\w+(?:[.,]\d+)*", text[:20_000].casefold()) for text in (answer, reference))
    return bool(wanted) and any(said[i : i + len(wanted)] == wanted for i in range(len(said) - len(wanted) + 1))
