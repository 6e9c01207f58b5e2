"""Runs a workflow's text on a question: lint, sandbox, operators, metering.

The runner sees a ``Question``, never a ``Reference``. Tokens, cost and calls are counted here, on the host; the cost
that a workflow returns is ignored. The text is run unchanged or not at all.

    execution = await WorkflowRunner(llm, sandbox, config.workflow, config.executor).run(source, question)
"""

import copy
import inspect
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import (
    ConfigError,
    InfrastructureError,
    LLMAsJudgeError,
    PromptRefused,
    SandboxFault,
    WorkflowError,
)
from llm_as_judge.files import cut, picked
from llm_as_judge.llm.client import TEMPLATE_TOKENS, ChatModel
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox, no_enhancement
from llm_as_judge.operators.prompts import prompts_of
from llm_as_judge.sandbox.guest import frames
from llm_as_judge.sandbox.host import BudgetExceeded, CodeResult, OperatorParameters, Sandbox
from llm_as_judge.sandbox.results import KEPT, KEPT_OF_ERROR
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Crash, Exchange, Execution, OperatorCall, Question
from llm_as_judge.workflow.feedback import feedback
from llm_as_judge.workflow.lint.check import lint

#: LLM calls a workflow may cause for each operator call it may make (Programmer and Test need up to 3).
_LLM_CALLS_PER_CALL = 4
#: Texts whose facts are cached, because a trained policy writes the same ones again and again.
_LINTED = 1024
_FACTS = "findings shape digest"  # those that an execution has


class Executor(NamedTuple):
    """A model that operators may ask, its prices and its longest reply."""

    llm: ChatModel
    config: EndpointConfig


