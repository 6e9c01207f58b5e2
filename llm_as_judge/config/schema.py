"""Schema of the configuration: strict, frozen, with one description per setting.

The documentation is generated from the descriptions (``describe``); ``loading`` fills the schema from files.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from typing_extensions import Self

from llm_as_judge.types import DOMAINS, Domain

DEFAULT_API_KEY = "sk-dummy"
LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "gspo"]
ScaleRewards = Literal["group", "batch", "none"]
ImportanceSampling = Literal["off", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


def _float(value: Any) -> Any:
    """Read ``5e-6`` as a number: YAML 1.1, which PyYAML reads, makes it a string because it has no dot."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _path(value: Any) -> Any:
    return Path(value).expanduser() if isinstance(value, str) and value else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Input:
    """Marks a setting that names files to read; in a configuration file, paths are relative to that file."""


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        right = not value or (parts.hostname and parts.port != 0)
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}; write http://HOST:PORT/v1") from None
    if not right:
        raise ValueError("is not a URL; write http://HOST:PORT/v1")
    return value


#: Largest integer that kernel limits, sockets and tensors accept.
_MAX_INT = 2**31 - 1
#: Largest float; single-precision tensors can still calculate with it.
_MAX_FLOAT = 1e18
#: Largest number of things held in memory at once.
_MAX_ITEMS = 1 << 16
Url = Annotated[str, AfterValidator(_url)]
Urls = Annotated[tuple[Url, ...], BeforeValidator(_tuple)]
Float = Annotated[float, BeforeValidator(_float)]
InputPath = Annotated[Path, BeforeValidator(_path), Input()]
OutputPath = Annotated[Path, BeforeValidator(_path)]


def _tools(value: Any) -> Any:
    """Accept one tool without a list, and ``none`` for no tool."""
    named = [value] if isinstance(value, str) else value
    return _tuple([] if named in (None, ["none"]) else named)


Names = Annotated[tuple[str, ...], BeforeValidator(_tuple)]


def _check_shares(name: str, shares: Mapping[Any, float], members: Sequence[str]) -> None:
    missing = [member for member in members if member not in shares]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}; give a share to each, 0 to leave one out")
    if min(shares.values()) < 0:
        raise ValueError(f"{name} must not be negative, got {dict(shares)}")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ValueError(f"{name} must sum to 1, got {sum(shares.values()):g}")


class _Strict(BaseModel):
    # protected_namespaces: pydantic would otherwise warn about ``model_name``
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        for name, value in self:
            if isinstance(value, int) and value > _MAX_INT:
                raise ValueError(f"{name} must be at most {_MAX_INT}, got {value}")
            if isinstance(value, float) and abs(value) > _MAX_FLOAT:
                raise ValueError(f"{name} must be at most {_MAX_FLOAT:g}, got {value:g}")
        return self


class ModelConfig(_Strict):
    model_name: str = Field(
        "nano", min_length=1, description="Policy: a key of models.yaml, a Hugging Face id or a folder."
    )
    lora_rank: int = Field(64, gt=0, le=_MAX_ITEMS, description="Rank of the LoRA adapter.")
    lora_alpha: Float = Field(64.0, gt=0, description="LoRA scale: the adapter's output is multiplied by alpha / rank.")
    lora_dropout: Float = Field(0.0, ge=0, lt=1, description="Dropout on the adapter's input.")
    lora_target_modules: str | Names = Field(
        "all-linear", description="Modules with an adapter: all-linear, a list, or a regular expression."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Precision of the base weights; auto: bfloat16 on CUDA and, except for tiny models, on CPUs "
        "that support it; otherwise float32.",
    )
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="Device: auto, cpu, mps, cuda or cuda:N."
    )
    gradient_checkpointing: bool = Field(
        False, description="Recompute activations in the backward pass: less memory, more time."
    )
    adapter: InputPath | None = Field(
        None,
        description="Adapter to start from: its folder, or a folder of checkpoints such as `warmup` writes (the "
        "newest is used); null: a new adapter.",
    )


