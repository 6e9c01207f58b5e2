"""The children of a verdict: one serves the solution's function, the other runs the tests against a proxy of it.

The tests' child never executes code of the solution, and the solution's child never sees an expected value. Through the
host they exchange plain data (``values``): arguments, results, errors, and the items of a returned iterator when the
tests ask for them. If the job says so (``in_place``), changes that the function made to its copies of the arguments are
applied to the tests' own. Tests that cannot run this way share one child with the solution.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import values
from llm_as_judge.sandbox.guest.run_tests import run_tests
from llm_as_judge.sandbox.guest.runtime import Connection, execute, message_of


def serve_solution(host: Connection, job: dict[str, Any]) -> NoReturn:
    """The solution's child: execute it, then answer calls until the host closes the connection."""
    function = _function(execute(job["source"], "solution", job["prelude"]), job["entry_point"])
    streams: list[Iterator[Any]] = []

    def encode(value: Any) -> Any:
        return values.encode(value, opaque=True, keep=keep)

    def keep(iterator: Iterator[Any]) -> int:
        streams.append(iterator)
        return len(streams) - 1

    host.send({"ready": True})
    while True:
        request = host.receive()
        if "stream" in request:
            host.send(_items(streams[request["stream"]], request["count"], encode))
        else:
            host.send(_answer(function, request, encode))


def _function(namespace: Mapping[str, Any], name: str) -> Any:
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined")
    return namespace[name]


def _answer(function: Any, call: Mapping[str, Any], encode: Callable[[Any], Any]) -> dict[str, Any]:
    arguments = values.decode(call["arguments"])
    positional, named = arguments
    try:
        reply = {"value": encode(function(*positional, **named))}
    except MemoryError:
        raise
    except Exception as error:
        reply = _error(error)
    after = values.encode(arguments, opaque=True)
    if after != call["arguments"]:
        reply["arguments"] = after
    return reply


def _items(stream: Iterator[Any], count: int, encode: Callable[[Any], Any]) -> dict[str, Any]:
    items: list[Any] = []
    try:
        while len(items) < count:
            items.append(encode(next(stream)))
    except StopIteration:
        return {"items": items, "ended": True}
    except MemoryError:
        raise
    except Exception as error:
        return {"items": items, **_error(error)}
    return {"items": items}


def _error(error: Exception) -> dict[str, Any]:
    return {"error": [kind.__name__ for kind in type(error).__mro__], "message": message_of(error)}


def test_apart(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """The tests' child: run the trusted prelude and the tests with a proxy of the function."""
    name = job["entry_point"]
    namespace = execute(job["prelude"], "solution")
    for module in job["modules"]:
        namespace[module] = importlib.import_module(module)
    namespace[name] = _Proxy(host, job["in_place"]).function(name)
    sys.modules["__main__"] = sys.modules["solution"]
    run_tests(job["tests"], namespace, name, job["collected"])
    return {"end": "finished"}


def test_together(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Execute the solution, then receive the tests and run them in a copy of its namespace.

    The nonce must be reported at the end: a solution that exits early, or looks for it before it is called, does not
    know it. One that searches the interpreter's frames during a call can find it, so the verdict is weak.
    """
    namespace = execute(job["source"], "solution", job["prelude"])
    _function(namespace, job["entry_point"])
    tests = host.receive()
    run_tests(tests["source"], dict(namespace), job["entry_point"], job["collected"])
    return {"end": "finished", "nonce": tests["nonce"]}


class _Proxy:
    """Calls the function in the solution's child."""

    def __init__(self, host: Connection, in_place: bool) -> None:
        self._host = host
        self._in_place = in_place

    def function(self, name: str) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            return self._call(list(positional), named)

        call.__name__ = call.__qualname__ = name
        return call

    def _call(self, positional: list[Any], named: dict[str, Any]) -> Any:
        try:
            request = {"arguments": values.encode([positional, named])}
        except values.Unsendable as error:
            self._host.finish({"end": "unsplittable", "error": str(error)})
        reply = self._ask(request)
        try:
            if self._in_place and "arguments" in reply:
                their_positional, their_named = values.decode(reply["arguments"])
                for ours, theirs in zip(positional, their_positional, strict=True):
                    _write_back(ours, theirs)
                for key, ours in named.items():
                    _write_back(ours, their_named[key])
            if "error" not in reply:
                return values.decode(reply["value"], self._stream)
            raised = _exception(reply["error"], reply["message"])
        except (values.Undecodable, ValueError, TypeError, KeyError) as error:
            self._refuse(error)
        raise raised

    def _stream(self, number: int) -> Iterator[Any]:
        """Items of an iterator in the other child; few more are computed than are used."""
        taken = 0
        while True:
            reply = self._ask({"stream": number, "count": 1 + taken // 8})
            raised = None
            try:
                items = [values.decode(item, self._stream) for item in reply["items"]]
                if "error" in reply:
                    raised = _exception(reply["error"], reply["message"])
                elif not items and "ended" not in reply:
                    raise values.Undecodable("no items and no end")
            except (values.Undecodable, ValueError, TypeError, KeyError) as error:
                self._refuse(error)
            yield from items
            if raised is not None:
                raise raised
            if "ended" in reply:
                return
            taken += len(items)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._host.send(request)
        return self._host.receive()

    def _refuse(self, error: Exception) -> NoReturn:
        """End the run. An exception could be caught by the tests."""
        self._host.finish({"end": "raised", "error": f"the solution sent an invalid value: {error}"})


def _write_back(ours: Any, theirs: Any) -> None:
    """Give a mutable argument the content that it has in the solution's child."""
    if type(ours) is not type(theirs):
        return
    if isinstance(ours, (list, bytearray)):
        ours[:] = theirs
    elif isinstance(ours, (dict, set)):
        ours.clear()
        ours.update(theirs)


def _exception(names: Any, message: Any) -> Exception:
    """The nearest built-in ``Exception`` among the ancestors of a class; nothing else is looked up by name."""
    if not isinstance(names, list) or not isinstance(message, str):
        raise values.Undecodable("not an error")
    for name in names:
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
        if kind in (StopIteration, StopAsyncIteration):
            return RuntimeError(f"the function raised {name}")  # StopIteration would end a loop of the tests
        if inspect.isclass(kind) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:  # its constructor needs more than a message
                continue
    return Exception(message)
