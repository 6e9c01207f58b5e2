"""The host's side of a workflow's operator calls: checked, counted, several at once, never trusted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import InfrastructureError, WorkflowError
from llm_as_judge.sandbox.children import ChildHandle, Clock
from llm_as_judge.sandbox.guest import frames

log = logging.getLogger(__name__)

#: ``(operator, init arguments, arguments) -> result``
CallOperator = Callable[[str, dict[str, Any], dict[str, Any]], Awaitable[Mapping[str, Any]]]

#: Limit on the values (texts, numbers, lists, keys) of one operator call, and on those of a whole run.
_VALUES, _VALUES_OF_RUN = 10_000, 40_000


class BudgetExceeded(WorkflowError):
    """Raised by ``call_operator`` to end the run with outcome ``budget``."""


class OperatorService:
    """Answers the operator calls of one workflow within its limits.

    The arguments of all calls of a run are kept until they are logged: together they may take ``frame_bytes`` of memory
    and hold ``_VALUES_OF_RUN`` values.
    """

    def __init__(self, call_operator: CallOperator, config: WorkflowConfig, frame_bytes: int) -> None:
        self._call_operator = call_operator
        self._config = config
        self._frame_bytes = frame_bytes
        self._slots = asyncio.Semaphore(config.max_concurrent_calls)
        self.over_budget = ""
        self.fault: Exception | None = None

    async def serve(self, child: ChildHandle, clock: Clock) -> dict[str, Any] | None:
        """Serve calls until the child's last frame, which is returned; raises ``FrameError`` for invalid messages.

        Calls that the workflow does not wait for are completed as well, so that what they cost is counted and does not
        depend on timing.
        """
        tasks: set[asyncio.Task[None]] = set()
        count = held_bytes = held_values = 0
        try:
            while (message := await child.receive(_VALUES)) is not None:
                if "end" in message:
                    await asyncio.gather(*tasks)
                    return message
                count += 1
                if count > self._config.max_calls:
                    self._stop(child, f"over {self._config.max_calls} operator calls")
                    return None
                more_bytes, more_values = frames.size(message)
                held_bytes, held_values = held_bytes + more_bytes, held_values + more_values
                if held_bytes > self._frame_bytes:
                    raise frames.FrameTooLong(f"its operator calls hold over {self._frame_bytes} bytes")
                if held_values > _VALUES_OF_RUN:
                    raise frames.FrameTooLong(f"its operator calls hold over {_VALUES_OF_RUN} values")
                task = asyncio.create_task(self._answer(child, clock, *_call(message)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(
        self, child: ChildHandle, clock: Clock, number: int, name: str, init: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        try:
            with clock.paused():
                async with self._slots:
                    result = await self._call_operator(name, init, arguments)
            reply: dict[str, Any] = {"call": number, "result": dict(result)}
        except BudgetExceeded as error:
            self._stop(child, str(error))
            return
        except WorkflowError as error:
            reply = {"call": number, "error": str(error)}
        except Exception as error:
            if not isinstance(error, InfrastructureError):
                log.exception("operator %s failed on the host", name)
            self.fault = self.fault or error
            child.kill("fault")
            return
        await child.send(reply)

    def _stop(self, child: ChildHandle, error: str) -> None:
        self.over_budget = self.over_budget or error
        child.kill("budget")


def _call(message: Mapping[str, Any]) -> tuple[int, str, dict[str, Any], dict[str, Any]]:
    number, name = message.get("call"), message.get("operator")
    init, arguments = message.get("init"), message.get("arguments")
    if type(number) is int and isinstance(name, str) and isinstance(init, dict) and isinstance(arguments, dict):
        return number, name, init, arguments
    raise frames.FrameError("not an operator call")
