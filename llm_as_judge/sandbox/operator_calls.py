"""The host's side of a workflow's operator calls: validated, counted and run concurrently."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import InfrastructureError, WorkflowError
from llm_as_judge.sandbox import limits
from llm_as_judge.sandbox.children import Clock
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.zygote_client import Child

log = logging.getLogger(__name__)

#: ``(operator, init arguments, arguments) -> result``
CallOperator = Callable[[str, dict[str, Any], dict[str, Any]], Awaitable[Mapping[str, Any]]]

#: Limit on the values (texts, numbers, lists, keys) of one operator call, and on those of a whole run.
_VALUES, _VALUES_OF_RUN = 10_000, 40_000


class BudgetExceeded(WorkflowError):
    """Raised by ``call_operator`` to end the run with outcome ``budget``."""


class OperatorService:
    """Answers a workflow's operator calls; limits their arguments, all of which are kept until they are logged."""

    def __init__(self, call_operator: CallOperator, config: WorkflowConfig) -> None:
        self._call_operator = call_operator
        self._config = config
        self._slots = asyncio.Semaphore(limits.CONCURRENT_CALLS)
        self._count = self._bytes = self._values = 0
        self.over_budget = ""
        self.fault: Exception | None = None

    async def serve(self, child: Child, clock: Clock) -> None:
        """Serve calls until the last message. All are completed, awaited or not: costs must not depend on timing."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while (message := await child.receive(_VALUES)) is not None:
                if "end" in message:
                    await asyncio.gather(*tasks)
                    return
                try:
                    task = asyncio.create_task(self._answer(child, clock, *self._checked(message)))
                except BudgetExceeded as error:
                    self._stop(child, str(error))
                    return
                except frames.FrameError as error:
                    child.last = error
                    return
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _checked(self, message: Mapping[str, Any]) -> tuple[int, str, dict[str, Any], dict[str, Any]]:
        """Check a call; returns its number, operator, init arguments and arguments, counted."""
        self._count += 1
        if self._count > self._config.max_calls:
            raise BudgetExceeded(f"over {self._config.max_calls} operator calls")
        memory, values = frames.size(message)
        self._bytes, self._values = self._bytes + memory, self._values + values
        for held, most, what in ((self._bytes, limits.FRAME_BYTES, "bytes"), (self._values, _VALUES_OF_RUN, "values")):
            if held > most:
                raise frames.FrameTooLong(f"its operator calls hold over {most} {what}")
        match message:
            case {"call": int(number), "operator": str(name), "init": dict(init), "arguments": dict(arguments)}:
                return number, name, init, arguments
        raise frames.FrameError("not an operator call")

    async def _answer(
        self, child: Child, clock: Clock, number: int, name: str, init: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        try:
            with clock.paused():
                async with self._slots:
                    result = await self._call_operator(name, init, arguments)
        except BudgetExceeded as error:
            self._stop(child, str(error))
        except InfrastructureError as error:
            self.fault = self.fault or error
            child.kill("fault")
        except WorkflowError as error:
            await child.send({"call": number, "error": str(error)})
        except Exception as error:  # whatever its arguments and the replies to them cause is the workflow's
            log.info("operator %s raised on the host", name, exc_info=True)
            await child.send({"call": number, "error": f"{name}: {type(error).__name__}: {error}"})
        else:
            await child.send({"call": number, "result": dict(result)})

    def _stop(self, child: Child, error: str) -> None:
        self.over_budget = self.over_budget or error
        child.kill("budget")
