"""Exceptions, grouped by whose fault a failure is.

``WorkflowError``: the policy's; lowest reward. ``InfrastructureError``: ours; retried, then the rollout is unscored
(``rl.rollout``). ``ConfigError`` and ``DataError``: the user's; the command stops and says what to change.
"""

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

#: Why an endpoint gave no reply. Retries do not help for ``key``, ``model`` and ``quota``.
Cause = Literal[
    "connection", "timeout", "overload", "server", "reply", "empty", "filter", "key", "model", "quota", "request",
    "context",
]  # fmt: skip

#: Characters of the shortest key that is masked in messages: shorter ones are parts of ordinary words.
_SHORTEST_KEY = 8
_LONGEST_REASON = 400  # characters: torch names every matrix of a model

#: Messages of torch's ``RuntimeError``, on an accelerator and on the CPU.
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory")


class LLMAsJudgeError(Exception):
    """Base of all errors that this package raises deliberately."""


class ConfigError(LLMAsJudgeError):
    """A setting is wrong; the message names key, value, place and cure."""


class DataError(LLMAsJudgeError):
    """Input data cannot be used; the message names file, line and reason."""


class Untested(DataError):
    """A record that its benchmark publishes without tests or answer; others of its file can be used."""


class WorkflowError(LLMAsJudgeError):
    """The policy's workflow failed: invalid, crashed, over time or over budget."""


class BudgetSpent(LLMAsJudgeError):
    """A run has reached its budget; its last step is saved."""


class InfrastructureError(LLMAsJudgeError):
    """Endpoint down or sandbox broken: never scored as a wrong answer.

    ``sandbox.operator_calls`` records it and ``sandbox.host`` makes the outcome ``fault``, which gets no reward. An
    unreadable reply of the judge is no error but an abstention (``judging.llm_judge``).
    """


class ProviderError(InfrastructureError):
    """An LLM endpoint gave no usable reply after all retries; ``cause`` is the kind of failure, ``said`` the beginning
    of what the endpoint said, which may repeat a key.
    """

    def __init__(self, message: str, cause: Cause = "reply", said: str = "") -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.said = said or message


class RequestRefused(ProviderError):
    """The endpoint refuses the request itself (HTTP 400 or 422); another form of it may work."""


class PromptRefused(ProviderError):
    """The endpoint refuses this prompt, but not others; within a workflow a ``WorkflowError`` (``workflow.run``).

    With the ``cause`` "context" it does not fit the model's.
    """


class SandboxFault(InfrastructureError):
    """The sandbox itself failed (protocol, zygote gone), not the code it ran."""


def without_key(text: str, key: str, mask: str = "***") -> str:
    """Replace every ``key`` in ``text`` that is not part of a longer word by ``mask``."""
    return re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", mask, text) if len(key) >= _SHORTEST_KEY else text


def is_out_of_memory(error: Exception) -> bool:
    in_torch = isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None
    return in_torch or isinstance(error, MemoryError)


@contextmanager
def refusing(refusal: type[LLMAsJudgeError], what: str, cure: str) -> Iterator[None]:
    """Raise ``refusal``, one line with the reason, for any error in the block other than a lack of memory.

    For files read by libraries that raise errors of many types for damaged ones.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error) or isinstance(error, refusal):
            raise
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        if isinstance(error, pickle.UnpicklingError):
            reason = "it contains more than tensors"  # torch would advise to run the code in it
        elif not isinstance(error, (OSError, ValueError)):
            reason = f"{type(error).__name__}: {reason}"
        raise refusal(f"{what}: {reason}; {cure}") from error