class WarmupConfig(_Strict):
    """The cold start before GRPO."""

    sft_steps: int = Field(60, gt=0, description="Maximum number of optimiser steps.")
    sft_learning_rate: Float = Field(7e-4, gt=0, le=1, description="Peak learning rate; decays linearly.")
    problems_per_step: int = Field(1, gt=0, le=_MAX_ITEMS, description="Problems per step.")
    workflows_per_problem: int = Field(10, gt=0, le=_MAX_ITEMS, description="Workflows per problem and step.")
    look_every: int = Field(
        20, gt=0, description="Steps between measurements of held-out loss, valid rate and workflow shapes."
    )
    look_problems: int = Field(12, gt=0, le=_MAX_ITEMS, description="Held-out problems for these measurements.")
    look_samples: int = Field(
        4, gt=0, le=_MAX_ITEMS, description="Workflows sampled per held-out problem, at temperature 1."
    )
    varied: Float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of generated workflows with varied names and idioms; the others use one fixed style, "
        "which a small policy learns sooner.",
    )
    own_workflows: InputPath | None = Field(
        None,
        description="JSONL file of your own workflows (domain, workflow); null: generated workflows of many shapes.",
    )


class TrainingConfig(_Strict):
    seed: int = Field(0, ge=0, description="Seed of sampling, data order and initial adapter weights.")
    max_steps: int = Field(100, gt=0, description="Optimiser steps of the whole run.")
    rollout_batch_size: int = Field(4, gt=0, le=_MAX_ITEMS, description="Problems per step.")
    num_return_sequences_in_group: int = Field(6, ge=2, le=_MAX_ITEMS, description="Workflows sampled per problem (G).")
    ppo_epochs: int = Field(1, gt=0, description="Updates per batch; 1 = online learning.")
    learning_rate: Float = Field(5e-6, gt=0, le=1, description="Peak learning rate of the adapter.")
    warmup_steps: int = Field(0, ge=0, description="Linear warm-up of the learning rate, in steps.")
    weight_decay: Float = Field(0.0, ge=0, description="Weight decay of AdamW.")
    max_grad_norm: Float = Field(1.0, gt=0, description="Maximum gradient norm.")
    epsilon: Float = Field(0.2, gt=0, lt=1, description="Lower clip range of the probability ratio.")
    epsilon_high: Float = Field(0.28, gt=0, description="Upper clip range of the probability ratio.")
    beta: Float = Field(0.0, ge=0, description="Weight of the KL term to the starting policy; 0 = off.")
    loss_type: LossType = Field("dr_grpo", description="Loss and its normalisation, as in TRL.")
    scale_rewards: ScaleRewards = Field(
        "group",
        description="Standard deviation that divides advantages: the group's, the batch's, or none.",
    )
    kl_estimator: Literal["k3", "k1"] = Field("k3", description="Estimator of the KL term.")
    use_bias_correction_kl: bool = Field(
        True, description="Multiply the KL term by the probability ratio, which makes its gradient unbiased; as in TRL."
    )
    importance_sampling: ImportanceSampling = Field(
        "sequence_mask",
        description="Correction for different log-probabilities of engine and trainer, as in TRL.",
    )
    importance_sampling_cap: Float = Field(
        3.0, gt=0, description="Importance weight above which a token or sequence is truncated or masked."
    )
    lookahead: int = Field(
        0,
        ge=0,
        le=64,
        description="Batches sampled ahead of the one in training, to keep the executor busy; a batch is that many "
        "steps old when trained on; 0 = off.",
    )
    stale_policy: Literal["behaviour", "truncate"] = Field(
        "truncate",
        description="Correction for batches sampled by older weights. truncate: importance weights per token or "
        "sequence (as in importance_sampling), truncated at its cap; behaviour: the clipped ratio is "
        "relative to the sampling probabilities.",
    )
    rollout_concurrency: int = Field(
        64, gt=0, description="Maximum number of workflows that are running or being judged, over all batches."
    )
    refill_rounds: int = Field(0, ge=0, description="Extra sampling rounds to replace groups of equal rewards (DAPO).")
    shared_prefix: bool | None = Field(
        None,
        description="Compute each shared prefix only once; null: if it saves tokens and the first batch gives the "
        "same result as padded rows.",
    )
    micro_batch_tokens: int = Field(
        16384, gt=0, description="Tokens per forward pass; affects speed and memory, not results."
    )
    save_every: int = Field(50, ge=0, description="Steps between checkpoints; 0 = only at the end.")
    eval_every: int = Field(0, ge=0, description="Steps between validations; 0 = never.")
    prompt_max_length: int = Field(3072, gt=0, description="Maximum prompt length in tokens.")
    response_max_length: int = Field(1024, gt=0, description="Maximum workflow length in tokens.")
    mask_truncated_completions: bool = Field(
        False,
        description="Exclude workflows cut off at response_max_length from the loss, its divisor and the group's "
        "mean (TRL: from the loss only); otherwise they get the lowest reward.",
    )
    max_unscored: Float = Field(
        0.5, ge=0, le=1, description="Largest share of unscored rollouts in a batch; above it the run pauses."
    )
    patience_s: Float = Field(
        900.0, ge=0, description="Total seconds that a paused run waits for its endpoints before it stops."
    )
    shuffle_rewards: bool = Field(False, description="Shuffle the rewards, as a control experiment.")

    @model_validator(mode="after")
    def _consistent(self) -> TrainingConfig:
        if self.lookahead and self.stale_policy == "truncate" and self.importance_sampling == "off":
            raise ValueError(
                f"lookahead={self.lookahead} with stale_policy=truncate needs importance weights, but "
                "importance_sampling is off; switch it on, or set stale_policy to behaviour"
            )
        return self


