"""The sandbox: run code, run a workflow, judge a solution by its tests.

Each run is one forked child with limits on CPU and memory (``guest.confine``), killed with its descendants at its
wall-clock deadline (``children``). Whatever foreign code does is an outcome; only a sandbox failure is a ``fault``.

An active self-test chooses the mode: the strictest in which no attempt to break out succeeds. A mode counts by what its
self-test found, not by what was configured. If no mode works, the sandbox refuses to start and says what would help;
``unsafe`` is used only when asked for by name.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from llm_as_judge.config.schema import SandboxConfig, WorkflowConfig
from llm_as_judge.errors import ConfigError, SandboxFault
from llm_as_judge.files import cut
from llm_as_judge.sandbox.children import ChildRun, Clock, Converse, as_text, run_children
from llm_as_judge.sandbox.code_verdict import judge
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.sandbox.operator_calls import BudgetExceeded, CallOperator, OperatorService
from llm_as_judge.sandbox.results import KEPT, KEPT_OF_ERROR, CodeResult, CodeVerdict, Confinement, OperatorParameters
from llm_as_judge.sandbox.zygote_client import GUEST, Child, ZygoteClient
from llm_as_judge.types import Execution, Outcome, Question

__all__ = ["BudgetExceeded", "CodeResult", "CodeVerdict", "OperatorParameters", "Sandbox"]

log = logging.getLogger(__name__)

_PROBE_SECONDS = 20.0
_MAX_WORKFLOWS = 256  # about 4 MB each

#: Modes, strictest first, and what each needs.
_NEEDS = {
    "full": "install bubblewrap and allow it user namespaces, or use sandbox.mode=auto",
    "standard": "it needs Linux 5.13 or later with Landlock and seccomp; use sandbox.mode=auto, or no-open",
    "no-open": "it needs Linux with seccomp on x86_64 or aarch64",
}


class Sandbox:
    """Runs foreign code: any number of runs at once, on one event loop for its whole life.

    ``start()``, or the first run, chooses the mode by a self-test, whose result ``describe()`` returns.
    ``max_code_runs`` limits concurrent runs of ``run_code`` and ``verdict``, which mostly compute (default: two per
    core); ``without`` are bits of layers (``guest.confine``) to leave out, for tests of the layers.
    """

    def __init__(self, config: SandboxConfig, *, max_code_runs: int | None = None, without: int = 0) -> None:
        self.config = config
        self.mode: str = config.mode  # the chosen one, once started
        self._without = without
        # Two gates: a workflow, which mostly waits for operators, keeps its place while one of them runs code.
        self._workflow_gate = asyncio.Semaphore(_MAX_WORKFLOWS)
        self._code_gate = asyncio.Semaphore(max_code_runs or max(2, 2 * (os.cpu_count() or 1)))
        self._zygote: ZygoteClient | None = None
        self._starting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._confinement: Confinement | None = None

    async def aclose(self) -> None:
        """End every run (outcome ``fault``) and every process."""
        self._closed = True
        async with self._starting:  # wait for a zygote that is just starting
            if self._zygote is not None:
                await self._zygote.aclose()
                self._zygote = None

    async def __aenter__(self) -> "Sandbox":
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def describe(self) -> Confinement:
        """Describe what the self-test found to be enforced."""
        if self._confinement is None:
            raise SandboxFault("describe() needs start() first, which runs the self-test")
        return self._confinement

    async def run_code(
        self, source: str, *, call: str | None = None, args: Sequence[Any] = (), prelude: str = ""
    ) -> CodeResult:
        """Execute ``prelude`` and ``source``; with ``call``, the value is that function's for ``args`` (JSON data)."""
        job = {"kind": "code", "source": source, "prelude": prelude, "call": call, "args": list(args)}

        async def converse(children: Sequence[Child], clock: Clock) -> None:
            await children[0].send(job)
            await children[0].receive()

        (run,) = await self._run(self._code_gate, converse, 1, False)
        value, stdout = run.end.get("value") if run.outcome == "finished" else None, as_text(run.end.get("stdout"))
        return CodeResult(run.outcome, value, stdout, run.error, run.seconds, run.cpu_seconds)

    async def verdict(self, solution: str, tests: str, entry_point: str, *, prelude: str = "") -> CodeVerdict:
        """Run hidden tests on a solution (``code_verdict.judge``), both after ``prelude``, which is trusted code."""
        run = partial(self._run, self._code_gate)
        seconds = self.config.cpu_seconds
        return await judge(run, solution, tests, entry_point, prelude, seconds, isolated=self.mode != "unsafe")

    async def run_workflow(
        self,
        source: str,
        question: Question,
        config: WorkflowConfig,
        call_operator: CallOperator,
        operators: Mapping[str, OperatorParameters],
        prompt: str = "",
        modules: Mapping[str, aflow.Role] = {},
    ) -> Execution:
        """Run a workflow on ``question``, awaiting ``call_operator(name, init_arguments, arguments)`` for each call.

        A ``WorkflowError`` of ``call_operator`` is raised inside the workflow, ``BudgetExceeded`` ends the run, and any
        ``InfrastructureError`` makes the outcome ``fault`` whatever the workflow does. ``prompt`` is the text of the
        ``prompt.py`` that a graph imports. ``modules`` are those of AFlow that both import: they are read here, as a
        child pays for every page it touches.
        """
        job = {
            "kind": "workflow",
            "source": source,
            "prompt": prompt,
            "modules": modules,
            "problem": question.statement,
            "entry_point": question.entry_point,
            "dataset": question.dataset,
            "operators": {name: parameters._asdict() for name, parameters in operators.items()},
        }
        service = OperatorService(call_operator, config)

        async def converse(children: Sequence[Child], clock: Clock) -> None:
            await children[0].send(job)
            await service.serve(children[0], clock)

        (run,) = await self._run(self._workflow_gate, converse, 1, False)
        outcome: Outcome = run.outcome
        answer, error = run.end.get("answer"), run.error
        if service.fault is not None:
            outcome, error = "fault", f"{type(service.fault).__name__}: {service.fault}"
        elif service.over_budget:
            outcome, error = "budget", service.over_budget
        elif outcome == "finished" and not isinstance(answer, str):
            outcome, error = "raised", "the run ended without an answer"
        kept = cut(answer, KEPT) if outcome == "finished" and isinstance(answer, str) else None
        return Execution(outcome, kept, (), cut(error, KEPT_OF_ERROR), run.seconds, run.cpu_seconds)

    async def _run(self, gate: asyncio.Semaphore, converse: Converse, count: int, numpy: bool) -> list[ChildRun]:
        """Run ``count`` children once, the last with ``numpy``; the deadline starts when ``gate`` has admitted it."""
        async with gate:
            try:
                zygote = await self.start()
            except SandboxFault as fault:
                return [ChildRun("fault", str(fault))] * count
            return await run_children(zygote, self.config, converse, count, numpy)

    async def start(self) -> ZygoteClient:
        """Start the zygote on first use and after it died; ``ConfigError`` with the cure if the mode fails here."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        if loop is not asyncio.get_running_loop():
            raise RuntimeError("this Sandbox belongs to another event loop: make one for each asyncio.run()")
        async with self._starting:
            if self._closed:
                raise SandboxFault("the sandbox is closed")
            if self._zygote is not None and not self._zygote.alive:
                log.warning("the sandbox's zygote (pid %d) died; starting another", self._zygote.pid)
                await self._zygote.aclose()
                self._zygote = None
            if self._zygote is None:
                try:
                    self._zygote, found = await open_zygote(self.mode, self._without)
                except ConfigError as error:
                    if self._confinement is None:
                        raise
                    raise SandboxFault(str(error)) from None  # it worked here before
                self._confinement = self._confinement or found
                self.mode = found.mode  # also for a zygote that is started again
            return self._zygote


async def open_zygote(mode: str, without: int = 0) -> tuple[ZygoteClient, Confinement]:
    """Start a zygote in ``mode``, or for ``auto`` in the strictest mode that works, and report what confines it.

    ``without`` are bits of layers to leave out, for tests of the layers; what that opens is reported, not refused.
    Raises ``ConfigError`` with the cure if no mode works.
    """
    if mode == "unsafe":
        free = await ZygoteClient.start(mode, without)
        return free, await _tried(free, mode, {})
    refused: dict[str, str] = {}
    for candidate in _NEEDS if mode == "auto" else (mode,):
        zygote: ZygoteClient | None = None
        try:
            zygote = await ZygoteClient.start(candidate, without)
            found = await _tried(zygote, candidate, refused)
            if (found.probes and not found.open) or without:
                return zygote, found
            refused[candidate] = f"its self-test was able to do: {', '.join(found.open)}"
        except SandboxFault as fault:
            refused[candidate] = str(fault)
        if zygote is not None:
            await zygote.aclose()
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    if mode == "auto":
        raise ConfigError(
            f"no isolation on this machine ({sys.platform}): {reasons}. Run on Linux with seccomp, or in a virtual "
            "machine or container of your own with sandbox.mode=unsafe, which isolates nothing and marks every result"
        )
    raise ConfigError(f"sandbox.mode={mode} does not hold on this machine: {reasons}. Cure: {_NEEDS[mode]}")


async def _tried(zygote: ZygoteClient, mode: str, refused: Mapping[str, str]) -> Confinement:
    """Run the probes in a child; raises ``SandboxFault`` if they do not finish."""
    source = (GUEST / "probes.py").read_text(encoding="utf-8")
    arguments = [os.getpid(), str(Path(__file__).resolve()), zygote.descriptors]
    child = await zygote.spawn(SandboxConfig())
    try:
        await child.send({"kind": "code", "source": source, "call": "probe", "args": arguments})
        end = await asyncio.wait_for(child.receive(), _PROBE_SECONDS) or {}
    except asyncio.TimeoutError:
        raise SandboxFault("its self-test did not end") from None
    finally:
        await child.aclose()
    match end:
        case {"value": dict(probes)}:
            return Confinement(mode, zygote.layers, probes, dict(refused))
    raise SandboxFault(f"its self-test failed: {end.get('error') or 'the child could not be set up'}")
