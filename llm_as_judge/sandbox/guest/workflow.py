"""The workflow's side of a run: AFlow's names, and operators whose calls are answered by the host.

``operator.X(self.llm)`` gives a stand-in; awaiting its call sends the name and the arguments and waits for
the result, any number of them at once. Imports as AFlow's graphs have them (``guest.aflow``) resolve to the same
objects. The host, not this code, counts and meters.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import math
import operator
import select
import socket
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_as_judge.sandbox.guest import aflow, frames
from llm_as_judge.sandbox.guest.connection import Connection
from llm_as_judge.sandbox.guest.construct import AFLOW, constructor_arguments
from llm_as_judge.sandbox.guest.snippet import NAMESPACE, execute
from llm_as_judge.sandbox.guest.standins import GraphImports, OperatorError, create_llm_instance

_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Loop(asyncio.BaseEventLoop):
    """Timers, tasks, and one connection to read: all that a confined child can use.

    asyncio's own loop makes an epoll object and a pair of sockets to be woken by, which costs a child as much time as
    half of a workflow. It can be made before the fork.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selector = self  # what BaseEventLoop waits with
        self._poll = select.poll()
        self._readable: Callable[[], None] | None = None

    def read_from(self, sock: socket.socket, readable: Callable[[], None]) -> None:
        self._poll.register(sock, select.POLLIN)
        self._readable = readable

    def select(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout is None else math.ceil(1000 * timeout))

    def _process_events(self, events: list[tuple[int, int]]) -> None:
        if events and self._readable is not None:
            self._readable()

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""


#: Made in the zygote; every child has a copy of its own.
LOOP = Loop()


