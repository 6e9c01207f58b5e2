"""TRL's ``GRPOTrainer`` with our environment: reward function, data set, and settings under TRL's names.

docs/integrations.md has a whole program. The reward of a rollout that could not be scored is None: TRL leaves it out of
its group and gives it no advantage.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import picked
from llm_as_judge.integrations.rows import training_rows
from llm_as_judge.integrations.score import RECORD, Scorer
from llm_as_judge.policy.device import resolve_device
from llm_as_judge.policy.weights import load_tokenizer
from llm_as_judge.seeds import derived_seed
from llm_as_judge.types import Rollout

ChatMessage = dict[str, str]


def dataset(config: Config, count: int | None = None) -> Any:
    """Return ``rows.training_rows`` as a Hugging Face data set, of a package that TRL brings."""
    from datasets import Dataset

    return Dataset.from_list(training_rows(config, count))


class WorkflowReward:
    """Asynchronous reward function: the whole reward of each completion, a batch at once.

    Logs terms, accuracy and the unscored share as metrics, and outcomes as a column of the completions table.
    """

    def __init__(self, config: str | Path | Config, overrides: Sequence[str] = ()) -> None:
        self.scorer = Scorer(config, overrides)
        self.__name__ = "workflow_reward"  # name of TRL's metrics
        self._limit = self.scorer.config.training.response_max_length
        self._eos = load_tokenizer(locate_weights(self.scorer.config.base_model.path)).eos_token_id

    async def __call__(
        self, prompts: Sequence[str | Sequence[ChatMessage]], completions: Sequence[str | Sequence[ChatMessage]], *,
        completion_ids: Sequence[Sequence[int]] | None = None, trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None, **columns: Sequence[Any],
    ) -> list[float | None]:  # fmt: skip
        """Reward completions. Raises ``ConfigError`` if the data set has no column ``record``."""
        records = columns.get(RECORD)
        if records is None:
            raise ConfigError(f"the data set has no column {RECORD!r}; create it with integrations.trl.dataset")
        cut = [len(ids) >= self._limit and ids[-1] != self._eos for ids in completion_ids or [()] * len(completions)]
        step, seed = getattr(trainer_state, "global_step", 0), self.scorer.config.training.seed
        scores = [
            self.scorer.score(
                {RECORD: record},
                completion if isinstance(completion, str) else completion[-1]["content"],
                finish_reason="length" if cut[place] else "stop",
                seed=derived_seed(seed, step, record, place),
            )
            for place, (record, completion) in enumerate(zip(records, completions, strict=True))
        ]
        rollouts = await asyncio.gather(*scores)
        if log_metric is not None:
            for name, value in _metrics(rollouts).items():
                log_metric(name, value)
        if log_extra is not None:
            log_extra("outcome", [rollout.execution.outcome for rollout in rollouts])
        # A group with an abstention is left out whole, as in ``rl.credit``.
        pairs = list(zip(records, rollouts, strict=True))
        out = {record for record, rollout in pairs if rollout.verdict.abstained}
        return [None if record in out else rollout.reward.total for record, rollout in pairs]


def _metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return means over scored rollouts; if none were scored, only the unscored share."""
    scored = [rollout for rollout in rollouts if rollout.reward.total is not None]
    found = {"workflow/unscored": 1 - len(scored) / len(rollouts)}
    if scored:
        found["workflow/accuracy"] = fmean(rollout.verdict.correct is True for rollout in scored)
        found["workflow/executor_tokens"] = fmean(rollout.tokens for rollout in scored)
        for term in scored[0].reward.terms:
            found[f"workflow/{term}"] = fmean(rollout.reward.terms.get(term, 0.0) for rollout in scored)
    return found


def grpo_arguments(config: Config) -> dict[str, Any]:
    """Return settings for TRL's ``GRPOConfig`` (1.16): one process, the same batch per step, one group at a time.

    On a CPU they switch off TRL's default bfloat16.
    """
    training, generation = config.training, config.generation
    device = resolve_device(config.model.device)
    gspo = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
    return {
        **(gspo if training.loss_type == "gspo" else {"loss_type": training.loss_type}),
        "use_cpu": device.type == "cpu",
        "model_init_kwargs": {"dtype": "bfloat16" if device.type == "cuda" else "float32"},
        "bf16": device.type == "cuda",
        **picked(training, "seed max_steps learning_rate warmup_steps weight_decay max_grad_norm epsilon beta"),
        **picked(training, "use_bias_correction_kl scale_rewards mask_truncated_completions"),
        **picked(generation, "temperature top_p top_k"),
        "num_generations": training.num_return_sequences_in_group,
        "per_device_train_batch_size": training.num_return_sequences_in_group,
        "gradient_accumulation_steps": training.rollout_batch_size,
        "num_iterations": training.ppo_epochs,
        "lr_scheduler_type": "constant_with_warmup",
        "adam_beta2": 0.99,
        # For cispo, TRL's value caps the ratio itself.
        "epsilon_high": training.epsilon_high + (training.loss_type == "cispo"),
        "max_completion_length": training.response_max_length,
        "shuffle_dataset": False,  # the rows are in the order of the configured mixture
        "chat_template_kwargs": {"enable_thinking": generation.thinking},
    }
