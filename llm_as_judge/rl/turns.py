"""Repair turns: the policy is told what went wrong and writes the whole workflow again.

The prompt of a turn is the ids of the earlier ones, as sampled, and those of a user turn: nothing is decoded and
tokenised again. An episode is one sequence, of which the policy's own tokens are trained on (``Completion.mask``).
"""

from collections.abc import Sequence

from llm_as_judge.policy.chat import joined
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.rl.rollout import Engine
from llm_as_judge.types import Completion


def next_turns(
    policy: Policy,
    engine: Engine,
    completions: Sequence[Completion],
    told: Sequence[str],
    *,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> list[Completion]:
    """Each of ``completions`` with one more turn, by the engine's current weights, after what it is ``told``."""
    prompts = [policy.told(completion, text) for completion, text in zip(completions, told, strict=True)]
    turns = engine.generate(prompts, 1, sampling=sampling, max_new_tokens=max_new_tokens, seed=seed)
    return [joined(*parts) for parts in zip(completions, prompts, (turn for (turn,) in turns), strict=True)]