class Calls:
    """Requests under way: one number each, answered in any order."""

    def __init__(self, host: Connection, loop: Loop) -> None:
        self._host = host
        self._loop = loop
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._frames = frames.Decoder(1 << 32)  # the host is trusted
        loop.read_from(host.sock, self._readable)

    async def call(self, name: str, init: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        number = self._count
        request = {"call": number, "operator": name, "init": init, "arguments": arguments}
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._pending[number] = future
        # Blocking, but the host always reads.
        self._host.send(request)
        return await future

    def _readable(self) -> None:
        data = self._host.sock.recv(1 << 20)
        if not data:
            raise SystemExit("the host closed the connection")
        self._frames.feed(data)
        while (reply := self._frames.next()) is not None:
            future = self._pending.pop(reply["call"])
            if future.done():  # cancelled by the workflow
                continue
            if "error" in reply:
                future.set_exception(OperatorError(reply["error"]))
            else:
                future.set_result(reply["result"])


class Result(dict[str, Any]):
    """What an operator gives; ``spellings`` are the keys that other versions of it have for one of its own."""

    def __init__(self, values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
        super().__init__(values)
        self._spellings = spellings

    def __missing__(self, key: Any) -> Any:
        own = self._spellings.get(key)
        if own is None:
            raise KeyError(key)
        return self[own]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._spellings

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._spellings.get(key, key), default)


def operator_class(name: str, told: Mapping[str, Any], calls: Calls) -> type:
    """The stand-in for one operator; ``told`` is of ``OperatorParameters``. Without its names of the call's parameters
    it refuses positional arguments, as nobody can name them.
    """
    call, init = told.get("call", ()), told.get("init", ())
    forms, spellings = told.get("forms", ()), told.get("spellings", {})

    class Operator:
        def __init__(self, llm: Any = None, *args: Any, **kwargs: Any) -> None:
            self.llm = llm
            self.name = kwargs.pop("name", name)  # AFlow's second parameter, a label
            self._init = bind(name, init, args, kwargs)

        async def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            for option in aflow.OPTIONS & kwargs.keys():
                if call and option not in call:
                    del kwargs[option]
            names = aflow.form(forms, len(args), kwargs) or call
            result = await calls.call(name, self._init, bind(name, names, args, kwargs))
            return Result(result, spellings) if spellings else result

    Operator.__name__ = Operator.__qualname__ = name
    return Operator


def bind(name: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name; raises ``TypeError`` as a Python call would."""
    if len(args) > len(names):
        raise TypeError(f"{name} takes {len(names)} positional arguments but {len(args)} were given")
    bound = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key in bound:
            raise TypeError(f"{name} got multiple values for argument {key!r}")
        bound[key] = value
    return bound


def run(host: Connection, job: dict[str, Any]) -> str:
    """Build the namespace, run the workflow and return its answer as text."""
    loop = LOOP
    calls = Calls(host, loop)
    operators: dict[str, Any] = {}
    if job["operators"] is None:
        operators["__getattr__"] = lambda name: operator_class(name, {}, calls)
    else:
        for name, told in job["operators"].items():
            operators[name] = operator_class(name, told, calls)
    # The standard module of that name gets them too: a workflow that says ``import operator`` means ours.
    operator.__dict__.update(operators)
    NAMESPACE.update(create_llm_instance=create_llm_instance, DatasetType=str, operator=operator)
    roles: dict[str, aflow.Role] = {}
    for source in (job["source"], job["prompt"]):
        if "import" in source:
            roles.update(aflow.modules(ast.parse(source)))
    sys.meta_path.append(GraphImports(roles, operators, job["prompt"]))
    return loop.run_until_complete(_main(job))


async def _main(job: dict[str, Any]) -> str:
    namespace = execute(job["source"], aflow.MODULE)
    if "Workflow" not in namespace:
        raise NameError("name 'Workflow' is not defined")
    workflow = construct(namespace["Workflow"], job["dataset"])
    value = invoke(workflow, job["problem"], job["entry_point"])
    if inspect.isawaitable(value):
        value = await value
    return answer(value)


def construct(cls: Any, dataset: str) -> Any:
    """An instance, by the parameters of its constructor."""
    function = cls.__dict__.get("__init__") if isinstance(cls, type) else None
    if type(function) is types.FunctionType:
        # inspect.signature tells the same at a tenth of a run's cost.
        code = function.__code__
        if code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount] == AFLOW and not code.co_flags & _STARS:
            return cls("workflow", {}, dataset)
    args, kwargs = constructor_arguments(inspect.signature(cls).parameters.values())
    values = {"name": "workflow", "llm_config": {}, "dataset": dataset, "llm": create_llm_instance()}
    return cls(*(values[kind] for kind in args), **{name: values[kind] for name, kind in kwargs.items()})


def invoke(workflow: Any, problem: str, entry_point: str | None) -> Any:
    """Call by the signature: ``(problem)`` or ``(problem, entry_point)``. Never tried twice."""
    function = type(workflow).__dict__.get("__call__")
    if type(function) is types.FunctionType and not function.__dict__:
        # inspect.signature tells the same at a tenth of a run's cost.
        code = function.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        required = code.co_argcount - 1 - len(function.__defaults__ or ())
        optional = {*names[required : code.co_argcount - 1], *(function.__kwdefaults__ or ())}
        anything = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    else:
        parameters = list(inspect.signature(workflow.__call__).parameters.values())
        names = tuple(p.name for p in parameters)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = sum(p.kind in positional and p.default is p.empty for p in parameters)
        optional = {p.name for p in parameters if p.default is not p.empty}
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if "entry_point" in names[1:]:
        if entry_point is None and "entry_point" in optional:
            return workflow(problem)
        return workflow(problem, entry_point=_given(entry_point))
    if required >= 2:
        return workflow(problem, _given(entry_point))
    if anything and entry_point is not None:
        return workflow(problem, entry_point=entry_point)
    return workflow(problem)


def _given(entry_point: str | None) -> str:
    if entry_point is None:
        raise TypeError("Workflow.__call__ wants an entry_point, but the problem has none: use (self, problem)")
    return entry_point


def answer(value: Any) -> str:
    """The first element of a returned tuple, or the value, as text; ``TypeError`` for what is no answer."""
    if isinstance(value, tuple):
        value = value[0] if value else None
    if isinstance(value, (str, int, float, bool)):
        return str(value)
    if value is None:
        raise TypeError("the workflow returned None instead of an answer")
    if isinstance(value, dict):
        keys = ", ".join(map(repr, value))
        raise TypeError(f"the workflow returned a dict instead of an answer: return one of its values ({keys})")
    raise TypeError(f"the workflow returned a {type(value).__name__} instead of an answer: return a string")
