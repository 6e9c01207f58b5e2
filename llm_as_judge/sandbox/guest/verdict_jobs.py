"""The children of a verdict: one serves the solution's function, the other runs the tests against a proxy of it.

The tests' child never executes code of the solution, and the solution's child never sees an expected value. Through the
host they exchange plain data (``plain_data``): arguments, results, errors, and the items of a returned iterator when
the tests ask for them. If the job says so (``in_place``), changes that the function made to its copies of the
arguments are applied to the tests' own. Tests that cannot run this way share one child with the solution.
"""

import builtins
import contextlib
import importlib
import inspect
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest import plain_data
from llm_as_judge.sandbox.guest.runtime import Connection, defined, execute, finished, message_of


def serve_solution(host: Connection, job: dict[str, Any]) -> NoReturn:
    """Serve as the solution's child: execute it, then answer calls until the host closes the connection."""
    _allow(job)
    function = defined(execute(job["source"], "solution", job["prelude"]), job["entry_point"])
    streams: list[Iterator[Any]] = []

    def encode(value: Any) -> Any:
        return plain_data.encode(value, opaque=True, keep=keep)

    def keep(iterator: Iterator[Any]) -> int:
        streams.append(iterator)
        return len(streams) - 1

    def call(request: dict[str, Any]) -> dict[str, Any]:
        arguments = plain_data.decode(request["arguments"])
        positional, named = arguments
        with _errors() as reply:
            reply["value"] = encode(function(*positional, **named))
        after = plain_data.encode(arguments, opaque=True)
        return reply if after == request["arguments"] else {**reply, "arguments": after}

    def items(stream: Iterator[Any], count: int) -> dict[str, Any]:
        with _errors() as reply:
            reply["items"] = []
            for item in itertools.islice(stream, count):
                reply["items"].append(encode(item))
            reply["ended"] = len(reply["items"]) < count
        return reply

    host.send({"ready": True})
    while True:
        request = host.receive()
        _allow(job)
        host.send(items(streams[request["stream"]], request["count"]) if "stream" in request else call(request))


def _allow(job: dict[str, Any]) -> None:
    """Give a call its CPU time. A solution that stops this timer still has that of all calls."""
    signal.setitimer(signal.ITIMER_PROF, job["cpu_seconds"])


@contextlib.contextmanager
def _errors() -> Iterator[dict[str, Any]]:
    """Give a reply, to which an exception of the solution is added."""
    reply: dict[str, Any] = {}
    try:
        yield reply
    except MemoryError:
        raise
    except Exception as error:
        reply.update(error=[kind.__name__ for kind in type(error).__mro__], message=message_of(error))


def test_apart(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Test as the tests' child: run the trusted prelude and the tests with a proxy of the function."""
    name = job["entry_point"]
    namespace = execute(job["prelude"], "solution")
    for module in job["modules"]:
        namespace[module] = importlib.import_module(module)
    namespace[name] = _proxy(host, name, job["in_place"])
    sys.modules["__main__"] = sys.modules["solution"]
    _run_tests(job["tests"], namespace, name, may_exit=True)
    return {"end": "finished"}


def test_together(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Execute the solution, then receive the tests and run them in a copy of its namespace.

    The nonce must be reported at the end: a solution that exits early, or looks for it before it is called, does not
    know it. One that searches the interpreter's frames during a call can find it, so the verdict is weak.
    """
    namespace = execute(job["source"], "solution", job["prelude"])
    defined(namespace, job["entry_point"])
    tests = host.receive()
    _run_tests(tests["source"], dict(namespace), job["entry_point"])
    return {"end": "finished", "nonce": tests["nonce"]}


def _run_tests(source: str, namespace: dict[str, Any], entry_point: str, may_exit: bool = False) -> None:
    """Run the tests as a script, then its ``check``. ``may_exit``: ``sys.exit(0)`` ends the script, not the run."""
    candidate, before = namespace[entry_point], namespace.get("check")
    # The tests under ``if __name__ == "__main__"`` count.
    namespace.update(__name__="__main__", __file__="tests.py")
    try:
        exec(compile(source, "<tests>", "exec", dont_inherit=True), namespace)
    except SystemExit as end:
        if end.code or not may_exit:
            raise
    check = namespace.get("check")
    if check is not before and check is not candidate:
        finished(check(candidate))  # type: ignore[misc]  # raises if the tests made it no function


def _proxy(host: Connection, name: str, in_place: bool) -> Callable[..., Any]:
    """Make a function that calls the one in the solution's child."""

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        host.send(request)
        return host.receive()

    @contextlib.contextmanager
    def only_values() -> Iterator[None]:
        """End the run for a reply that is none. An exception could be caught by the tests."""
        try:
            yield
        except (plain_data.Undecodable, ValueError, TypeError, KeyError) as error:
            host.finish({"end": "raised", "error": f"the solution sent an invalid value: {error}"})

    def stream(number: int) -> Iterator[Any]:
        """Yield items of an iterator in the other child; few more are computed than are used."""
        taken = 0
        while True:
            count = 1 + taken // 8
            reply = ask({"stream": number, "count": count})
            raised = None
            with only_values():
                items = [plain_data.decode(item, stream) for item in reply["items"]]
                if "error" in reply:
                    raised = _exception(reply["error"], reply["message"])
                elif len(items) < count and reply["ended"] is not True:
                    raise plain_data.Undecodable("too few items")
            yield from items
            if raised is not None:
                raise raised
            if len(items) < count:
                return
            taken += count

    def call(*positional: Any, **named: Any) -> Any:
        try:
            request = {"arguments": plain_data.encode([[*positional], named])}
        except plain_data.Unsendable as error:
            host.finish({"end": "unsplittable", "error": str(error)})
        reply = ask(request)
        with only_values():
            if in_place and "arguments" in reply:
                their_positional, their_named = plain_data.decode(reply["arguments"])
                for ours, theirs in zip(positional, their_positional, strict=True):
                    _write_back(ours, theirs)
                for key, ours in named.items():
                    _write_back(ours, their_named[key])
            if "error" not in reply:
                return plain_data.decode(reply["value"], stream)
            raised = _exception(reply["error"], reply["message"])
        raise raised

    call.__name__ = call.__qualname__ = name
    return call


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
    """Find the nearest built-in ``Exception`` among the ancestors of a class; nothing else is looked up by name."""
    if not isinstance(names, list) or not isinstance(message, str):
        raise plain_data.Undecodable("not an error")
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