class GenerationConfig(_Strict):
    temperature: Float = Field(1.0, gt=0, description="Sampling temperature of the policy.")
    final_temperature: Float | None = Field(
        None, gt=0, description="Sampling temperature of the last step, reached linearly; null = constant."
    )
    eval_temperature: Float = Field(0.3, ge=0, description="Sampling temperature in evaluations and `solve`.")
    top_p: Float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 = off.")
    top_k: int = Field(0, ge=0, description="Sample from the k most likely tokens; 0 = off.")
    engine: Literal["local", "vllm"] = Field("local", description="Engine that samples the workflows.")


class DataConfig(_Strict):
    _FILES: ClassVar = ("train_dataset", "val_dataset", "test_dataset")
    source: Literal["embedded", "files"] = Field(
        "embedded",
        description="Generated problems (embedded) or the JSONL files below; naming a file implies files.",
    )
    train_dataset: InputPath | None = Field(None, description="JSONL file of training problems.")
    val_dataset: InputPath | None = Field(None, description="JSONL file of validation problems.")
    test_dataset: InputPath | None = Field(None, description="JSONL file of test problems.")
    domain_ratios: Mapping[Domain, Float] = Field(
        {"math": 0.4, "code": 0.3, "qa": 0.3}, description="Share of each domain in a batch; the shares sum to 1."
    )
    eval_problems: int = Field(
        150,
        gt=0,
        le=1_000_000,
        description="Problems in an evaluation; from a larger file, the same ones are drawn in every run, with the "
        "shares of datasets and domains kept.",
    )
    max_problems: int | None = Field(
        None, gt=0, description="Maximum number of training problems, drawn in the same way; null = all."
    )

    @model_validator(mode="before")
    @classmethod
    def _files_are_meant(cls, given: Any) -> Any:
        """Naming a file implies ``source: files``."""
        if isinstance(given, dict) and "source" not in given and any(map(given.get, cls._FILES)):
            return {**given, "source": "files"}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        _check_shares("domain_ratios", self.domain_ratios, DOMAINS)
        named = [name for name in self._FILES if getattr(self, name) is not None]
        if self.source == "embedded" and named:
            raise ValueError(
                f"source is 'embedded', but {', '.join(named)} names a file; remove source to use the file, or remove "
                "the file to use generated problems"
            )
        if self.source == "files" and self.train_dataset is None:
            raise ValueError(
                f"{', '.join(named) or 'source'} means files, but train_dataset is not set; set it to a JSONL file "
                "(to evaluate only: evaluate --data FILE)"
            )
        places = {name: Path(getattr(self, name)).resolve() for name in named}
        for name in named[1:]:
            if places[name] == places[named[0]]:
                raise ValueError(
                    f"{named[0]} and {name} are the same file, {places[name]}: the policy would be measured on its "
                    "training problems; split it: llm-as-judge data process --datasets none --custom FILE"
                )
        return self


