"""Verdicts that a solution cannot forge: its tests run in another child, and the host carries values between them."""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.children import ChildRun, Clock, Converse, as_text
from llm_as_judge.sandbox.program import as_function
from llm_as_judge.sandbox.results import CodeOutcome, CodeVerdict
from llm_as_judge.sandbox.split_plan import plan
from llm_as_judge.sandbox.zygote_client import Child

#: Runs so many children in one run of the sandbox, the last of them with numpy if the flag is set.
RunChildren = Callable[[Converse, int, bool], Awaitable[Sequence[ChildRun]]]

#: Why a child was killed when the other one ended first.
_STOPPED = "stopped"
_REPLY = ("value", "error", "message", "arguments", "items", "ended")


async def judge(
    run: RunChildren, solution: str, tests: str, entry_point: str, prelude: str, cpu_seconds: int, *, isolated: bool
) -> CodeVerdict:
    """Run ``tests`` on ``solution``: plain asserts or ``def check(candidate)``.

    The tests first run with every change that the function made to its arguments. If that passes and arguments were
    changed, they run again without the changes. A pass that depends on them counts only if the tests look at changed
    arguments, and is weak.

    Each call of the function has ``cpu_seconds``. ``isolated`` False (the sandbox isolates nothing) makes every verdict
    weak. Raises ``DataError`` as ``plan`` does, and for tests that fail before they call the function.
    """
    how = plan(tests, prelude, entry_point)
    named = {"prelude": prelude, "entry_point": entry_point, "cpu_seconds": cpu_seconds}
    job = {"source": as_function(solution, entry_point), **named}
    if how.obstacle:
        return await _judge_together(run, job, tests, how.obstacle)
    split = {"tests": tests, "modules": how.modules, "numpy": how.numpy}
    found, changed = await _judge_apart(run, job, {**split, "in_place": True}, isolated)
    if found.passed and changed:
        without, _ = await _judge_apart(run, job, {**split, "in_place": False}, isolated)
        if not how.in_place or without.outcome == "fault":
            found = without
        elif not without.passed:
            found = replace(found, weak=True)
    if found.obstacle:  # found only when they ran
        how.refuse_numpy(found.obstacle)
        return await _judge_together(run, job, tests, found.obstacle)
    return found


async def _judge_apart(
    run: RunChildren, job: Mapping[str, Any], tests: Mapping[str, Any], isolated: bool
) -> tuple[CodeVerdict, bool]:
    """Judge solution and tests in separate children; also tells whether the function says it changed arguments."""
    changed = called = ready = False

    async def converse(children: Sequence[Child], clock: Clock) -> None:
        """Carry calls from the tests' child to the solution's and values back, until one of them ends."""
        nonlocal changed, called, ready
        served, tested = children
        tested.allow(limits.TESTS_BYTES)
        # The tests' child sets up while the solution is executed.
        await served.send({**job, "kind": "solution"})
        await tested.send({**job, **tests, "kind": "split tests", "source": ""})
        reply = await served.receive()
        ready = reply is not None and reply.get("ready") is True
        if not ready:
            tested.kill(_STOPPED)
            return
        while (request := await tested.receive()) is not None and "end" not in request:
            called = True
            await served.send(request)
            reply = await served.receive()
            if reply is None or "end" in reply:
                tested.kill(_STOPPED)
                return
            changed |= "arguments" in reply
            clock.renew()
            await tested.send({key: reply[key] for key in _REPLY if key in reply})
        served.kill(_STOPPED)

    served, tested = await run(converse, 2, bool(tests["numpy"]))
    if tested.end.get("end") == "unsplittable":
        return CodeVerdict(False, "raised", obstacle=as_text(tested.end.get("error"))), changed
    if not called and (tested.outcome in ("raised", "memory") or (ready and tested.outcome == "timeout")):
        error = f"the tests fail before they call {job['entry_point']!r}: {tested.error}"
        if tested.outcome != "timeout":
            raise DataError(error)
        return CodeVerdict(False, "fault", error=f"{error}; raise sandbox.cpu_seconds and wall_seconds"), changed
    last = served if tested.killed_for == _STOPPED else tested
    passed = last is tested and tested.outcome == "finished"
    outcome: CodeOutcome = "raised" if last.outcome == "finished" and not passed else last.outcome
    cpu = served.cpu_seconds + tested.cpu_seconds
    return CodeVerdict(passed, outcome, "split", not isolated, last.error, "", last.seconds, cpu), changed


async def _judge_together(run: RunChildren, job: Mapping[str, Any], tests: str, obstacle: str) -> CodeVerdict:
    """Judge solution and tests in one child; a number sent with the tests shows that they ran to their end."""
    nonce = secrets.token_hex(16)

    async def converse(children: Sequence[Child], clock: Clock) -> None:
        await children[0].send({**job, "kind": "tests"})
        await children[0].send({"source": tests, "nonce": nonce})
        await children[0].receive()

    (found,) = await run(converse, 1, False)
    outcome, error = found.outcome, found.error
    if outcome == "finished" and found.end.get("nonce") != nonce:
        outcome, error = "raised", "the run ended before its tests did"
    return CodeVerdict(outcome == "finished", outcome, "nonce", True, error, obstacle, found.seconds, found.cpu_seconds)
