"""Whose fault a failure is decides what it costs.

``WorkflowError`` is the policy's (scored at the floor); ``InfrastructureError`` is ours (retried, then
unscored); ``ConfigError`` and ``DataError`` are the user's to mend and stop the command with the cure.
"""

from __future__ import annotations

from typing import Literal

#: Why an endpoint gave no reply. ``key``, ``model`` and ``quota`` stay until a person mends them.
Cause = Literal["connection", "timeout", "overload", "server", "reply", "key", "model", "quota", "request", "context"]


class LLMAsJudgeError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(LLMAsJudgeError):
    """A setting is wrong; the message names key, value, place and cure."""


class DataError(LLMAsJudgeError):
    """Input data cannot be used; the message names file, line and reason."""


class WorkflowError(LLMAsJudgeError):
    """The policy's text is at fault: invalid, crashed, over time or over budget."""


class BudgetSpent(LLMAsJudgeError):
    """A run has cost what it may; its last step is saved."""


class InfrastructureError(LLMAsJudgeError):
    """Ours: provider down, judge unparsable, sandbox fault. Never scored as a wrong answer."""


class ProviderError(InfrastructureError):
    """An LLM endpoint did not answer usefully after all retries; ``cause`` is the kind of failure."""

    def __init__(self, message: str, cause: Cause = "reply") -> None:
        super().__init__(message)
        self.cause: Cause = cause


class RequestRefused(ProviderError):
    """The endpoint refuses this very request (HTTP 400 or 422): sending it again cannot help, another form may."""


class PromptTooLong(ProviderError):
    """The prompt does not fit the model's context; a shorter one would."""


class SandboxFault(InfrastructureError):
    """The sandbox itself failed (protocol, zygote gone), not the code it ran."""