class ServerConfig(_Strict):
    """Connection to an OpenAI-compatible server."""

    base_url: Url = Field(
        "http://127.0.0.1:8002/v1", pattern=r"^https?://\S+$", description="URL of the API, including /v1."
    )
    api_key: str = Field(
        DEFAULT_API_KEY, repr=False, description="API key; write ${OPENAI_API_KEY} rather than the key itself."
    )
    timeout_s: Float = Field(120.0, gt=0, description="Time limit of one request in seconds.")
    max_retries: int = Field(4, ge=0, description="Retries of a failed request.")
    concurrency: int = Field(
        32, gt=0, description="Maximum number of requests in flight; lowered while the server answers 429 or too late."
    )
    no_proxy: str = Field(
        "localhost,127.0.0.1", description="Hosts, separated by commas, that bypass the proxy of the environment."
    )


class EngineConfig(ServerConfig):
    """The vLLM server that samples workflows if ``generation.engine`` is vllm."""

    base_url: Url = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="URL of the API, including /v1; empty: the run starts its own server.",
    )
    api_key: str = Field(
        DEFAULT_API_KEY, repr=False, description="API key; write ${VLLM_API_KEY} rather than the key itself."
    )
    timeout_s: Float = Field(
        600.0, gt=0, description="Time limit for sampling all workflows of one problem, in seconds."
    )
    restart_s: Float = Field(
        300.0, ge=0, description="Seconds to wait for a server that restarts, or that the run starts."
    )
    gpu_memory_utilization: Float = Field(
        0.35, gt=0, le=1, description="GPU memory share of the run's own server (vLLM's option)."
    )
    gpus: str = Field(
        "",
        pattern=r"^[\w-]+(,[\w-]+)*$|^$",
        description="CUDA devices of the run's own server, used in parallel, such as 1 or 2,3; empty: the policy's.",
    )
    python: str = Field("", description="Python interpreter of the environment with vLLM; empty: this one.")
    options: Names = Field((), description="Further vLLM options of the run's own server.")


class EndpointConfig(ServerConfig):
    """An OpenAI-compatible LLM service: the executor's, and extended by ``JudgeConfig`` the judge's."""

    provider: Literal["embedded", "openai"] = Field(
        "embedded",
        description="embedded: the package's nano model, served by the run; openai: the service at base_url.",
    )
    more_urls: Urls = Field(
        (), description="Further addresses of the same model; each request goes to the least busy one."
    )
    model: str = Field("nano-executor", min_length=1, description="Model name at the service.")
    temperature: Float = Field(0.0, ge=0, description="Sampling temperature.")
    top_p: Float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 = off.")
    max_tokens: int = Field(2048, gt=0, description="Maximum length of a reply in tokens, including reasoning.")
    price_per_million_input: Float = Field(0.0, ge=0, description="Price per million prompt tokens.")
    price_per_million_output: Float = Field(0.0, ge=0, description="Price per million completion tokens.")
    reasoning_effort: str = Field(
        "", pattern=r"^[a-z]*$", description="Reasoning effort (low, medium, high); empty = not sent."
    )


class JudgeConfig(EndpointConfig):
    mode: Literal["hybrid", "llm", "rules"] = Field(
        "hybrid", description="hybrid: rules accept, the LLM decides the rest; llm, rules: only that one."
    )
    structured: bool = Field(True, description="Request the verdict as JSON with a schema, if the server supports it.")
    two_stage: bool = Field(False, description="Extract the final answer of the candidate first, then judge only that.")
    votes: int = Field(1, gt=0, le=32, description="Verdicts sampled per answer; the majority decides, a tie abstains.")
    second_model: str = Field("", description="Model name of a second judge; empty = none.")
    second_role: Literal["verdicts", "audit"] = Field(
        "verdicts",
        description="verdicts: True needs the agreement of the second judge; audit: it only checks a share of the "
        "verdicts.",
    )
    second_base_url: Url = Field("", description="URL of the second judge's API; empty: the first judge's.")
    prompts: InputPath | None = Field(
        None, description="YAML file with one line of instructions per dataset; null = built in."
    )
    cache: OutputPath | None = Field(None, description="SQLite file for the judge's replies; null = in memory.")
    audit_share: Float = Field(
        0.1, ge=0, le=1, description="Share of the LLM judge's True verdicts that another method checks."
    )
    audit_gap: Float = Field(
        0.2,
        gt=0,
        le=1,
        description="Rise of the share of failed checks above its minimum that raises the alarm.",
    )
    audit_action: Literal["warn", "stop"] = Field("warn", description="Effect of the alarm on a training run.")


