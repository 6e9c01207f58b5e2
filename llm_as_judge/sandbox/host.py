"""The sandbox as the rest of the program sees it: run code, run a workflow, judge a solution by its tests.

Each run is one forked child with limits (``guest.confine``), killed with its descendants at its wall-clock
deadline. Whatever foreign code does is an outcome; only the sandbox's own failure is a ``fault``. ``start()``, or
the first run, picks the mode by a self-test, which ``describe()`` tells of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_as_judge.config.schema import SandboxConfig, WorkflowConfig
from llm_as_judge.errors import ConfigError, DataError, SandboxFault
from llm_as_judge.sandbox.child import Child
from llm_as_judge.sandbox.guest.frames import FrameError
from llm_as_judge.sandbox.modes import open_zygote
from llm_as_judge.sandbox.operators import BudgetExceeded, CallOperator, OperatorService
from llm_as_judge.sandbox.results import (
    KEPT_OF_ERROR,
    CodeResult,
    CodeVerdict,
    Confinement,
    OperatorParameters,
    WorkflowResult,
    cut,
)
from llm_as_judge.sandbox.run import Clock, Converse, Last, Run, last_frame, run_children, text
from llm_as_judge.sandbox.verdict import STOPPED, Split, SplitPlan, plan
from llm_as_judge.sandbox.zygote import Zygote
from llm_as_judge.types import Outcome

__all__ = ["BudgetExceeded", "CodeResult", "CodeVerdict", "OperatorParameters", "Sandbox", "WorkflowResult"]

log = logging.getLogger(__name__)


class Sandbox:
    """Runs foreign code. One event loop for its whole life; any number of runs at once.

    Args:
        max_code_runs: live runs of ``run_code`` and ``verdict``, which mostly compute; by default two per core.
        without: bits of layers (``guest.confine``) left out, which only a test of the layers wants.
    """

    def __init__(self, config: SandboxConfig, *, max_code_runs: int | None = None, without: int = 0) -> None:
        self.config = config
        self.mode: str = config.mode  # the one that holds, once started
        self._without = without
        # Two gates: a workflow, which mostly waits for operators, holds its place while one of them runs code.
        self._workflow_gate = asyncio.Semaphore(config.max_workflows)
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
    ) -> CodeResult:
        """Execute ``source``; with ``call``, the value is that function's, called with JSON data ``args``."""
        job = {"kind": "code", "source": source, "call": call, "args": list(args), "stdin": stdin}

        async def converse(children: Sequence[Child], clock: Clock) -> list[Last]:
            await children[0].send(job)
            return [await last_frame(children[0])]

        (run,) = await self._run(self._code_gate, converse)
        return CodeResult(
            run.outcome,
            value=run.end.get("value") if run.outcome == "finished" else None,
            stdout=text(run.end.get("stdout")),
            error=run.error,
            seconds=run.seconds,
            cpu_seconds=run.cpu_seconds,
        )

    async def verdict(self, solution: str, tests: str, entry_point: str, *, prelude: str = "") -> CodeVerdict:
        """Run hidden tests, ``def check(candidate)`` or plain asserts, on a solution.

        Args:
            prelude: trusted code put before the solution, and before the tests.

        Raises:
            DataError: there is nothing to test with, or it is not Python.
        """
        if not tests.strip():
            raise DataError(f"no tests for {entry_point!r}: a verdict without tests would pass anything")
        how = plan(tests, prelude, entry_point)
        job = {"source": solution, "prelude": prelude, "entry_point": entry_point, "in_place": how.in_place == "exact"}
        if not how.obstacle:
            split = Split(job, {"tests": tests, "modules": how.modules})
            found = await self._split_verdict(split)
            if found.outcome == "raised" and split.arguments_changed and how.in_place == "weak":
                # In one process the tests would see the change.
                split = Split({**job, "in_place": True}, {"tests": tests, "modules": how.modules})
                found = await self._split_verdict(split)
                found = replace(found, weak=found.passed or found.weak)
            if not found.obstacle:
                return found
            how = SplitPlan(found.obstacle)
        return await self._nonce_verdict(job, tests, how.obstacle)

    async def _split_verdict(self, split: Split) -> CodeVerdict:
        """Solution and tests in a child each; ``obstacle`` is what only showed when they ran."""
        served, tested = await self._run(self._code_gate, lambda children, _: split.relay(children), 2)
        if tested.end.get("end") == "unsplittable":
            return CodeVerdict(False, "raised", obstacle=text(tested.end.get("error")))
        run = served if tested.killed_for == STOPPED else tested
        return CodeVerdict(
            run is tested and run.outcome == "finished",
            run.outcome if run is tested or run.outcome != "finished" else "raised",
            "split",
            weak=self.mode == "unsafe",
            error=run.error,
            seconds=run.seconds,
            cpu_seconds=served.cpu_seconds + tested.cpu_seconds,
        )

    async def _nonce_verdict(self, job: Mapping[str, Any], tests: str, obstacle: str) -> CodeVerdict:
        """Solution and tests in one child; that it ran to the end is shown by a number sent with the tests."""
        nonce = secrets.token_hex(16)

        async def converse(children: Sequence[Child], clock: Clock) -> list[Last]:
            await children[0].send({**job, "kind": "tests"})
            await children[0].send({"source": tests, "nonce": nonce})
            return [await last_frame(children[0])]

        (run,) = await self._run(self._code_gate, converse)
        outcome, error = run.outcome, run.error
        if outcome == "finished" and run.end.get("nonce") != nonce:
            outcome, error = "raised", "the run ended before its tests did"
        return CodeVerdict(
            outcome == "finished",
            outcome,
            error=error,
            obstacle=obstacle,
            seconds=run.seconds,
            cpu_seconds=run.cpu_seconds,
        )

    async def run_workflow(
        self,
        source: str,
        *,
        problem: str,
        entry_point: str | None,
        call_operator: CallOperator,
        config: WorkflowConfig,
        operators: Mapping[str, OperatorParameters] | None = None,
        dataset: str = "",
        prompt: str = "",
    ) -> WorkflowResult:
        """Run a workflow, awaiting ``call_operator(name, init_arguments, arguments)`` for each operator call.

        ``prompt`` is the text of the ``prompt.py`` beside it, for a graph that imports one.
        ``operators`` gives the names there are and where positional arguments go; None allows any name, by
        keyword. A ``WorkflowError`` of ``call_operator`` is raised inside the workflow, ``BudgetExceeded``
        ends the run, any ``InfrastructureError`` makes the outcome ``fault`` whatever the workflow does.
        """
        job = {
            "kind": "workflow",
            "source": source,
            "prompt": prompt,
            "problem": problem,
            "entry_point": entry_point,
            "dataset": dataset,
            "operators": None if operators is None else {n: p.as_plain() for n, p in operators.items()},
        }
        service = OperatorService(call_operator, config, self.config.frame_bytes)

        async def converse(children: Sequence[Child], clock: Clock) -> list[Last]:
            await children[0].send(job)
            try:
                return [await service.serve(children[0], clock)]
            except FrameError as error:
                return [error]

        (run,) = await self._run(self._workflow_gate, converse)
        outcome: Outcome = run.outcome
        answer, error = run.end.get("answer"), run.error
        if service.fault is not None:
            outcome, error = "fault", f"{type(service.fault).__name__}: {service.fault}"
        elif service.over_budget:
            outcome, error = "budget", service.over_budget
        elif outcome == "finished" and not isinstance(answer, str):
            outcome, error = "raised", "the run ended without an answer"
        return WorkflowResult(
            outcome,
            answer=cut(answer) if outcome == "finished" and isinstance(answer, str) else None,
            error=cut(error, KEPT_OF_ERROR),
            seconds=run.seconds,
            cpu_seconds=run.cpu_seconds,
        )

    async def _run(self, gate: asyncio.Semaphore, converse: Converse, count: int = 1) -> list[Run]:
        """Children from fork to reaping; the deadline starts when they have a place."""
        async with gate:
            try:
                zygote = await self._running_zygote()
            except SandboxFault as fault:
                return [Run("fault", str(fault))] * count
            return await run_children(zygote, self.config, converse, count)

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
                try:
                    self._zygote, found = await open_zygote(self.mode, self._without)
                except ConfigError as error:
                    if self._confinement is None:
                        raise
                    raise SandboxFault(str(error)) from None  # it did hold here before
                self._confinement = self._confinement or found
                self.mode = found.mode  # one that died is started anew in the same mode
            return self._zygote
