"""verl's agent loop of our rows, and the advantages that go with it. verl loads this module as a plugin."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import uuid4

import numpy as np
import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est
from verl.utils.profiler import simple_timer

from llm_as_judge.errors import InfrastructureError
from llm_as_judge.integrations.verl import AGENT, Actor
from llm_as_judge.types import Attempt


@cache
def _scores(config: str, overrides: tuple[str, ...]) -> Any:
    """Return the cluster's actor. The first worker starts it, Ray again if it crashes, and it ends with that worker."""
    options = {"max_concurrency": 10_000, "max_restarts": -1, "max_task_retries": -1, "get_if_exists": True}
    return ray.remote(Actor).options(name=" ".join((AGENT, config, *overrides)), **options).remote(config, overrides)


@register(AGENT)
class WorkflowLoop(AgentLoopBase):
    """An episode: the policy's workflows, with a user turn before each repair. Every node can read ``config``."""

    def __init__(self, config: str = "config/training.yaml", overrides: Sequence[str] = (), **given: Any) -> None:
        super().__init__(**given)
        self._scores = _scores(config, tuple(overrides))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        messages, attempts, metrics, request = list(row["raw_prompt"]), list[Attempt](), dict[str, float](), uuid4().hex
        room, priority, extra = self.rollout_config.response_length, int(row.get("priority", 0)), row["extra_info"]
        place = extra["id"], int(row.get("session_id", priority))
        tokens = start = await self.ct_build_initial_tokens(messages)
        mask, logprobs = list[int](), list[float]() if sampling_params.get("logprobs") else None
        while True:
            left = room - len(mask)
            asked = {"prompt_ids": tokens, "sampling_params": {**sampling_params, "max_tokens": left}}
            with simple_timer("generate_sequences", metrics):
                reply = await self.server_manager.generate(request, **asked, priority=priority)
            if reply.stop_reason in ("abort", "aborted"):
                raise InfrastructureError("verl's server broke off a reply")
            new = reply.token_ids
            merged, mask, logprobs = await self.ct_merge_assistant_token(tokens, new, mask, logprobs, reply.log_probs)
            tokens, text = merged.token_ids, self.tokenizer.decode(new, skip_special_tokens=True)
            cut = len(new) >= left and new[-1] != self.tokenizer.eos_token_id
            said = extra["record"], text, "length" if cut else "stop", place, tuple(attempts)
            with simple_timer("compute_score", metrics):
                ended = await self._scores.turn.remote(*said)
                if not isinstance(ended, Attempt):
                    break
                told = [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": ended.told}]
                merged, *turn = await self.ct_merge_context_msg(told[:-1], told, tokens, mask, logprobs)
                if len(turn[0]) >= room:
                    ended = await self._scores.turn.remote(*said, last=True)
                    break
            messages, tokens, (mask, logprobs) = told, merged.token_ids, turn
            attempts.append(ended)
        reward, figures = ended
        return AgentLoopOutput(
            prompt_ids=start,
            response_ids=tokens[len(start) :],
            response_mask=[0] * len(mask) if reward is None else mask,
            response_logprobs=logprobs,
            reward_score=reward or 0.0,  # verl needs a number
            num_turns=2 + 2 * len(attempts),
            metrics=metrics,
            extra_fields={**reply.extra_fields, "reward_extra_info": figures, "turn_scores": [], "tool_rewards": []},
        )


@register_adv_est("grpo_scored")
def scored_advantages(token_level_rewards: Any, response_mask: Any, index: Any, config: Any, **_: Any) -> Any:
    """Apply verl's GRPO to the scored rollouts of each group; 0 for the others, and for one that is alone."""
    groups = np.where(response_mask.any(-1).numpy(force=True), index, "unscored")
    sizes = Counter(groups)
    several = response_mask.new_tensor([[sizes[group] > 1] for group in groups])
    return compute_grpo_outcome_advantage(
        token_level_rewards, response_mask * several, groups, norm_adv_by_std_in_grpo=config.norm_adv_by_std_in_grpo
    )