class WorkflowRunner:
    """Runs any number of workflows at once; holds no state between them.

    Args:
        config: the operators a workflow may use, and what it may spend; beyond that, the outcome is ``budget``.
        executor: the prices of ``llm`` and its longest reply.
        named: further executors, by the name with which a workflow chooses them for an operator.
        enhance: Layer 2, ``(operator, domain) -> instruction``.

    Raises ``ConfigError`` for ``config.operators`` that are not operators.
    """

    def __init__(
        self, llm: ChatModel, sandbox: Sandbox, config: WorkflowConfig, executor: EndpointConfig,
        enhance: Callable[[str, str], str] = no_enhancement, named: Mapping[str, Executor] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.executors: Mapping[str, Executor] = {"": Executor(llm, executor), **named}
        self.sandbox = sandbox
        self.enhance = enhance
        self.config = config
        self.operators = operators = catalog.load_operators(config.operators)
        self._prompt = ""
        self._temperature: float | None = None  # None: the executor's
        self._read = lru_cache(_LINTED)(partial(lint, operators=operators, executors=tuple(named)))
        self._parameters: dict[str, OperatorParameters] = {}
        for name, cls in operators.items():
            call, init, other = catalog.signature(cls), catalog.init_signature(cls), catalog.published(name)
            parameters = OperatorParameters(
                tuple(call.parameters), tuple(init.parameters), other.forms, other.spellings
            )
            self._parameters |= dict.fromkeys((name, *other.names), parameters)

    def beside(self, prompt: str) -> "WorkflowRunner":
        """Return this runner for workflows that may import a ``prompt.py`` with this text."""
        runner = copy.copy(self)
        runner._prompt = prompt
        return runner

    def at_temperature(self, temperature: float) -> "WorkflowRunner":
        """Return this runner with another temperature of the executor."""
        runner = copy.copy(self)
        runner._temperature = temperature
        return runner

    def refuse(self, source: str, question: Question) -> Execution | None:
        """Return the outcome ``invalid`` of a workflow in which lint finds a fatal fault; None if it may run."""
        facts = self._read(source, entry_point=question.entry_point, prompt=self._prompt)
        fatal = [f"{f.code} line {f.line}: {f.message}" for f in facts.findings if f.fatal]
        return Execution("invalid", None, error="; ".join(fatal), **picked(facts, _FACTS)) if fatal else None

    async def feedback(self, execution: Execution, question: Question) -> str:
        """Say what the policy is told about an attempt (``workflow.feedback``); empty if there is nothing to repair."""
        return await feedback(execution, question, self.run_code)

    async def run_code(self, source: str, **kwargs: Any) -> CodeResult:
        """Call ``Sandbox.run_code``; raises ``InfrastructureError`` if the sandbox fails."""
        with _ours("the sandbox"):
            result = await self.sandbox.run_code(source, **kwargs)
        if result.outcome == "fault":
            raise SandboxFault(result.error)
        return result

    async def run(self, source: str, question: Question, seed: int | None = None) -> Execution:
        """Lint and run; a fatal finding gives outcome ``invalid`` without a run. With a ``seed``, each request to the
        executor has its own seed, which depends on the prompt and not on the order of calls.
        """
        if refused := self.refuse(source, question):
            return refused
        facts = self._read(source, entry_point=question.entry_point, prompt=self._prompt)
        calls = _Calls(self, question, seed)
        result = await self.sandbox.run_workflow(
            source, question, self.config, calls.call, self._parameters, self._prompt, facts.modules
        )
        finished = tuple(record.finished() for record in calls.records)
        crashes = tuple(record.crash for record in calls.records if record.crash)
        return replace(result, calls=finished, crashes=crashes, **picked(facts, _FACTS))


class _Calls:
    """The operator calls of one run."""

    def __init__(self, runner: WorkflowRunner, question: Question, seed: int | None) -> None:
        self.records: list[_Call] = []
        self.runner = runner
        self.question = question
        self.seed = seed
        self.sent: Counter[tuple[str, str]] = Counter()  # executors and prompts, including those under way
        self.budget = Budget(runner.config)

    async def call(self, name: str, init: dict[str, Any], arguments: dict[str, Any]) -> Mapping[str, Any]:
        """Answer the sandbox. A failure of executor or sandbox, ``InfrastructureError``, ends the run as ``fault``;
        any other error is the workflow's and is raised there (``sandbox.operator_calls``).
        """
        runner, name = self.runner, catalog.own_name(name)
        operator = runner.operators.get(name)
        if operator is None:
            raise WorkflowError(f"there is no operator {name!r}; there are {', '.join(runner.operators)}")
        arguments = _checked(name, catalog.signature(operator), catalog.filled_in(name, arguments, self.question))
        chosen, init = _chosen(name, operator, init, [*filter(None, runner.executors)])
        init = _checked(name, catalog.init_signature(operator), init)
        record = _Call(self, name, arguments, chosen)
        self.records.append(record)
        prompts = prompts_of(runner.executors[chosen].config)
        tools = Toolbox(record, runner.run_code, self.question, runner.enhance, prompts)
        try:
            result = await operator(tools, **init)(**arguments)
            if missing := [key for key in operator.RESULT if key not in result]:
                raise ConfigError(f"its result lacks {', '.join(missing)}, which its RESULT names")
            whole = {**catalog.COMMON, **result}
            if (last := record.exchanges[-1:]) and last[0].finish_reason == "length":
                error = f"the model's reply was cut off after {last[0].completion_tokens} tokens"
                whole |= {"parse_ok": False, "error": error}
            frames.encode(whole)  # raises for what is no JSON data
            record.result = whole
            record.error = str(whole["error"])
        except Exception as error:  # recorded, then raised
            record.error = f"{type(error).__name__}: {error}"
            if isinstance(error, LLMAsJudgeError) and not isinstance(error, ConfigError):
                raise
            if name not in catalog.OPERATORS:
                record.crash = _crash(name, operator, error)
            raise WorkflowError(f"{name}: {error if type(error) is ValueError else record.error}") from error
        finally:
            record.seconds = time.monotonic() - record.started
        return record.result


@dataclass
class _Call:
    """One operator call under way, and its connection to the executor; its exchanges are kept if it fails."""

    of: _Calls
    name: str
    arguments: Mapping[str, Any]
    executor: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    error: str = "the run ended before this call came back"
    crash: Crash | None = None

    def finished(self) -> OperatorCall:
        seconds = time.monotonic() - self.started if self.seconds is None else self.seconds
        weight, exchanges = 1.0, tuple(self.exchanges)
        if self.executor:
            default = self.of.runner.executors[""].config
            usual = sum(default.cost(e.prompt_tokens, e.completion_tokens) for e in exchanges)
            weight = round(sum(e.cost for e in exchanges) / usual, 9) if usual else 1.0
        return OperatorCall(
            self.name, self.arguments, self.result, exchanges, seconds, self.error, self.executor, weight
        )

    async def chat(self, prompt: str) -> Exchange:
        """Call the executor model once, counted and within the budget."""
        run, runner, (llm, config) = self.of, self.of.runner, self.of.runner.executors[self.executor]
        most = _LLM_CALLS_PER_CALL * runner.config.max_calls
        if run.sent.total() >= most:
            raise BudgetExceeded(f"over {most} calls of the executor")
        with run.budget.call(prompt, config) as reserved:
            # The length is only sent if the budget shortens the reply.
            limit = reserved.reply_tokens if reserved.reply_tokens < config.max_tokens else None
            sent = self.executor, prompt
            seed = None if run.seed is None else derived_seed(run.seed, prompt, run.sent[sent])
            run.sent[sent] += 1
            try:
                with _ours("the client of the executor"):
                    reply = await llm.chat(prompt, temperature=runner._temperature, max_tokens=limit, seed=seed)
            except PromptRefused as error:
                who = f"executor {self.executor}" if self.executor else "the executor"
                why = f"does not fit {who}'s context" if error.cause == "context" else f"is refused by {who}"
                why += f" ({error})" if config.provider == "local" else ""  # another's text may have addresses
                raise WorkflowError(f"{self.name}: a prompt of {len(prompt)} characters {why}") from error
            reserved.tokens, reserved.cost = reply.prompt_tokens + reply.completion_tokens, reply.cost
        self.exchanges.append(replace(reply, prompt=cut(prompt, KEPT), reply=cut(reply.reply, KEPT)))
        return reply


@dataclass(slots=True)
class _Reservation:
    """A call under way: the longest reply it may request and, when it has returned, what it used."""

    reply_tokens: int
    tokens: int = 0
    cost: float = 0.0


@dataclass
class Budget:
    """Tokens and cost of one run, at most ``config.max_tokens`` and ``config.max_cost``.

    Each call's worst case is reserved before the call is made, so that the sum stays below the limit with any number of
    concurrent calls. A call whose longest reply does not fit gets a shorter one; if not even one token is left, the run
    ends. The executor of a call has its prices and its longest reply.
    """

    config: WorkflowConfig
    tokens: int = 0  # spent and reserved
    cost: float = 0.0

    @contextmanager
    def call(self, prompt: str, executor: EndpointConfig) -> Iterator[_Reservation]:
        """Reserve a call's worst case; on leaving, replace it by what the caller has set.

        Raises ``BudgetExceeded`` if not even one token of reply is left.
        """
        input_price, price = (executor.cost(*one) for one in ((1, 0), (0, 1)))
        # No tokenizer makes more tokens than there are bytes.
        size = len(prompt) if prompt.isascii() else len(prompt.encode("utf-8", "replace"))  # the same, with no copy
        prompt_tokens = size + TEMPLATE_TOKENS
        most_tokens = math.inf if self.config.max_tokens is None else self.config.max_tokens
        most_cost = math.inf if self.config.max_cost is None else self.config.max_cost
        money = most_cost - self.cost - prompt_tokens * input_price
        affordable = money / price if price else math.copysign(math.inf, money)
        left = most_tokens - self.tokens - prompt_tokens
        longest = math.floor(max(0, min(executor.max_tokens, left, affordable)))
        if longest < 1:
            spent = f"{self.tokens} executor tokens of {most_tokens}; cost {self.cost:.4g} of {most_cost:g}"
            raise BudgetExceeded(f"{spent} spent or reserved: no further call fits")
        tokens, cost = prompt_tokens + longest, prompt_tokens * input_price + longest * price
        self.tokens += tokens
        self.cost += cost
        reservation = _Reservation(longest)
        try:
            yield reservation
        finally:
            self.tokens += reservation.tokens - tokens
            self.cost += reservation.cost - cost


@contextmanager
def _ours(what: str) -> Iterator[None]:
    """Raise any other error than the package's own as ``InfrastructureError``: it is a bug of ``what``."""
    try:
        yield
    except LLMAsJudgeError:
        raise
    except Exception as error:
        raise InfrastructureError(f"{what} failed: {type(error).__name__}: {error}") from error


def _crash(name: str, operator: Any, error: Exception) -> Crash | None:
    """Record an operator's exception; None if its own ``raise`` of a ``ValueError`` refuses the arguments."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = last.filename == inspect.getfile(operator.__call__)
    if isinstance(error, ValueError) and own and (last.line or "").startswith("raise "):
        return None
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Crash(name, f"{type(error).__name__}, {last.filename}, line {last.lineno}", cut(text, KEPT_OF_ERROR))


def _chosen(name: str, operator: Any, init: Mapping[str, Any], known: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Return the executor that a constructor names ("" for none), and its other arguments."""
    words = catalog.executor_words(operator) if known else []
    named = [init[word] for word in words if init.get(word) is not None]
    if unknown := [one for one in named if one not in known]:
        raise WorkflowError(f"{name}: {catalog.no_executor(unknown[0], known)}")
    if named[1:] and named[0] != named[1]:
        raise WorkflowError(f"{name}: executor={named[0]!r} and model={named[1]!r} name two executors; give one")
    return "".join(named[:1]), {key: value for key, value in init.items() if key not in words}


def _checked(name: str, signature: inspect.Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Fit arguments to the signature and its types; text parameters accept any value, as a format string does."""
    try:
        bound = signature.bind(**arguments)
    except TypeError as error:
        raise WorkflowError(f"{name}: {error}") from None
    checked: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        kind = catalog.type_word(signature.parameters[key])
        if kind == "str":
            value = value if isinstance(value, str) else str(value)
        elif kind.startswith("list") and not isinstance(value, list):
            raise WorkflowError(f"{name}: {key} must be a list, got {type(value).__name__}")
        elif kind == "list[str]" and (whole := next((item for item in value if isinstance(item, dict)), None)):
            keys = ", ".join(repr([own]) for own in whole if own not in catalog.COMMON)
            raise WorkflowError(f"{name}: {key} must hold texts, got a dict; take {keys[:200]}")
        elif kind == "int" and (not isinstance(value, int) or isinstance(value, bool)):
            raise WorkflowError(f"{name}: {key} must be an integer, got {value!r}")
        checked[key] = value
    return checked