class WorkflowConfig(_Strict):
    operators: Names | None = Field(
        None,
        min_length=1,
        description="Operators available to workflows, your own as package.module:Name or file.py:Name; null = all.",
    )
    max_calls: int = Field(24, gt=0, description="Maximum operator calls per workflow.")
    max_concurrent_calls: int = Field(8, gt=0, description="Maximum concurrent operator calls per workflow.")
    max_tokens: int | None = Field(None, gt=0, description="Maximum executor tokens per workflow; null = unlimited.")
    max_cost: Float | None = Field(None, gt=0, description="Maximum executor cost per workflow; null = unlimited.")
    enhancer: InputPath | None = Field(None, description="YAML file with the Layer 2 instructions; null = off.")
    enhanced_operators: Names | None = Field(None, description="Operators changed by Layer 2; null = all in its file.")
    layer1: bool = Field(
        True, description="Operators, rules and guidance in the policy's prompt; off: only the problem."
    )
    guidance: InputPath | None = Field(None, description="YAML file with the Layer 1 guidance; null = built in.")
    prompt: Literal["full", "short"] = Field(
        "full", description="Layer 1 prompt: full for any instruct model, short as the nano policy was trained on."
    )
    prefill: bool = Field(False, description="Start the policy's reply with the fixed head of the class.")

    @model_validator(mode="after")
    def _consistent(self) -> WorkflowConfig:
        if self.prefill and not self.layer1:
            raise ValueError("prefill needs layer1: switch layer1 on or prefill off")
        return self


class SandboxConfig(_Strict):
    mode: Literal["auto", "full", "standard", "no-open", "unsafe"] = Field(
        "auto",
        description="Confinement of code; auto: the strictest mode that works on this machine, never unsafe.",
    )
    cpu_seconds: int = Field(5, gt=0, le=10**6, description="CPU seconds per run.")
    wall_seconds: Float = Field(
        30.0, gt=0, le=1e6, description="Wall-clock seconds per run, not counting operator calls."
    )
    memory_mb: int = Field(512, ge=64, le=1 << 30, description="Address space per run in MB.")
    output_bytes: int = Field(1_000_000, gt=0, le=1 << 30, description="Maximum output per run in bytes.")
    frame_bytes: int = Field(
        4_000_000,
        gt=0,
        le=1 << 30,
        description="Maximum size in bytes of one message (a call or a result), and of all calls of a workflow in "
        "memory.",
    )
    open_files: int = Field(32, ge=8, le=1 << 20, description="Maximum number of open file descriptors per run.")
    max_workflows: int = Field(
        64, gt=0, description="Maximum number of workflows running at the same time; about 4 MB each."
    )


class RewardConfig(_Strict):
    reward_weights: Mapping[str, Float] = Field(
        {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05},
        description="Weight of each term; the weights sum to 1, and repetition is subtracted.",
    )
    token_budget: int = Field(4000, gt=0, description="Executor tokens at which efficiency is 0.")
    operator_budget: int = Field(8, gt=1, description="Operator calls at which simplicity is 0.")
    functions: Annotated[Mapping[str, Float], Input()] = Field(
        {}, description="Your own reward functions (package.module:function or file.py:function) and their weights."
    )

    @model_validator(mode="after")
    def _consistent(self) -> RewardConfig:
        _check_shares("reward_weights", self.reward_weights, list(type(self).model_fields["reward_weights"].default))
        return self


class EvaluationConfig(_Strict):
    """Additional measurements at the end of a training run; each runs every held-out problem."""

    baselines: bool = Field(
        True, description="Compare with a single call everywhere and, with plan_matrix, with fixed workflows."
    )
    plan_matrix: bool = Field(True, description="Measure every workflow of the catalogue by itself.")


