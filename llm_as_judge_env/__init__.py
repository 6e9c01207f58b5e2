"""Loaded by verifiers and prime-rl as ``llm-as-judge-env``; see ``llm_as_judge.integrations.verifiers``."""

from llm_as_judge.integrations.verifiers import WorkflowEnv, WorkflowHarness, WorkflowTaskset

__all__ = ["WorkflowEnv", "WorkflowHarness", "WorkflowTaskset"]
