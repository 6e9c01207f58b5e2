"""What a training run may set, checked; the parts it works with are handed to ``rl.trainer`` apart."""

from __future__ import annotations

from dataclasses import dataclass

from llm_as_judge.errors import ConfigError
from llm_as_judge.rl.advantage import Scale
from llm_as_judge.rl.loss import ImportanceSampling, KLEstimator, LossType


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """The ``training`` and ``generation`` sections of the configuration, under the same names."""

    seed: int = 0
    max_steps: int = 100
    rollout_batch_size: int = 4
    num_return_sequences_in_group: int = 6
    ppo_epochs: int = 1
    learning_rate: float = 5e-6
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    epsilon: float = 0.2
    epsilon_high: float = 0.28
    beta: float = 0.0
    loss_type: LossType = "dr_grpo"
    scale_rewards: Scale = "group"
    kl_estimator: KLEstimator = "k3"
    importance_sampling: ImportanceSampling = "sequence_mask"
    importance_sampling_cap: float = 3.0
    refill_rounds: int = 0
    micro_batch_tokens: int = 16384
    save_every: int = 50
    eval_every: int = 0
    prompt_max_length: int = 3072
    response_max_length: int = 1024
    shuffle_rewards: bool = False
    temperature: float = 1.0
    final_temperature: float | None = None  # reached linearly at the last step
    top_p: float = 1.0
    top_k: int = 0
    shared_prefix: bool | None = None  # None: on the CPU, where it forwards fewer tokens
    stop_on_alarm: bool = False  # of the audit of the judge
    collapse_ratio: float = 0.5  # stop where the average valid rate falls below this share of its best
    collapse_patience: int = 5  # steps before the canary may stop a run

    def temperature_at(self, step: int) -> float:
        """Sampling temperature of the step after ``step`` finished ones."""
        if self.final_temperature is None:
            return self.temperature
        done = min(1.0, step / max(1, self.max_steps - 1))
        return self.temperature + done * (self.final_temperature - self.temperature)

    def __post_init__(self) -> None:
        if self.final_temperature is not None and self.final_temperature <= 0:
            raise ConfigError(
                f"generation.final_temperature={self.final_temperature} must be > 0: no contrast otherwise"
            )
        if self.temperature <= 0:
            raise ConfigError(f"generation.temperature={self.temperature} must be > 0: no contrast otherwise")
        for name in ("rollout_batch_size", "ppo_epochs", "micro_batch_tokens", "response_max_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"training.{name}={getattr(self, name)} must be >= 1")
        if self.num_return_sequences_in_group < 2:
            raise ConfigError(
                f"training.num_return_sequences_in_group={self.num_return_sequences_in_group} must be >= 2: "
                "an advantage is relative to the group"
            )
