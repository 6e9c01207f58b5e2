"""The host's side of a workflow's operator calls: checked, counted, several at once, never trusted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import InfrastructureError, WorkflowError
from llm_as_judge.sandbox.child import Child
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.run import Clock

log = logging.getLogger(__name__)

#: ``(operator, init arguments, arguments) -> result``
CallOperator = Callable[[str, dict[str, Any], dict[str, Any]], Awaitable[Mapping[str, Any]]]


#: Texts, numbers, lists and keys that one operator call may hold.
_VALUES = 10_000


class BudgetExceeded(WorkflowError):
    """Raised by ``call_operator`` to end the run with outcome ``budget``."""


class OperatorService:
    """Answers the operator calls of one workflow, within its limits.

    All of its calls together may hold ``frame_bytes`` of memory here, where they are kept until they are logged.
    """

    def __init__(self, call_operator: CallOperator, config: WorkflowConfig, frame_bytes: int) -> None:
        self._call_operator = call_operator
        self._config = config
        self._frame_bytes = frame_bytes
        self._held = 0
        self._places = asyncio.Semaphore(config.max_concurrent_calls)
        self.over_budget = ""
        self.fault: Exception | None = None

    async def serve(self, child: Child, clock: Clock) -> dict[str, Any] | None:
        """Until the child's last frame, or None if there is none; raises ``FrameError`` for what is no call.

        Calls that a workflow does not wait for are ended all the same, so that what they take is counted and does not
        hang on timing.
        """
        tasks: set[asyncio.Task[None]] = set()
        count = 0
        try:
            while (message := await child.receive(_VALUES)) is not None:
                if "end" in message:
                    await asyncio.gather(*tasks)
                    return message
                count += 1
                if count > self._config.max_calls:
                    self._stop(child, f"over {self._config.max_calls} operator calls")
                    return None
                self._held += frames.weight(message)
                if self._held > self._frame_bytes:
                    raise frames.FrameTooLong(f"its operator calls hold over {self._frame_bytes} bytes")
                task = asyncio.create_task(self._answer(child, clock, _request(message)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, child: Child, clock: Clock, request: _Request) -> None:
        try:
            with clock.standing_still():
                async with self._places:
                    result = await self._call_operator(request.operator, request.init, request.arguments)
            reply: dict[str, Any] = {"call": request.number, "result": dict(result)}
        except BudgetExceeded as error:
            self._stop(child, str(error))
            return
        except WorkflowError as error:
            reply = {"call": request.number, "error": str(error)}
        except Exception as error:
            if not isinstance(error, InfrastructureError):
                log.exception("operator %s failed on the host", request.operator)
            self.fault = self.fault or error
            child.kill("fault")
            return
        await child.send(reply)

    def _stop(self, child: Child, error: str) -> None:
        self.over_budget = self.over_budget or error
        child.kill("budget")


@dataclass(frozen=True, slots=True)
class _Request:
    number: int
    operator: str
    init: dict[str, Any]
    arguments: dict[str, Any]


def _request(message: Mapping[str, Any]) -> _Request:
    number, operator = message.get("call"), message.get("operator")
    init, arguments = message.get("init"), message.get("arguments")
    if not (
        type(number) is int and isinstance(operator, str) and isinstance(init, dict) and isinstance(arguments, dict)
    ):
        raise frames.FrameError("not an operator call")
    return _Request(number, operator, init, arguments)
