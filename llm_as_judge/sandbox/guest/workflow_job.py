"""The child's side of a workflow run: AFlow's names, and operators whose calls the host answers.

``operator.X(self.llm)`` creates a proxy. Awaiting a call of it sends the name and the arguments and waits for the
result; several calls may be under way at once. Imports as AFlow's graphs write them (``guest.aflow``) resolve to the
same objects, and AFlow's model, its costs and its logger to replacements. Counting and metering are the host's work:
here tokens and costs are always zero.
"""

import asyncio
import inspect
import operator
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.sandbox.guest.runtime import Connection, defined, execute


class OperatorError(Exception):
    """The host refused an operator call; its message says why."""


class Costs:
    """Replaces the cost records of AFlow and MetaGPT."""

    total_cost = total_budget = 0.0
    total_prompt_tokens = total_completion_tokens = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def get_total_cost(self) -> float:
        return self.total_cost

    def get_costs(self) -> "Costs":
        return self

    def get_summary(self) -> dict[str, Any]:
        counts = dict.fromkeys(("total_input_tokens", "total_output_tokens", "total_tokens", "call_count"), 0)
        return {**counts, "total_cost": 0.0, "history": []}


class LLM:
    """Replaces AFlow's model and ``create_llm_instance``, which makes one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cost_manager = self.usage_tracker = Costs()

    def get_usage_summary(self) -> dict[str, Any]:
        return Costs().get_summary()

    async def __call__(self, *args: Any, **kwargs: Any) -> str:
        raise OperatorError("self.llm cannot be called: use an operator")


class Logger:
    """Discards what a graph logs."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


#: The objects behind ``aflow.NAMES``.
OBJECTS: dict[str, Any] = {
    **dict.fromkeys(aflow.NAMES, Any),  # most are only used in annotations
    "create_llm_instance": LLM,
    "AsyncLLM": LLM,
    "CostManager": Costs,
    "logger": Logger(),
    "DatasetType": str,
}


def create_modules(roles: Mapping[str, aflow.Role], operators: Mapping[str, Any], prompt: str) -> None:
    """Make the modules of ``roles`` importable, with the packages around them; ``prompt`` is executed last."""
    contents = {"operators": operators, "names": OBJECTS}
    for name in sorted(roles):
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update({"__path__": [], **contents.get(roles[name], {})})
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)
    for name in roles:
        if roles[name] == "prompt":
            exec(compile(prompt, "<prompt.py>", "exec", dont_inherit=True), sys.modules[name].__dict__)


class PendingCalls:
    """Operator calls under way, by number; replies may arrive in any order."""

    def __init__(self, host: Connection) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._loop.add_reader(host.sock, self._readable)

    async def call(self, name: str, init: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._pending[self._count] = future
        # Blocking, but the host always reads.
        self._host.send({"call": self._count, "operator": name, "init": init, "arguments": arguments})
        return await future

    def _readable(self) -> None:
        reply = self._host.receive()  # a message that has begun arrives whole: the host is trusted
        future = self._pending.pop(reply["call"])
        if future.done():  # cancelled by the workflow
            return
        if "error" in reply:
            future.set_exception(OperatorError(reply["error"]))
        else:
            future.set_result(reply["result"])


class OperatorResult(dict[str, Any]):
    """Result of an operator; ``spellings`` maps keys of other versions of the operator to its own keys."""

    def __init__(self, values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
        super().__init__(values)
        self._spellings = spellings

    def __missing__(self, key: Any) -> Any:
        return self[self._spellings[key]]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._spellings

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._spellings.get(key, key), default)


def operator_class(name: str, parameters: Mapping[str, Any], calls: PendingCalls) -> type:
    """Make the proxy class for one operator; ``parameters`` are the fields of ``OperatorParameters``."""
    names = parameters["call"]

    class Operator:
        def __init__(self, llm: Any = None, *args: Any, **kwargs: Any) -> None:
            self.llm = llm
            self.name = kwargs.pop("name", name)  # AFlow's second parameter, a label
            self._init = bind(name, parameters["init"], args, kwargs)

        async def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            kwargs = {key: value for key, value in kwargs.items() if key not in aflow.OPTIONS or key in names}
            form = aflow.form(parameters["forms"], len(args), kwargs) or names
            result = await calls.call(name, self._init, bind(name, form, args, kwargs))
            return OperatorResult(result, parameters["spellings"])

    Operator.__name__ = Operator.__qualname__ = name
    return Operator


def bind(name: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind all arguments by name; raises ``TypeError`` as a Python call would."""
    if len(args) > len(names):
        raise TypeError(f"{name} takes {len(names)} positional arguments but {len(args)} were given")
    bound = dict(zip(names, args, strict=False))
    if twice := [key for key in kwargs if key in bound]:
        raise TypeError(f"{name} got multiple values for argument {twice[0]!r}")
    return {**bound, **kwargs}


def run(host: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Run the workflow; its answer is text. Tasks that it left behind are not waited for."""
    return {"end": "finished", "answer": asyncio.new_event_loop().run_until_complete(_run(host, job))}


async def _run(host: Connection, job: dict[str, Any]) -> str:
    calls = PendingCalls(host)
    operators = {name: operator_class(name, parameters, calls) for name, parameters in job["operators"].items()}
    # Also in the standard module ``operator``: a workflow that says ``import operator`` means these.
    operator.__dict__.update(operators)
    create_modules(job["modules"], operators, job["prompt"])
    names = {"create_llm_instance": LLM, "DatasetType": str, "operator": operator}
    cls = defined(execute(job["source"], aflow.MODULE, names=names), "Workflow")
    args, kwargs = aflow.constructor_arguments(inspect.signature(cls).parameters.values())
    values = {"name": "workflow", "llm_config": {}, "dataset": job["dataset"], "llm": LLM()}
    workflow = cls(*(values[kind] for kind in args), **{name: values[kind] for name, kind in kwargs.items()})
    value = invoke(workflow, job["problem"], job["entry_point"])
    if inspect.isawaitable(value):
        value = await value
    return answer(value)


def invoke(workflow: Any, problem: str, entry_point: str | None) -> Any:
    """Call the workflow once, as its signature says: with ``problem``, or with ``problem`` and ``entry_point``."""
    parameters = list(inspect.signature(workflow.__call__).parameters.values())
    named = next((p for p in parameters[1:] if p.name == "entry_point"), None)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    if named is not None:
        if entry_point is None and named.default is not named.empty:
            return workflow(problem)
        return workflow(problem, entry_point=_given(entry_point))
    if len(required) >= 2:
        return workflow(problem, _given(entry_point))
    if entry_point is not None and any(p.kind is p.VAR_KEYWORD for p in parameters):
        return workflow(problem, entry_point=entry_point)
    return workflow(problem)


def _given(entry_point: str | None) -> str:
    if entry_point is None:
        raise TypeError("Workflow.__call__ wants an entry_point, but the problem has none: use (self, problem)")
    return entry_point


def answer(value: Any) -> str:
    """Write the returned value, or the first element of a tuple, as text; raises ``TypeError`` for other types."""
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
