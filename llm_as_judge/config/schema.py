"""Schema of the configuration: strict, frozen, with one description per setting.

``scripts/generate_docs.py`` writes the descriptions to the documentation; ``loading`` fills the schema from files.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, field_validator, model_validator
from pydantic.fields import FieldInfo

from llm_as_judge.config.data import DataConfig
from llm_as_judge.config.endpoints import EndpointConfig, EngineConfig, ExecutorConfig, JudgeConfig
from llm_as_judge.config.fields import MAX_ITEMS, Access, Float, Free, InputPath, Names, OutputPath, Strict, fill_shares

#: Value of ``executor.model`` and ``judge.model`` that names the policy's base weights, if ``provider`` is local.
POLICY = "policy"
#: Most tokens of a user turn: what the policy is told about a failed workflow, and the chat template's own.
USER_TURN = 384
LossType = Literal["grpo", "dapo", "dr_grpo", "cispo", "gspo"]
ScaleRewards = Literal["group", "batch", "none"]
ImportanceSampling = Literal["off", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


class ModelConfig(Strict):
    model_name: str = Field("nano", min_length=1, description="Policy: key of models.yaml, Hugging Face id or folder.")
    lora_rank: int = Field(64, gt=0, le=MAX_ITEMS, description="Rank of the LoRA adapter.")
    lora_alpha: Float = Field(64.0, gt=0, description="LoRA scale: the output is multiplied by alpha / rank.")
    lora_dropout: Float = Field(0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    lora_target_modules: str | Names = Field("all-linear", description="Modules to adapt: all-linear, list or pattern.")
    dtype: Free[Literal["auto", "float32", "bfloat16"]] = Field(
        "auto",
        description="Precision of the base (adapter: float32); auto: bfloat16 on CUDA and CPUs with support (not "
        "for tiny models), else float32.",
    )
    quantization: Literal["none", "nf4", "int8"] = Field(
        "none",
        description="Frozen base weights in 4 (nf4) or 8 bits (int8), by bitsandbytes; dtype is then that of the rest "
        "and of all products.",
    )
    device: Free[str] = Field(
        "auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N."
    )
    gradient_checkpointing: Free[bool] = Field(False, description="Save memory: activations are computed twice.")
    adapter: InputPath | None = Field(
        None, description="Initial adapter: its folder, or a folder of checkpoints for the newest; null: a new one."
    )


class WarmupConfig(Strict):
    """The cold start before GRPO."""

    sft_steps: int = Field(60, gt=0, description="Maximum number of optimiser steps.")
    sft_learning_rate: Float = Field(7e-4, gt=0, le=1, description="Peak learning rate; decays linearly.")
    problems_per_step: int = Field(1, gt=0, le=MAX_ITEMS, description="Problems per step.")
    workflows_per_problem: int = Field(10, gt=0, le=MAX_ITEMS, description="Workflows per problem and step.")
    enough_valid: Float = Field(0.95, gt=0, le=1, description="Share of valid workflows that ends the warm-up.")
    look_every: int = Field(20, gt=0, description="Steps between measurements on held-out problems.")
    varied: Float = Field(1.0, ge=0, le=1, description="Share with varied names and idioms; 0: also one instruction.")
    own_workflows: InputPath | None = Field(None, description="JSONL of domain and workflow; null: generated ones.")


class TrainingConfig(Strict):
    seed: int = Field(0, ge=0, description="Seed of sampling, data order and initial adapter weights.")
    max_steps: Free[int] = Field(100, gt=0, description="Optimiser steps of the whole run.")
    rollout_batch_size: int = Field(4, gt=0, le=MAX_ITEMS, description="Problems per step.")
    num_return_sequences_in_group: int = Field(6, ge=2, le=MAX_ITEMS, description="Workflows sampled per problem (G).")
    ppo_epochs: int = Field(1, gt=0, description="Optimiser steps per batch.")
    learning_rate: Free[Float] = Field(5e-6, gt=0, le=1, description="Peak learning rate of the adapter.")
    warmup_steps: Free[int] = Field(0, ge=0, description="Linear warm-up of the learning rate, in optimiser steps.")
    weight_decay: Float = Field(0.0, ge=0, description="Weight decay of AdamW.")
    max_grad_norm: Free[Float] = Field(1.0, gt=0, description="Maximum gradient norm.")
    epsilon: Float = Field(0.2, gt=0, lt=1, description="Lower clip range of the probability ratio.")
    epsilon_high: Float = Field(0.28, gt=0, description="Upper clip range of the probability ratio.")
    beta: Free[Float] = Field(0.0, ge=0, description="Weight of the KL term to the starting policy; 0 = off.")
    loss_type: LossType = Field("dr_grpo", description="Loss and its normalisation, as in TRL.")
    scale_rewards: ScaleRewards = Field("group", description="Standard deviation that divides advantages.")
    use_bias_correction_kl: bool = Field(True, description="Multiply the KL term by the probability ratio, as in TRL.")
    importance_sampling: ImportanceSampling = Field(
        "sequence_mask", description="Correction of log-probabilities unlike the sampling ones (engine, older weights)."
    )
    importance_sampling_cap: Float = Field(3.0, gt=0, description="Cap of importance weights (truncated or masked).")
    importance_sampling_clip_min: Float = Field(
        0.0, ge=0, description="Lower bound of importance weights (raised to it or masked, as in IcePop); 0 = none."
    )
    lookahead: int = Field(0, ge=0, le=64, description="Batches sampled ahead of the update; 0 = off.")
    rollout_concurrency: Free[int] = Field(64, gt=0, description="Maximum number of workflows run or judged at once.")
    refill_rounds: int = Field(0, ge=0, description="Extra sampling rounds to replace groups of equal rewards (DAPO).")
    shared_prefix: Free[bool | None] = Field(
        None, description="Compute shared prefixes once; null: if it saves tokens and the first batch is equal."
    )
    micro_batch_tokens: Free[int] = Field(16384, gt=0, description="Tokens a pass (CPU: up to 1024); affects rounding.")
    save_every: Free[int] = Field(50, ge=0, description="Steps between checkpoints; 0 = only at the end.")
    keep_checkpoints: Free[int] = Field(0, ge=0, description="Newest checkpoints kept, and the best one; 0 = all.")
    eval_every: Free[int] = Field(0, ge=0, description="Steps between validations; 0 = never.")
    prompt_max_length: int = Field(3072, gt=0, description="Maximum prompt length in tokens.")
    response_max_length: int = Field(1024, gt=0, description="Maximum workflow length in tokens.")
    mask_truncated_completions: bool = Field(
        False, description="Leave cut-off workflows out of loss, divisor and group mean; false: lowest reward."
    )
    max_unscored: Free[Float] = Field(0.5, ge=0, le=1, description="Share of unscored rollouts that pauses a run.")
    patience_s: Free[Float] = Field(900.0, ge=0, description="Total seconds that a paused run waits for its endpoints.")
    shuffle_rewards: bool = Field(False, description="Shuffle the rewards, as a control experiment.")

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingConfig":
        if self.importance_sampling_clip_min >= self.importance_sampling_cap:
            raise ValueError(
                f"importance_sampling_clip_min={self.importance_sampling_clip_min} must be less than "
                f"importance_sampling_cap={self.importance_sampling_cap}"
            )
        return self


class GenerationConfig(Strict):
    temperature: Float = Field(1.0, gt=0, description="Sampling temperature of the policy.")
    eval_temperature: Free[Float] = Field(0.3, ge=0, description="Sampling temperature in evaluations and `solve`.")
    top_p: Float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 = off.")
    top_k: int = Field(0, ge=0, description="Sample from the k most likely tokens; 0 = off.")
    engine: Free[Literal["local", "vllm", "tinker"]] = Field(
        "local", description="Engine that samples the workflows; tinker: a server that also trains the policy."
    )
    thinking: bool = Field(False, description="Thoughts before a workflow, if the chat template knows them (Qwen3).")
    thinking_tokens: int = Field(1024, gt=0, description="Tokens of thoughts after which they are closed by force.")


class WorkflowConfig(Strict):
    operators: Names | None = Field(
        None, min_length=1, description="Operators, your own as package.module:Name or file.py:Name; null = all."
    )
    max_calls: int = Field(24, gt=0, description="Maximum operator calls per workflow.")
    repairs: int = Field(0, ge=0, le=8, description="Times that the policy may rewrite a failed workflow.")
    max_tokens: int | None = Field(None, gt=0, description="Maximum executor tokens per workflow; null = unlimited.")
    max_cost: Float | None = Field(None, gt=0, description="Maximum executor cost per workflow; null = unlimited.")
    enhancer: InputPath | None = Field(None, description="YAML file with the Layer 2 instructions; null = off.")
    layer1: bool = Field(True, description="Operators, rules and guidance in the policy's prompt.")
    show_problem: bool = Field(True, description="The problem in the policy's prompt; false is a control experiment.")
    guidance: InputPath | None = Field(None, description="YAML file with the Layer 1 guidance; null = built in.")
    prompt: Literal["full", "short"] = Field("full", description="Layer 1 prompt: full, or short for the nano policy.")
    prefill: bool = Field(
        False,
        description="Start the policy's reply with the fixed head of the class; with the short prompt, a comment on "
        "what is asked comes next.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "WorkflowConfig":
        if self.prefill and not self.layer1:
            raise ValueError("prefill needs layer1: switch layer1 on or prefill off")
        return self


class SandboxConfig(Strict):
    mode: Free[Literal["auto", "full", "standard", "no-open", "unsafe"]] = Field(
        "auto", description="Confinement; auto: the strictest mode that works here, never unsafe."
    )
    cpu_seconds: int = Field(5, gt=0, le=10**6, description="CPU seconds per run, in hidden tests per call.")
    wall_seconds: Float = Field(30.0, gt=0, le=1e6, description="Wall-clock seconds likewise, without operator calls.")
    memory_mb: int = Field(512, ge=64, le=1 << 30, description="Address space per run in MB.")


class RewardConfig(Strict):
    reward_weights: Mapping[str, Float] = Field(
        {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05},
        description="Weight of each term, 0 for those not named; they sum to 1, repetition is subtracted.",
    )
    token_budget: int = Field(4000, gt=0, description="Executor tokens at which efficiency is 0.")
    repair_cost: Float = Field(0.5, gt=0, description="Taken from the total for each repair of a workflow.")
    functions: Annotated[Mapping[str, Float], "input"] = Field(
        {}, description="Your own reward functions (package.module:function or file.py:function) and their weights."
    )
    function_timeout_s: Float = Field(60.0, gt=0, description="Time limit of one call of a function, in seconds.")

    @field_validator("reward_weights")
    @classmethod
    def _all_terms(cls, weights: Mapping[str, float]) -> Mapping[str, float]:
        return fill_shares("reward_weights", weights, list(cls.model_fields["reward_weights"].default))


class EvaluationConfig(Strict):
    """Additional measurements at the end of a training run; each runs every held-out problem."""

    baselines: Literal["none", "single", "all"] = Field(
        "all", description="none; single: a single call of the executor; all: also each built-in workflow."
    )


class BufferConfig(Strict):
    buffer_size: int = Field(100, gt=0, description="Maximum number of workflows per domain.")
    reward_threshold: Float = Field(8.0, description="Minimum reward of a collected workflow.")
    top_k: int = Field(3, ge=0, description="Examples in a training prompt (no other), if they fit; 0 = only collect.")
    persistence_dir: Access[OutputPath | None] = Field(None, description="Folder of stored buffers; null = not stored.")


class BudgetConfig(Strict):
    """Limits of a run over all its sessions; it stops before the next step, with a checkpoint."""

    max_cost: Float | None = Field(None, gt=0, description="Maximum cost of all models, from their prices.")
    max_tokens: int | None = Field(None, gt=0, description="Maximum tokens of all models, prompts and replies.")
    max_hours: Float | None = Field(None, gt=0, description="Maximum wall-clock hours.")


class TrackingConfig(Strict):
    """Where a run's curves go in addition to its event log."""

    report_to: tuple[Literal["trackio", "wandb", "tensorboard"], ...] = Field(
        (), description="Experiment trackers; each needs the extra of the same name."
    )
    project: str = Field("llm-as-judge", min_length=1, description="Project name in the trackers.")

    @field_validator("report_to", mode="before")
    @classmethod
    def _tools(cls, value: Any) -> Any:
        """Accept one tool without a list, and ``none`` for no tool."""
        named = [value] if isinstance(value, str) else value
        return () if named in (None, ["none"]) else tuple(named) if isinstance(named, list) else named


