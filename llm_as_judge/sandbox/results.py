"""Results of sandboxed runs and the confinement that was found, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

CodeOutcome = Literal["finished", "raised", "timeout", "memory", "output_limit", "fault"]

#: Characters kept of an answer, a prompt or a reply, and of an error.
KEPT, KEPT_OF_ERROR = 50_000, 2_000


class OperatorParameters(NamedTuple):
    """Parameter names of a workflow's operator, and variants that other versions of it accept."""

    call: tuple[str, ...]  # of ``await self.op(...)``
    init: tuple[str, ...] = ()  # of ``operator.Op(self.llm, ...)``, after the LLM
    forms: tuple[tuple[str, ...], ...] = ()  # other parameters of ``await self.op(...)``
    spellings: Mapping[str, str] = {}  # other names of the result's keys


@dataclass(frozen=True, slots=True)
class CodeResult:
    """``value`` is JSON data, or ``str()`` of the returned value if JSON has no such type."""

    outcome: CodeOutcome
    value: Any = None
    stdout: str = ""
    error: str = ""  # "ValueError: message (line 3)"
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """``outcome`` is ``finished`` if all tests passed, ``raised`` if one failed, ``fault`` if there is no verdict.

    ``mode`` is ``split`` if solution and tests ran in different processes, ``nonce`` if they had to share one. A
    verdict is ``weak`` if a solution made to deceive could have forged it: in mode ``nonce``, in a sandbox without
    isolation, or where it depends on changed arguments.
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
    """What confines a child, as found by attempts made from inside one."""

    mode: str
    layers: tuple[str, ...]
    probes: Mapping[str, str] = field(default_factory=dict)  # attempt -> "blocked" or "open"
    refused: Mapping[str, str] = field(default_factory=dict)  # stricter mode that does not work here -> why

    @property
    def open(self) -> tuple[str, ...]:
        return tuple(name for name, state in self.probes.items() if state != "blocked")

    @property
    def summary(self) -> str:
        """One line; ``str()`` lists every attempt."""
        if self.mode == "unsafe":
            return "sandbox: unsafe, NO ISOLATION, results are marked"
        left = f", open: {', '.join(self.open)}" if self.open else ""
        blocked = f"{len(self.probes) - len(self.open)} of {len(self.probes)} escape attempts were blocked"
        return f"sandbox: {self.mode}, {blocked}{left} (llm-as-judge doctor lists them)"

    def __str__(self) -> str:
        parts = [
            f"sandbox: {self.mode}{' (NO ISOLATION, results are marked)' if self.mode == 'unsafe' else ''}",
            f"enforced: {', '.join(self.layers)}",
            f"blocked: {', '.join(name for name in self.probes if name not in self.open) or 'nothing'}",
            f"not blocked: {', '.join(self.open) or 'none of the attempts'}",
            *(f"{mode} unavailable: {reason}" for mode, reason in self.refused.items()),
        ]
        return "; ".join(parts)
