"""What a sandboxed run came to, and what holds it: frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llm_as_judge.types import Outcome

CodeOutcome = Literal["finished", "raised", "timeout", "memory", "output_limit", "fault"]


#: Characters kept of an answer, a prompt or a reply, and of an error: a run can make each as long as a message may be.
KEPT, KEPT_OF_ERROR = 50_000, 2_000


def cut(text: str, limit: int = KEPT) -> str:
    """At most ``limit`` characters: a mark takes the place of the middle of a longer text."""
    if len(text) <= limit:
        return text
    half = (limit - 60) // 2  # the mark takes the rest
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


@dataclass(frozen=True, slots=True)
class OperatorParameters:
    """Names that positional arguments of a workflow's operator are given to, and what other versions of it take."""

    call: tuple[str, ...]  # of ``await self.op(...)``
    init: tuple[str, ...] = ()  # of ``operator.Op(self.llm, ...)``, after the LLM
    forms: tuple[tuple[str, ...], ...] = ()  # other parameters of ``await self.op(...)``
    spellings: Mapping[str, str] = field(default_factory=dict)  # other names of the result's keys

    def as_plain(self) -> dict[str, Any]:
        """As the workflow's process is told."""
        return {"call": self.call, "init": self.init, "forms": self.forms, "spellings": self.spellings}


@dataclass(frozen=True, slots=True)
class CodeResult:
    """``value`` is JSON data, or ``str()`` of what the function returned where JSON has no such type."""

    outcome: CodeOutcome
    value: Any = None
    stdout: str = ""
    error: str = ""  # "ValueError: message (line 3)"
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """``answer`` and ``error`` are ``cut``."""

    outcome: Outcome
    answer: str | None = None
    error: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """``outcome``: ``finished`` when all tests passed, ``raised`` when one failed; ``fault`` is no verdict.

    ``mode``: ``split`` when solution and tests ran in different processes; ``nonce`` when they had to share one, so
    that a solution bent on it could have forged the result. That, or a sandbox that isolates nothing, is ``weak``.
    """

    passed: bool
    outcome: CodeOutcome
    mode: Literal["split", "nonce"] = "nonce"
    weak: bool = True
    error: str = ""
    obstacle: str = ""  # why the tests could not be split
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a child is really held by: ``probes`` are attempts made from inside one."""

    mode: str
    layers: tuple[str, ...]
    probes: Mapping[str, str] = field(default_factory=dict)  # attempt -> "blocked" or "open"
    refused: Mapping[str, str] = field(default_factory=dict)  # tighter mode that does not hold -> why

    @property
    def open(self) -> tuple[str, ...]:
        """What a child was able to do."""
        return tuple(name for name, state in self.probes.items() if state != "blocked")

    @property
    def holds(self) -> bool:
        """Everything was tried and nothing succeeded."""
        return bool(self.probes) and not self.open

    @property
    def summary(self) -> str:
        """One line; ``str()`` lists every attempt."""
        if self.mode == "unsafe":
            return "sandbox: unsafe, NO ISOLATION, results are marked"
        found = f"{len(self.probes) - len(self.open)} of {len(self.probes)} ways out that were tried are closed"
        left = f", open: {', '.join(self.open)}" if self.open else ""
        return f"sandbox: {self.mode}, {found}{left} (llm-as-judge doctor lists them)"

    def __str__(self) -> str:
        blocked = [name for name, state in self.probes.items() if state == "blocked"]
        parts = [
            f"sandbox: {self.mode}{' (NO ISOLATION, results are marked)' if self.mode == 'unsafe' else ''}",
            f"enforced: {', '.join(self.layers) or 'nothing'}",
            f"blocked: {', '.join(blocked) or 'nothing'}",
            f"not blocked: {', '.join(self.open) or ('nothing of what was tried' if self.probes else 'unknown')}",
            *(f"{mode} unavailable: {reason}" for mode, reason in self.refused.items()),
        ]
        return "; ".join(parts)
