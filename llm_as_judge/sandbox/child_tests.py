"""A verdict's two children: one serves the solution's function, the other runs the tests against a stand-in.

The tests' child never executes anything of the solution's; the solution's child never sees an expected value. Between
them, through the host, go arguments, results and errors as plain data (``plain``). Where the tests look at what
the function did to its arguments (``in_place``), changes of those cross too.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import socket
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from llm_as_judge.sandbox import frames, plain

Execute = Callable[..., dict[str, Any]]


class Finish(Protocol):
    def __call__(self, sock: socket.socket, end: dict[str, Any], frame_bytes: int) -> NoReturn: ...


_MESSAGE_LIMIT = 500


def serve(sock: socket.socket, job: dict[str, Any], execute: Execute) -> NoReturn:
    """The solution's side: execute it, then answer calls until the host closes the connection."""
    namespace = execute(job["source"], "solution")
    name = job["entry_point"]
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined")
    function = namespace[name]
    frames.send(sock, {"ready": True})
    while True:
        frames.send(sock, _answer(function, frames.receive(sock), job["in_place"]))


def _answer(function: Any, call: Mapping[str, Any], in_place: bool) -> dict[str, Any]:
    arguments = plain.decode(call["arguments"])
    named = plain.decode(call["named"])
    try:
        reply = {"value": plain.encode(function(*arguments, **named), opaque=True)}
    except MemoryError:
        raise
    except Exception as error:
        reply = {"error": [kind.__name__ for kind in type(error).__mro__], "message": _message(error)}
    if in_place:
        reply["arguments"] = plain.encode(arguments, opaque=True)
    return reply


def test(sock: socket.socket, job: dict[str, Any], execute: Execute, finish: Finish) -> dict[str, Any]:
    """The tests' side: the trusted prelude, the stand-in for the function, the tests."""
    name = job["entry_point"]
    namespace = execute(job["prelude"], "solution")
    for module in job["modules"]:
        namespace[module] = importlib.import_module(module)
    candidate = namespace[name] = _stand_in(sock, name, finish, job["frame_bytes"])
    before = namespace.get("check")
    exec(compile(job["tests"], "<tests>", "exec", dont_inherit=True), namespace)
    check = namespace.get("check")
    if check is not None and check is not before and check is not candidate:
        check(candidate)
    return {"end": "finished"}


def _stand_in(sock: socket.socket, name: str, finish: Finish, frame_bytes: int) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            request = {"arguments": plain.encode(list(arguments)), "named": plain.encode(named)}
        except plain.Unsendable as error:
            finish(sock, {"end": "unsplittable", "error": str(error)}, frame_bytes)
        frames.send(sock, request)
        try:
            reply = frames.receive(sock)
            if "arguments" in reply:
                for ours, theirs in zip(arguments, plain.decode(reply["arguments"]), strict=True):
                    _write_back(ours, theirs)
            if "error" in reply:
                error_ = _exception(reply["error"], reply["message"])
            else:
                return plain.decode(reply["value"])
        except (plain.Undecodable, ValueError, TypeError, KeyError) as error:
            # Not raised: the tests might catch it.
            finish(sock, {"end": "raised", "error": f"the solution sent what is no value: {error}"}, frame_bytes)
        raise error_

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
        raise plain.Undecodable("not an error")
    for name in names:
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
        if inspect.isclass(kind) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:  # one that wants more than a message
                continue
    return Exception(message)


def _message(error: Exception) -> str:
    try:
        return str(error)[:_MESSAGE_LIMIT]
    except Exception as second:
        return f"<str() raised {type(second).__name__}>"
