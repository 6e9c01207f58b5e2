"""What a verdict's children do: one serves the solution's function, the other runs the tests against a stand-in.

The tests' child never executes anything of the solution's; the solution's child never sees an expected value. Between
them, through the host, go arguments, results and errors as plain data (``values``), and of an iterator that the
function returned its items, when the tests ask for them. The tests keep their own arguments; changes that the function
made to its copies are taken over where the job says so (``in_place``). Tests that cannot be run so share one child with
the solution.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import values
from llm_as_judge.sandbox.guest.connection import Connection
from llm_as_judge.sandbox.guest.snippet import execute, message_of

_UNCHANGING = (bool, int, float, str, bytes, type(None))


def serve(host: Connection, job: dict[str, Any]) -> NoReturn:
    """The solution's side: execute it, then answer calls until the host closes the connection."""
    namespace = execute(job["source"], "solution", job["prelude"])
    name = job["entry_point"]
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined")
    function = namespace[name]
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


def _answer(function: Any, call: Mapping[str, Any], encode: Callable[[Any], Any]) -> dict[str, Any]:
    arguments = values.decode(call["arguments"])
    positional, named = arguments
    try:
        reply = {"value": encode(function(*positional, **named))}
    except MemoryError:
        raise
    except Exception as error:
        reply = _error(error)
    if not all(type(value) in _UNCHANGING for value in (*positional, *named.values())):
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
    """The tests' side: the trusted prelude, the stand-in for the function, the tests."""
    name = job["entry_point"]
    namespace = execute(job["prelude"], "solution")
    for module in job["modules"]:
        namespace[module] = importlib.import_module(module)
    candidate = namespace[name] = _stand_in(host, name, job["in_place"])
    before = namespace.get("check")
    exec(compile(job["tests"], "<tests>", "exec", dont_inherit=True), namespace)
    check = namespace.get("check")
    if check is not None and check is not before and check is not candidate:
        check(candidate)
    return {"end": "finished"}


def _stand_in(host: Connection, name: str, in_place: bool) -> Callable[..., Any]:
    def ask(request: dict[str, Any]) -> dict[str, Any]:
        host.send(request)
        return host.receive()

    def refuse(error: Exception) -> NoReturn:
        """Not raised: the tests might catch it."""
        host.finish({"end": "raised", "error": f"the solution sent what is no value: {error}"})

    def call(*positional: Any, **named: Any) -> Any:
        try:
            request = {"arguments": values.encode([list(positional), named])}
        except values.Unsendable as error:
            host.finish({"end": "unsplittable", "error": str(error)})
        reply = ask(request)
        try:
            if in_place and "arguments" in reply:
                their_positional, their_named = values.decode(reply["arguments"])
                for ours, theirs in zip(positional, their_positional, strict=True):
                    _write_back(ours, theirs)
                for key, ours in named.items():
                    _write_back(ours, their_named[key])
            if "error" not in reply:
                return values.decode(reply["value"], stream)
            raised = _exception(reply["error"], reply["message"])
        except (values.Undecodable, ValueError, TypeError, KeyError) as error:
            refuse(error)
        raise raised

    def stream(number: int) -> Iterator[Any]:
        """The items of an iterator on the other side; few more than are wanted are ever computed."""
        taken = 0
        while True:
            reply = ask({"stream": number, "count": 1 + taken // 8})
            raised = None
            try:
                items = [values.decode(item, stream) for item in reply["items"]]
                if "error" in reply:
                    raised = _exception(reply["error"], reply["message"])
                elif not items and "ended" not in reply:
                    raise values.Undecodable("no items and no end")
            except (values.Undecodable, ValueError, TypeError, KeyError) as error:
                refuse(error)
            yield from items
            if raised is not None:
                raise raised
            if "ended" in reply:
                return
            taken += len(items)

    call.__name__ = call.__qualname__ = name
    return call


def _write_back(ours: Any, theirs: Any) -> None:
    """Give a mutable argument the content it has on the solution's side."""
    if type(ours) is not type(theirs):
        return
    if isinstance(ours, (list, bytearray)):
        ours[:] = theirs
    elif isinstance(ours, (dict, set)):
        ours.clear()
        ours.update(theirs)


def _exception(names: Any, message: Any) -> Exception:
    """The nearest built-in ``Exception`` among a class's ancestors; nothing else is ever looked up by name."""
    if not isinstance(names, list) or not isinstance(message, str):
        raise values.Undecodable("not an error")
    for name in names:
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
        if kind in (StopIteration, StopAsyncIteration):
            return RuntimeError(f"the function raised {name}")  # which would end a loop of the tests'
        if inspect.isclass(kind) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:  # one that wants more than a message
                continue
    return Exception(message)


def test_together(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Execute the solution, then fetch and execute the tests in a copy of its namespace.

    Only code that ran past the last test knows the nonce it must report; a solution that exits, or that looks
    before it is called, does not. One that searches the interpreter's frames when called can find it: hence
    the verdict is weak.
    """
    namespace = execute(job["source"], "solution", job["prelude"])
    tests = host.receive()
    scope = dict(namespace)
    exec(compile(tests["source"], "<tests>", "exec", dont_inherit=True), scope)
    if scope.get("check") is not namespace.get("check"):  # the tests' own, not a solution called so
        if job["entry_point"] not in namespace:
            raise NameError(f"name {job['entry_point']!r} is not defined")
        scope["check"](namespace[job["entry_point"]])
    return {"end": "finished", "nonce": tests["nonce"]}