class BufferConfig(_Strict):
    enabled: bool = Field(True, description="Collect good workflows and show them as examples.")
    buffer_size: int = Field(100, gt=0, description="Maximum number of workflows per domain.")
    reward_threshold: Float = Field(8.0, description="Minimum reward of a collected workflow.")
    top_k: int = Field(3, ge=0, description="Examples in a prompt, fewer where they do not fit; 0 = only collect.")
    persistence_dir: OutputPath | None = Field(
        None, description="Folder of the stored buffer (JSONL), used by one run at a time; null = not stored."
    )
    reuse: bool = Field(
        False,
        description="Start a new run with the workflows stored in persistence_dir; off: they are moved aside.",
    )
    min_similarity: Float = Field(
        0.0, ge=-1, le=1, description="Minimum cosine similarity between the problem and an example's problem."
    )
    embedder: str = Field(
        "policy",
        min_length=1,
        description="Embedding of problems: policy (its hidden states) or a sentence-transformers model.",
    )
    max_age: int = Field(0, ge=0, description="Steps after which a workflow is dropped; 0 = never.")


class BudgetConfig(_Strict):
    """Limits of a run over all its sessions; it stops before the next step, with a checkpoint."""

    max_cost: Float | None = Field(None, gt=0, description="Maximum cost of all models, by their prices.")
    max_tokens: int | None = Field(None, gt=0, description="Maximum tokens of all models, prompts and replies.")
    max_hours: Float | None = Field(None, gt=0, description="Maximum wall-clock hours.")


class TrackingConfig(_Strict):
    """Where a run's curves go in addition to its event log."""

    report_to: Annotated[tuple[Literal["trackio", "wandb", "tensorboard"], ...], BeforeValidator(_tools)] = Field(
        (), description="Experiment trackers; each needs the extra of the same name."
    )
    project: str = Field("llm-as-judge", min_length=1, description="Project name in the trackers.")


class OutputConfig(_Strict):
    output_dir: OutputPath = Field(
        Path("checkpoints"), description="Folder for checkpoints: <model>/<run_name>/step_N."
    )
    log_dir: OutputPath = Field(Path("logs"), description="Folder for event logs.")
    results_dir: OutputPath = Field(Path("results"), description="Folder for results.")
    run_name: str = Field(
        "grpo_mixed", pattern=r"^[A-Za-z0-9][\w.-]*$", description="Name of the run's folder and log."
    )


@dataclass(frozen=True, slots=True)
class BaseModelEntry:
    """The policy's weights before training: ``key`` names folders and results, ``path`` is a folder or a hub id."""

    key: str
    path: str


class Config(_Strict):
    """All settings of a run; ``config.loading.load_config`` builds it."""

    model: ModelConfig = ModelConfig()
    warmup: WarmupConfig = WarmupConfig()
    training: TrainingConfig = TrainingConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()
    data: DataConfig = DataConfig()
    executor: EndpointConfig = EndpointConfig()
    judge: JudgeConfig = JudgeConfig()
    workflow: WorkflowConfig = WorkflowConfig()
    sandbox: SandboxConfig = SandboxConfig()
    reward: RewardConfig = RewardConfig()
    experience_buffer: BufferConfig = BufferConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    budget: BudgetConfig = BudgetConfig()
    tracking: TrackingConfig = TrackingConfig()
    output: OutputConfig = OutputConfig()

    #: Entry of ``models.yaml`` for ``model.model_name``.
    _base_model: BaseModelEntry | None = PrivateAttr(None)

    @property
    def base_model(self) -> BaseModelEntry:
        """Key and path of the policy named by ``model.model_name``."""
        name = self.model.model_name
        return self._base_model or BaseModelEntry(Path(name).name, name)

    def endpoints(self) -> dict[str, EndpointConfig]:
        """The models of a run by role: executor, judge and second judge, if configured."""
        judge, found = self.judge, {"executor": self.executor}
        if judge.mode != "rules":
            found["judge"] = judge
            if judge.second_model:
                second: dict[str, Any] = {"model": judge.second_model}
                if judge.second_base_url:
                    second |= {"base_url": judge.second_base_url, "more_urls": ()}
                found["second_judge"] = judge.model_copy(update=second)
        return found


SECTIONS: dict[str, type[BaseModel]] = {
    name: typing.cast("type[BaseModel]", field.annotation) for name, field in Config.model_fields.items()
}
#: Full name of each setting (a leaf of the schema) to its field.
LEAVES = {f"{section}.{leaf}": field for section, cls in SECTIONS.items() for leaf, field in cls.model_fields.items()}