class OutputConfig(Strict):
    output_dir: OutputPath = Field(Path("checkpoints"), description="Folder of checkpoints: <model>/<run_name>/step_N.")
    log_dir: OutputPath = Field(Path("logs"), description="Folder for event logs.")
    results_dir: OutputPath = Field(Path("results"), description="Folder for results.")
    run_name: str = Field(
        "grpo_mixed", pattern=r"^[A-Za-z0-9][\w.-]*$", description="Name of a run: letters, digits, _, - and dots."
    )


@dataclass(frozen=True, slots=True)
class BaseModelEntry:
    """The policy's weights before training: ``key`` names folders and results, ``path`` is a folder or a hub id."""

    key: str
    path: str


class Config(Strict):
    model: ModelConfig = ModelConfig()
    warmup: WarmupConfig = WarmupConfig()
    training: TrainingConfig = TrainingConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()
    data: DataConfig = DataConfig()
    executor: ExecutorConfig = ExecutorConfig()
    executors: Mapping[str, ExecutorConfig] = {}
    judge: JudgeConfig = JudgeConfig()
    workflow: WorkflowConfig = WorkflowConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    experience_buffer: BufferConfig = BufferConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    budget: BudgetConfig = BudgetConfig()
    tracking: TrackingConfig = TrackingConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="after")
    def _consistent(self) -> "Config":
        if self.generation.thinking and self.workflow.prefill:
            raise ValueError("generation.thinking needs replies that begin freely: set workflow.prefill to false")
        if self.generation.engine == "tinker":
            self._fits_tinker()
        return self

    def _fits_tinker(self) -> None:
        """Refuse what servers of the Tinker API lack or would leave out silently."""
        if not self.engine.base_url:
            raise ValueError("generation.engine=tinker needs the address of a server: set engine.base_url")
        only: dict[str, dict[str, Any]] = {
            "model": {"lora_target_modules": "all-linear", "lora_dropout": 0.0, "quantization": "none"},
            "generation": {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
        }
        if self.workflow.repairs:
            only["training"] = {"lookahead": 0}  # a repair would need weights of an earlier step
        for section, values in only.items():
            for name, value in values.items():
                if (own := getattr(getattr(self, section), name)) != value:
                    raise ValueError(f"{section}.{name}={own} is impossible with a Tinker server; set it to {value}")

    #: Entry of ``models.yaml`` for ``model.model_name``.
    _base_model: BaseModelEntry | None = PrivateAttr(None)
    #: Full names of the settings that the command line gave.
    _given: frozenset[str] = PrivateAttr(frozenset())

    @property
    def base_model(self) -> BaseModelEntry:
        """Key and path of the policy named by ``model.model_name``."""
        name = self.model.model_name
        return self._base_model or BaseModelEntry(Path(name).name, name)

    @property
    def longest_episode(self) -> int:
        """Most tokens of the policy's longest sequence: a prompt and the turns of an episode."""
        training, repairs = self.training, self.workflow.repairs
        thoughts = self.generation.thinking_tokens + USER_TURN if self.generation.thinking else 0
        turns = (1 + repairs) * (thoughts + training.response_max_length) + repairs * USER_TURN
        return training.prompt_max_length + turns

    @property
    def choices(self) -> Mapping[str, ExecutorConfig]:
        """The executors that a workflow may name, and the default under ``""``; empty if there is only that."""
        return {"": self.executor, **self.executors} if self.executors else {}

    @property
    def executor_models(self) -> str:
        """The models of all executors, as results show them: ``gpt-oss-20b, strong=gpt-oss-120b``."""
        return ", ".join([self.executor.model, *(f"{name}={own.model}" for name, own in self.executors.items())])

    def local_roles(self, served: bool = True) -> dict[str, list[EndpointConfig]]:
        """List the roles that each model answers in this process, and with ``served`` the policy on its server."""
        found: dict[str, list[EndpointConfig]] = {}
        for own in self.endpoints().values():
            if own.provider == "local" and (served or own.model != POLICY or self.generation.engine == "local"):
                found.setdefault(own.model, []).append(own)
        return found

    def endpoints(self) -> dict[str, EndpointConfig]:
        """List the models of a run by role: executor, executors.NAME, judge and second judge, if configured."""
        judge, found = self.judge, dict[str, EndpointConfig](executor=self.executor)
        found |= {f"executors.{name}": own for name, own in self.executors.items()}
        if judge.asks_model:
            found["judge"] = judge
            if judge.second_model:
                second: dict[str, Any] = {"model": judge.second_model}
                if judge.second_base_url:
                    second |= {"base_url": judge.second_base_url, "more_urls": (), "provider": "openai"}
                found["second_judge"] = judge.model_copy(update=second)
        return found


SECTIONS: dict[str, type[BaseModel]] = {
    name: typing.cast("type[BaseModel]", field.annotation)
    for name, field in Config.model_fields.items()
    if name != "executors"  # each of them has the settings of ``executor``
}
#: Full name of each setting (a leaf of the schema) to its field.
LEAVES = {f"{section}.{leaf}": field for section, cls in SECTIONS.items() for leaf, field in cls.model_fields.items()}


def field_of(name: str) -> FieldInfo:
    """Find the field of a setting by its full name, which may be ``executors.NAME.leaf``."""
    return LEAVES[f"executor.{name.rpartition('.')[2]}" if name.startswith("executors.") else name]
