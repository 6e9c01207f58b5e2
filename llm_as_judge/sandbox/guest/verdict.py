"""What a verdict's children do: one serves the solution's function, the other runs the tests against a stand-in.

The tests' child never executes anything of the solution's; the solution's child never sees an expected value. Between
them, through the host, go arguments, results and errors as plain data (``values``). Where the tests look at what
the function did to its arguments (``in_place``), changes of those cross too. Tests that cannot be run so share
one child with the solution.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import values
from llm_as_judge.sandbox.guest.connection import Connection
from llm_as_judge.sandbox.guest.snippet import execute, message_of


def serve(host: Connection, job: dict[str, Any]) -> NoReturn:
    """The solution's side: execute it, then answer calls until the host closes the connection."""
    namespace = execute(job["source"], "solution")
    name = job["entry_point"]
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined")
    function = namespace[name]
    host.send({"ready": True})
    while True:
        host.send(_answer(function, host.receive(), job["in_place"]))


def _answer(function: Any, call: Mapping[str, Any], in_place: bool) -> dict[str, Any]:
    arguments = values.decode(call["arguments"])
    named = values.decode(call["named"])
    try:
        reply = {"value": values.encode(function(*arguments, **named), opaque=True)}
    except MemoryError:
        raise
    except Exception as error:
        reply = {"error": [kind.__name__ for kind in type(error).__mro__], "message": message_of(error)}
    if in_place:
        reply["arguments"] = values.encode(arguments, opaque=True)
    return reply


def test_apart(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """The tests' side: the trusted prelude, the stand-in for the function, the tests."""
    name = job["entry_point"]
    namespace = execute(job["prelude"], "solution")
    for module in job["modules"]:
        namespace[module] = importlib.import_module(module)
    candidate = namespace[name] = _stand_in(host, name)
    before = namespace.get("check")
    exec(compile(job["tests"], "<tests>", "exec", dont_inherit=True), namespace)
    check = namespace.get("check")
    if check is not None and check is not before and check is not candidate:
        check(candidate)
    return {"end": "finished"}


def _stand_in(host: Connection, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            request = {"arguments": values.encode(list(arguments)), "named": values.encode(named)}
        except values.Unsendable as error:
            host.finish({"end": "unsplittable", "error": str(error)})
        host.send(request)
        try:
            reply = host.receive()
            if "arguments" in reply:
                for ours, theirs in zip(arguments, values.decode(reply["arguments"]), strict=True):
                    _write_back(ours, theirs)
            if "error" in reply:
                error_ = _exception(reply["error"], reply["message"])
            else:
                return values.decode(reply["value"])
        except (values.Undecodable, ValueError, TypeError, KeyError) as error:
            # Not raised: the tests might catch it.
            host.finish({"end": "raised", "error": f"the solution sent what is no value: {error}"})
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
        raise values.Undecodable("not an error")
    for name in names:
        kind = getattr(builtins, name, None) if isinstance(name, str) else None
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
    namespace = execute(job["source"], "solution")
    tests = host.receive()
    scope = dict(namespace)
    exec(compile(tests["source"], "<tests>", "exec", dont_inherit=True), scope)
    if scope.get("check") is not namespace.get("check"):  # the tests' own, not a solution called so
        if job["entry_point"] not in namespace:
            raise NameError(f"name {job['entry_point']!r} is not defined")
        scope["check"](namespace[job["entry_point"]])
    return {"end": "finished", "nonce": tests["nonce"]}
