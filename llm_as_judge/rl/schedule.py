"""What changes from step to step: the sampling distribution and the learning rate."""

from __future__ import annotations

from llm_as_judge.config.schema import Config, TrainingConfig
from llm_as_judge.policy.scoring import Sampling


def sampling_at(config: Config, step: int) -> Sampling:
    """The distribution that workflows are drawn from after ``step`` finished steps."""
    generation = config.generation
    temperature = generation.temperature
    if generation.final_temperature is not None:
        done = min(1.0, step / max(1, config.training.max_steps - 1))
        temperature += done * (generation.final_temperature - temperature)
    return Sampling(temperature, generation.top_p, generation.top_k)


def learning_rate_at(config: TrainingConfig, update: int) -> float:
    """The rate of the optimiser step after ``update`` earlier ones: a linear warm-up, then constant."""
    share = 1.0 if not config.warmup_steps else min(1.0, (update + 1) / config.warmup_steps)
    return config.learning_rate * share
