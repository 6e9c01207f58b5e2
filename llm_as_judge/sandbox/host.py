"""The sandbox as the rest of the program sees it: run code, run a workflow, judge a solution by its tests.

Each run is one forked child with limits (``confine``), killed with its descendants at its wall-clock
deadline. Whatever foreign code does is an outcome; only the sandbox's own failure is a ``fault``. Await
``start()`` first for the self-test behind ``describe()``; without it the zygote starts with the first run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from llm_as_judge.errors import ConfigError, DataError, SandboxFault
from llm_as_judge.sandbox import frames
from llm_as_judge.sandbox.confine import MODES
from llm_as_judge.sandbox.launcher import Child, Ended, FrameTooLong, Zygote
from llm_as_judge.sandbox.limits import (
    CodeOutcome,
    CodeResult,
    CodeVerdict,
    Confinement,
    Limits,
    OperatorParameters,
    WorkflowResult,
)
from llm_as_judge.sandbox.modes import open_zygote
from llm_as_judge.sandbox.service import BudgetExceeded, CallOperator, OperatorService
from llm_as_judge.types import Outcome

__all__ = [
    "BudgetExceeded",
    "CodeResult",
    "CodeVerdict",
    "Limits",
    "OperatorParameters",
    "Sandbox",
    "WorkflowResult",
]

log = logging.getLogger(__name__)

Converse = Callable[[Child], Awaitable["dict[str, Any] | None"]]

#: Outcomes a child may claim for itself.
_CLAIMS = ("finished", "raised", "memory", "output_limit")


class Sandbox:
    """Runs foreign code. One event loop for its whole life; any number of runs at once.

    Args:
        max_workflows: live workflow children (about 4 MB each); they mostly wait for operators.
        max_code_runs: live children of ``run_code`` and ``verdict``, which mostly compute; by default two
            per core.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        mode: str = "auto",
        *,
        max_workflows: int = 64,
        max_code_runs: int | None = None,
        without: int = 0,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"sandbox.mode must be one of {', '.join(MODES)}, got {mode!r}")
        self.limits = limits or Limits()
        self.mode = mode
        self._without = without
        # Two gates: a workflow holds its place while an operator of its own runs code.
        self._workflow_gate = asyncio.Semaphore(max_workflows)
        self._code_gate = asyncio.Semaphore(max_code_runs or max(2, 2 * (os.cpu_count() or 1)))
        self._zygote: Zygote | None = None
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._confinement: Confinement | None = None

    async def start(self) -> None:
        """Start the zygote in the mode that holds; raises ``ConfigError`` with the cure where none does."""
        await self._running_zygote()

    async def aclose(self) -> None:
        """End every run (``fault``) and every process."""
        self._closed = True
        async with self._starting:  # one that is just coming up would otherwise be left behind
            if self._zygote is not None:
                await self._zygote.aclose()
                self._zygote = None

    async def __aenter__(self) -> Sandbox:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def describe(self) -> Confinement:
        """What was found to be enforced, for the log line at start and for every result's record."""
        if self._confinement is None:
            raise SandboxFault("describe() needs start() first: it tells what a self-test found")
        return self._confinement

    async def run_code(
        self,
        source: str,
        *,
        call: str | None = None,
        args: Sequence[Any] = (),
        stdin: str | None = None,
        limits: Limits | None = None,
    ) -> CodeResult:
        """Execute ``source``; with ``call``, the value is that function's, called with JSON data ``args``."""
        limits = limits or self.limits
        job = {"kind": "code", "source": source, "call": call, "args": list(args), "stdin": stdin}

        async def converse(child: Child) -> dict[str, Any] | None:
            await child.send(_with_limits(job, limits))
            return await child.receive()

        run = await self._run(limits, self._code_gate, converse)
        return CodeResult(
            run.outcome,
            value=run.end.get("value") if run.outcome == "finished" else None,
            stdout=_text(run.end.get("stdout")),
            error=run.error,
            seconds=run.seconds,
            cpu_seconds=run.cpu_seconds,
        )

    async def verdict(
        self, solution: str, tests: str, entry_point: str, *, prelude: str = "", limits: Limits | None = None
    ) -> CodeVerdict:
        """Run hidden tests, ``def check(candidate)`` or plain asserts, on a solution.

        Raises:
            DataError: there is nothing to test with.
        """
        if not tests.strip():
            raise DataError(f"no tests for {entry_point!r}: a verdict without tests would pass anything")
        limits = limits or self.limits
        nonce = secrets.token_hex(16)
        source = f"{prelude}\n{solution}" if prelude else solution
        job = {"kind": "tests", "source": source, "entry_point": entry_point}

        async def converse(child: Child) -> dict[str, Any] | None:
            await child.send(_with_limits(job, limits))
            await child.send({"source": tests, "nonce": nonce})
            return await child.receive()

        run = await self._run(limits, self._code_gate, converse)
        outcome, error = run.outcome, run.error
        if outcome == "finished" and run.end.get("nonce") != nonce:
            outcome, error = "raised", "the run ended before its tests did"
        return CodeVerdict(outcome == "finished", outcome, error=error, seconds=run.seconds)

    async def run_workflow(
        self,
        source: str,
        *,
        problem: str,
        entry_point: str | None,
        call_operator: CallOperator,
        operators: Mapping[str, OperatorParameters] | None = None,
        dataset: str = "",
        limits: Limits | None = None,
    ) -> WorkflowResult:
        """Run a workflow, awaiting ``call_operator(name, init_arguments, arguments)`` for each operator call.

        ``operators`` gives the names there are and where positional arguments go; None allows any name, by
        keyword. A ``WorkflowError`` of ``call_operator`` is raised inside the workflow, ``BudgetExceeded``
        ends the run, any ``InfrastructureError`` makes the outcome ``fault`` whatever the workflow does.
        """
        limits = limits or self.limits
        job = {
            "kind": "workflow",
            "source": source,
            "problem": problem,
            "entry_point": entry_point,
            "dataset": dataset,
            "operators": None if operators is None else {n: asdict(p) for n, p in operators.items()},
        }
        service = OperatorService(call_operator, limits)

        async def converse(child: Child) -> dict[str, Any] | None:
            await child.send(_with_limits(job, limits))
            return await service.serve(child)

        run = await self._run(limits, self._workflow_gate, converse)
        outcome: Outcome = run.outcome
        answer, error = run.end.get("answer"), run.error
        if service.fault is not None:
            outcome, error = "fault", f"{type(service.fault).__name__}: {service.fault}"
        elif run.killed_for == "budget":
            outcome, error = "budget", service.error
        elif outcome == "finished" and not isinstance(answer, str):
            outcome, error = "raised", "the run ended without an answer"
        return WorkflowResult(
            outcome,
            answer=answer if outcome == "finished" else None,
            error=error,
            seconds=run.seconds,
            cpu_seconds=run.cpu_seconds,
        )

    async def _run(self, limits: Limits, gate: asyncio.Semaphore, converse: Converse) -> _Run:
        """One child from fork to reaping; the deadline starts when it has a place."""
        async with gate:
            begin = time.monotonic()
            try:
                child = await (await self._running_zygote()).spawn(limits)
            except SandboxFault as fault:
                return _Run("fault", str(fault), seconds=time.monotonic() - begin)
            timer = asyncio.get_running_loop().call_later(limits.wall_seconds, child.kill, "timeout")
            end: dict[str, Any] | None = None
            error: frames.FrameError | None = None
            try:
                try:
                    end = await converse(child)
                except frames.FrameError as broken:
                    error = broken
                ended = await child.end()
            finally:
                timer.cancel()
                await child.aclose()
            outcome, message = _judge(child, end, error, ended, limits)
            seconds = time.monotonic() - begin
            cpu_seconds = ended.cpu_seconds if ended else 0.0
            return _Run(outcome, message, end or {}, child.killed_for, seconds, cpu_seconds)

    async def _running_zygote(self) -> Zygote:
        """The zygote, started or started anew if it has died."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise RuntimeError("this Sandbox belongs to another event loop: make one for each asyncio.run()")
        async with self._starting:
            if self._closed:
                raise SandboxFault("the sandbox is closed")
            if self._zygote is not None and not self._zygote.alive:
                log.warning("the sandbox's zygote (pid %d) died; starting another", self._zygote.pid)
                await self._zygote.aclose()
                self._zygote = None
            if self._zygote is None:
                self._zygote, self._confinement = await open_zygote(self.mode, self._without)
                self.mode = self._confinement.mode  # one that died is started anew in the same mode
            return self._zygote


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: CodeOutcome
    error: str = ""
    end: Mapping[str, Any] = field(default_factory=dict)  # the child's last frame, not to be trusted
    killed_for: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def _judge(
    child: Child,
    end: Mapping[str, Any] | None,
    broken: frames.FrameError | None,
    ended: Ended | None,
    limits: Limits,
) -> tuple[CodeOutcome, str]:
    """Outcome and error of a run from everything seen of it."""
    if child.killed_for == "timeout":
        return "timeout", f"no result within {limits.wall_seconds:g} s"
    if end is not None:
        claim = end.get("end")
        if claim in _CLAIMS:
            return claim, _text(end.get("error"))
        return "raised", "the run ended with a message that is no result"
    if isinstance(broken, FrameTooLong):
        return "output_limit", str(broken)
    if broken is not None:
        return "raised", f"the run sent something that is no message: {broken}"
    if ended is None:
        return "fault", "the zygote died"
    if not child.confined:
        return "fault", f"the child could not be set up, status {ended.status}"
    if child.killed_for == "lingering":
        return "raised", "it closed its connection to the host without a result"
    if ended.status == -signal.SIGXCPU or (ended.status == -signal.SIGKILL and ended.cpu_seconds >= limits.cpu_seconds):
        return "timeout", f"over {limits.cpu_seconds} s of CPU time"
    if ended.status == -signal.SIGKILL and not child.killed_for:
        return "memory", "killed by the system"
    if ended.status < 0:
        return "raised", f"the process died of signal {-ended.status}"
    return "raised", f"the process exited with status {ended.status} before it had a result"


def _with_limits(job: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    return {**job, "output_bytes": limits.output_bytes, "frame_bytes": limits.frame_bytes}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
