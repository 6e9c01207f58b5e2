"""verifiers (0.4) with this project's environment, so that prime-rl and verifiers' own commands can use it.

    vf-eval llm-as-judge-env --env.taskset.task.config config/training.yaml -m MODEL --client.base-url URL --no-push

The policy's whole reply is the workflow; with ``workflow.repairs`` it is told why one failed, in another turn. What
could not be scored raises: verifiers records the error without a reward, and prime-rl leaves it out of training.
"""

from llm_as_judge_env.harness import WorkflowEnv, WorkflowHarness
from llm_as_judge_env.taskset import WorkflowTaskset

__all__ = ["WorkflowEnv", "WorkflowHarness", "WorkflowTaskset"]
