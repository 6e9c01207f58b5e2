"""The schema of the configuration: strict, frozen, one description a leaf.

The descriptions are the one source for the documentation (``describe``). ``config`` fills it from files.
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
    """YAML 1.1, which PyYAML reads, takes ``5e-6`` (no dot) for a string; everybody means the number."""
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
    """Marks a leaf that names files to read. In a configuration file they are meant beside that file."""


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        right = not value or (parts.hostname and parts.port != 0)
    except ValueError as error:
        raise ValueError(f"is no address: {error}; write http://HOST:PORT/v1") from None
    if not right:
        raise ValueError("is no address; write http://HOST:PORT/v1")
    return value


#: Of a whole number: what the kernel's limits, sockets and tensors take.
_MOST = 2**31 - 1
#: Of any other number: a tensor's in single precision, with room to calculate.
_LARGEST = 1e18
#: Of what is held in memory at once; no machine holds more.
_WIDEST = 1 << 16
Url = Annotated[str, AfterValidator(_url)]
Urls = Annotated[tuple[Url, ...], BeforeValidator(_tuple)]
Float = Annotated[float, BeforeValidator(_float)]
InputPath = Annotated[Path, BeforeValidator(_path), Input()]
OutputPath = Annotated[Path, BeforeValidator(_path)]


def _tools(value: Any) -> Any:
    """One tool may stand without a list, and ``none`` for no tool."""
    named = [value] if isinstance(value, str) else value
    return _tuple([] if named in (None, ["none"]) else named)


Names = Annotated[tuple[str, ...], BeforeValidator(_tuple)]


def _check_shares(name: str, shares: Mapping[Any, float], members: Sequence[str]) -> None:
    missing = [member for member in members if member not in shares]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}; give every one, 0 where unwanted")
    if min(shares.values()) < 0:
        raise ValueError(f"{name} must not be negative, got {dict(shares)}")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ValueError(f"{name} must sum to 1, got {sum(shares.values()):g}")


class _Strict(BaseModel):
    # protected_namespaces: pydantic would otherwise warn of ``model_name``
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        for name, value in self:
            if isinstance(value, int) and value > _MOST:
                raise ValueError(f"{name} must be at most {_MOST}, got {value}")
            if isinstance(value, float) and abs(value) > _LARGEST:
                raise ValueError(f"{name} must be at most {_LARGEST:g}, got {value:g}")
        return self


class ModelConfig(_Strict):
    model_name: str = Field("nano", min_length=1, description="Key of models.yaml, Hugging Face id or folder.")
    lora_rank: int = Field(64, gt=0, le=_WIDEST, description="Rank of the LoRA adapter.")
    lora_alpha: Float = Field(64.0, gt=0, description="LoRA scale; the update is multiplied by alpha / rank.")
    lora_dropout: Float = Field(0.0, ge=0, lt=1, description="Dropout of the adapter's input.")
    lora_target_modules: str | Names = Field(
        "all-linear", description="Modules that get an adapter: all-linear, a list, or a regular expression."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Precision of the base weights; auto: bfloat16 on CUDA and, for models that "
        "are not tiny, on CPUs with instructions for it; else float32.",
    )
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N.")
    gradient_checkpointing: bool = Field(False, description="Recompute activations: saves memory, costs time.")
    adapter: InputPath | None = Field(
        None,
        description="Adapter that training starts from: its folder, or one of checkpoints such as `warmup` writes, of "
        "which the newest is taken; null: a new one.",
    )


class WarmupConfig(_Strict):
    """The cold start before GRPO."""

    sft_steps: int = Field(60, gt=0, description="Maximum number of optimiser steps.")
    sft_learning_rate: Float = Field(7e-4, gt=0, le=1, description="Peak learning rate, from which it falls linearly.")
    problems_per_step: int = Field(1, gt=0, le=_WIDEST, description="Problems of a step.")
    workflows_per_problem: int = Field(10, gt=0, le=_WIDEST, description="Workflows for each problem of a step.")
    look_every: int = Field(20, gt=0, description="Steps between looks at held-out loss, valid rate and shapes.")
    look_problems: int = Field(12, gt=0, le=_WIDEST, description="Problems held back for those looks.")
    look_samples: int = Field(4, gt=0, le=_WIDEST, description="Workflows sampled for each of them, at temperature 1.")
    varied: Float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of generated workflows in varied names and idioms; the others say each thing in one way, "
        "which a small policy learns sooner.",
    )
    own_workflows: InputPath | None = Field(
        None, description="JSONL of your own workflows (domain, workflow); null: generated ones of many shapes."
    )


class TrainingConfig(_Strict):
    seed: int = Field(0, ge=0, description="Seed of sampling, data order and the adapter's initial weights.")
    max_steps: int = Field(100, gt=0, description="Optimiser steps over the whole run.")
    rollout_batch_size: int = Field(4, gt=0, le=_WIDEST, description="Problems per step.")
    num_return_sequences_in_group: int = Field(6, ge=2, le=_WIDEST, description="Workflows sampled per problem (G).")
    ppo_epochs: int = Field(1, gt=0, description="Updates per batch; 1 is online learning.")
    learning_rate: Float = Field(5e-6, gt=0, le=1, description="Peak learning rate of the adapter.")
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up.")
    weight_decay: Float = Field(0.0, ge=0, description="AdamW's weight decay.")
    max_grad_norm: Float = Field(1.0, gt=0, description="Maximum norm of the gradient.")
    epsilon: Float = Field(0.2, gt=0, lt=1, description="Lower clip range of the probability ratio.")
    epsilon_high: Float = Field(0.28, gt=0, description="Upper clip range of the probability ratio.")
    beta: Float = Field(0.0, ge=0, description="Weight of the KL term to the base model; 0 = none.")
    loss_type: LossType = Field("dr_grpo", description="Loss and its normalisation, as in TRL.")
    scale_rewards: ScaleRewards = Field(
        "group",
        description="Divide advantages by the standard deviation of the group's rewards, of the batch's, or not.",
    )
    kl_estimator: Literal["k3", "k1"] = Field("k3", description="Estimate of the KL term.")
    use_bias_correction_kl: bool = Field(
        True, description="Multiply the KL term by the ratio, which makes its gradient unbiased; as in TRL."
    )
    importance_sampling: ImportanceSampling = Field(
        "sequence_mask",
        description="Correction for log-probabilities that differ between engine and trainer, as in TRL.",
    )
    importance_sampling_cap: Float = Field(
        3.0, gt=0, description="Importance weight above which it truncates or masks."
    )
    lookahead: int = Field(
        0,
        ge=0,
        le=64,
        description="Batches sampled ahead of the one being trained on, so that the executor stays busy: each is as "
        "many steps old when it is trained on; 0 = none.",
    )
    stale_policy: Literal["behaviour", "truncate"] = Field(
        "truncate",
        description="Correction of workflows that older weights sampled. truncate: the gradient is weighted by "
        "importance, of tokens or sequences as importance_sampling has it, truncated at its cap; behaviour: the "
        "clipped ratio is to the probabilities they were sampled with.",
    )
    rollout_concurrency: int = Field(
        64, gt=0, description="Maximum number of workflows running or being judged, of all batches together."
    )
    refill_rounds: int = Field(
        0, ge=0, description="Extra sampling rounds that replace groups of equal rewards (DAPO)."
    )
    shared_prefix: bool | None = Field(
        None,
        description="Compute each shared prefix only once; null: where that saves tokens and the first batch comes out "
        "as padded rows do.",
    )
    micro_batch_tokens: int = Field(
        16384, gt=0, description="Tokens per forward pass; affects speed and memory, not results."
    )
    save_every: int = Field(50, ge=0, description="Steps between checkpoints; 0 = only at the end.")
    eval_every: int = Field(0, ge=0, description="Steps between validations; 0 = never.")
    prompt_max_length: int = Field(3072, gt=0, description="Maximum length of a prompt in tokens.")
    response_max_length: int = Field(1024, gt=0, description="Maximum length of a workflow in tokens.")
    mask_truncated_completions: bool = Field(
        False,
        description="Exclude workflows cut off at response_max_length from the loss, its divisor and the group's mean "
        "(TRL: from the loss only); else they get the lowest reward.",
    )
    max_unscored: Float = Field(
        0.5, ge=0, le=1, description="Largest share of unscored rollouts in a batch; a run pauses above it."
    )
    patience_s: Float = Field(
        900.0, ge=0, description="Total seconds a paused run waits for its endpoints before it stops."
    )
    shuffle_rewards: bool = Field(False, description="Control experiment: shuffle the rewards.")

    @model_validator(mode="after")
    def _consistent(self) -> TrainingConfig:
        if self.lookahead and self.stale_policy == "truncate" and self.importance_sampling == "off":
            raise ValueError(
                f"lookahead={self.lookahead} with stale_policy=truncate needs importance weights, but "
                "importance_sampling is off; set that to one of the others, or stale_policy to behaviour"
            )
        return self


class GenerationConfig(_Strict):
    temperature: Float = Field(1.0, gt=0, description="Sampling temperature of the policy.")
    final_temperature: Float | None = Field(
        None, gt=0, description="Sampling temperature of the last step, approached linearly; null = constant."
    )
    eval_temperature: Float = Field(0.3, ge=0, description="Sampling temperature in evaluations and solve.")
    top_p: Float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 = off.")
    top_k: int = Field(0, ge=0, description="Sample from the k most likely tokens; 0 = off.")
    engine: Literal["local", "vllm"] = Field("local", description="What samples the workflows.")


class DataConfig(_Strict):
    _FILES: ClassVar = ("train_dataset", "val_dataset", "test_dataset")
    source: Literal["embedded", "files"] = Field(
        "embedded",
        description="Problems generated on the fly, or the JSONL files named below; naming a file means files.",
    )
    train_dataset: InputPath | None = Field(None, description="JSONL of training problems.")
    val_dataset: InputPath | None = Field(None, description="JSONL of validation problems.")
    test_dataset: InputPath | None = Field(None, description="JSONL of test problems.")
    domain_ratios: Mapping[Domain, Float] = Field(
        {"math": 0.4, "code": 0.3, "qa": 0.3}, description="Share of each domain in a batch; sums to 1."
    )
    eval_problems: int = Field(
        150,
        gt=0,
        le=1_000_000,
        description="Number of problems in an evaluation; of a file with more, each dataset and domain keeps its "
        "share, and every run takes the same ones.",
    )
    max_problems: int | None = Field(
        None, gt=0, description="Use at most this many training problems, chosen likewise; null = all."
    )

    @model_validator(mode="before")
    @classmethod
    def _files_are_meant(cls, given: Any) -> Any:
        """Naming a file is enough."""
        if isinstance(given, dict) and "source" not in given and any(map(given.get, cls._FILES)):
            return {**given, "source": "files"}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        _check_shares("domain_ratios", self.domain_ratios, DOMAINS)
        named = [name for name in self._FILES if getattr(self, name) is not None]
        if self.source == "embedded" and named:
            raise ValueError(
                f"source is 'embedded', but {', '.join(named)} names a file; take source out to use it, or take that "
                "out to use generated problems"
            )
        if self.source == "files" and self.train_dataset is None:
            raise ValueError(
                f"{', '.join(named) or 'source'} means files, but train_dataset is not set; name a JSONL file (to "
                "evaluate on one alone, give evaluate --data FILE)"
            )
        places = {name: Path(getattr(self, name)).resolve() for name in named}
        for name in named[1:]:
            if places[name] == places[named[0]]:
                raise ValueError(
                    f"{named[0]} and {name} name one file, {places[name]}: the policy would be measured on what it is "
                    "trained on; split it: llm-as-judge data process --datasets none --custom FILE"
                )
        return self


class ServerConfig(_Strict):
    """A server of the OpenAI protocol and how it is asked."""

    base_url: Url = Field(
        "http://127.0.0.1:8002/v1", pattern=r"^https?://\S+$", description="URL of the API, including /v1."
    )
    api_key: str = Field(
        DEFAULT_API_KEY, repr=False, description="API key; write ${OPENAI_API_KEY} rather than the key itself."
    )
    timeout_s: Float = Field(120.0, gt=0, description="Seconds that one request may take.")
    max_retries: int = Field(4, ge=0, description="Retries of a failed request.")
    concurrency: int = Field(
        32, gt=0, description="Maximum number of requests in flight; fewer while the server answers 429 or too late."
    )
    no_proxy: str = Field(
        "localhost,127.0.0.1", description="Hosts, separated by commas, to reach without the system's proxy."
    )


class EngineConfig(ServerConfig):
    """The vLLM server that samples workflows where ``generation.engine`` is vllm."""

    base_url: Url = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="URL of the API, including /v1; empty: the run starts a server of its own.",
    )
    api_key: str = Field(
        DEFAULT_API_KEY, repr=False, description="API key; write ${VLLM_API_KEY} rather than the key itself."
    )
    timeout_s: Float = Field(600.0, gt=0, description="Seconds that sampling all workflows of one problem may take.")
    restart_s: Float = Field(
        300.0, ge=0, description="Seconds to wait for a server that is gone, or that the run starts."
    )
    gpu_memory_utilization: Float = Field(
        0.35, gt=0, le=1, description="Share of its GPU's memory that the run's own server takes; vLLM's name."
    )
    gpus: str = Field(
        "",
        pattern=r"^[\w-]+(,[\w-]+)*$|^$",
        description="CUDA devices of the run's own server, used in parallel, such as 1 or 2,3; empty: the policy's.",
    )
    python: str = Field("", description="Python of the environment that has vLLM; empty: this one.")
    options: Names = Field((), description="Further options of the run's own server, as vLLM has them.")


class EndpointConfig(ServerConfig):
    """An OpenAI-compatible LLM service: the executor's, and with a mode the judge's."""

    provider: Literal["embedded", "openai"] = Field(
        "embedded",
        description="embedded: the package's own nano model, served by the run; openai: the service at base_url.",
    )
    more_urls: Urls = Field(
        (), description="Further addresses that serve the same model; each request goes to the least busy one."
    )
    model: str = Field("nano-executor", min_length=1, description="Name of the model, as the service knows it.")
    temperature: Float = Field(0.0, ge=0, description="Sampling temperature.")
    top_p: Float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 = off.")
    max_tokens: int = Field(2048, gt=0, description="Maximum length of a reply in tokens, including reasoning.")
    price_per_million_input: Float = Field(0.0, ge=0, description="Price of a million prompt tokens.")
    price_per_million_output: Float = Field(0.0, ge=0, description="Price of a million completion tokens.")
    reasoning_effort: str = Field(
        "", pattern=r"^[a-z]*$", description="Reasoning effort to ask for (low, medium, high); empty = not sent."
    )


class JudgeConfig(EndpointConfig):
    mode: Literal["hybrid", "llm", "rules"] = Field(
        "hybrid", description="hybrid: rules may accept, the LLM decides the rest; llm or rules: only that."
    )
    structured: bool = Field(
        True, description="Ask for the verdict as JSON with a schema, where the server supports it."
    )
    two_stage: bool = Field(False, description="First extract the candidate's final answer, then judge only that.")
    votes: int = Field(1, gt=0, le=32, description="Verdicts sampled per answer; the majority decides, a tie abstains.")
    second_model: str = Field("", description="Name of a second judge model; empty = none.")
    second_role: Literal["verdicts", "audit"] = Field(
        "verdicts",
        description="verdicts: a True counts only where the second judge agrees; audit: it only checks a share.",
    )
    second_base_url: Url = Field("", description="URL of the second judge's API; empty = the first judge's.")
    prompts: InputPath | None = Field(
        None, description="YAML with one line of instructions per dataset; null = built in."
    )
    cache: OutputPath | None = Field(None, description="SQLite file for the judge's replies; null = in memory.")
    audit_share: Float = Field(
        0.1, ge=0, le=1, description="Share of the LLM judge's True verdicts that are checked by another method."
    )
    audit_gap: Float = Field(
        0.2,
        gt=0,
        le=1,
        description="Raise the alarm when the share of failed checks is this far above its lowest value.",
    )
    audit_action: Literal["warn", "stop"] = Field("warn", description="What the alarm does to a training run.")


class WorkflowConfig(_Strict):
    operators: Names | None = Field(
        None,
        min_length=1,
        description="Operators that a workflow may call, your own as package.module:Name or file.py:Name; null = all.",
    )
    max_calls: int = Field(24, gt=0, description="Maximum number of operator calls per workflow.")
    max_concurrent_calls: int = Field(
        8, gt=0, description="Maximum number of operator calls per workflow at the same time."
    )
    max_tokens: int | None = Field(None, gt=0, description="Maximum executor tokens per workflow; null = unlimited.")
    max_cost: Float | None = Field(None, gt=0, description="Maximum executor cost per workflow; null = unlimited.")
    enhancer: InputPath | None = Field(None, description="YAML with the Layer 2 instructions; null = off.")
    enhanced_operators: Names | None = Field(
        None, description="Operators that Layer 2 may change; null = all that its file names."
    )
    layer1: bool = Field(True, description="Show the policy operators, rules and guidance; off: only the problem.")
    guidance: InputPath | None = Field(None, description="YAML with the Layer 1 guidance; null = built in.")
    prompt: Literal["full", "short"] = Field(
        "full", description="Layer 1 for any instruct model, or the few lines that the nano policy was brought up on."
    )
    prefill: bool = Field(False, description="Begin the policy's reply with the fixed head of the class.")

    @model_validator(mode="after")
    def _consistent(self) -> WorkflowConfig:
        if self.prefill and not self.layer1:
            raise ValueError("prefill goes with layer1 only; set one of them")
        return self


class SandboxConfig(_Strict):
    mode: Literal["auto", "full", "standard", "no-open", "unsafe"] = Field(
        "auto",
        description="How code is confined; auto: the strictest mode that works here; unsafe is never chosen by itself.",
    )
    cpu_seconds: int = Field(5, gt=0, le=10**6, description="CPU seconds per run.")
    wall_seconds: Float = Field(
        30.0, gt=0, le=1e6, description="Wall-clock seconds per run, those in which an operator is called not counted."
    )
    memory_mb: int = Field(512, ge=64, le=1 << 30, description="Address space per run in MB.")
    output_bytes: int = Field(1_000_000, gt=0, le=1 << 30, description="Maximum output of one run in bytes.")
    frame_bytes: int = Field(
        4_000_000,
        gt=0,
        le=1 << 30,
        description="Maximum bytes of one message (a call or a result), and of a workflow's calls in memory.",
    )
    open_files: int = Field(32, ge=8, le=1 << 20, description="Maximum number of open file descriptors per run.")
    max_workflows: int = Field(
        64, gt=0, description="Maximum number of workflows running at the same time, about 4 MB each."
    )


class RewardConfig(_Strict):
    reward_weights: Mapping[str, Float] = Field(
        {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05},
        description="Weight of each term; the weights sum to 1, and repetition is subtracted.",
    )
    token_budget: int = Field(4000, gt=0, description="Executor tokens at which efficiency reaches 0.")
    operator_budget: int = Field(8, gt=1, description="Operator calls at which simplicity reaches 0.")
    functions: Annotated[Mapping[str, Float], Input()] = Field(
        {}, description="Your own reward functions, package.module:function or file.py:function, with their weights."
    )

    @model_validator(mode="after")
    def _consistent(self) -> RewardConfig:
        _check_shares("reward_weights", self.reward_weights, list(type(self).model_fields["reward_weights"].default))
        return self


class EvaluationConfig(_Strict):
    """What a training run measures at its end besides the policy; each costs a run of every held-out problem."""

    baselines: bool = Field(
        True, description="Compare with a single call everywhere and, with plan_matrix, with all rows read off it."
    )
    plan_matrix: bool = Field(True, description="Measure every workflow of the catalogue alone.")


class BufferConfig(_Strict):
    enabled: bool = Field(True, description="Collect good workflows and show them as examples.")
    buffer_size: int = Field(100, gt=0, description="Maximum number of workflows kept per domain.")
    reward_threshold: Float = Field(8.0, description="Minimum reward of a workflow that is kept.")
    top_k: int = Field(3, ge=0, description="Examples in a prompt, fewer where they do not fit; 0 = only collect.")
    persistence_dir: OutputPath | None = Field(
        None, description="Folder that keeps the buffer's workflows as JSONL, for one run at a time; null = none."
    )
    reuse: bool = Field(
        False,
        description="Begin a new run with the workflows that an earlier one left in persistence_dir; off: they are "
        "moved aside.",
    )
    min_similarity: Float = Field(0.0, ge=-1, le=1, description="Minimum cosine similarity of an example's problem.")
    embedder: str = Field(
        "policy",
        min_length=1,
        description="What embeds problems: policy (its hidden states) or a sentence-transformers model.",
    )
    max_age: int = Field(0, ge=0, description="Steps after which a workflow is dropped; 0 = never.")


class BudgetConfig(_Strict):
    """What a run may take, over all its sessions. It stops before the next step, with a checkpoint."""

    max_cost: Float | None = Field(None, gt=0, description="Most that all models asked may cost, by their prices.")
    max_tokens: int | None = Field(None, gt=0, description="Most tokens of all models asked, prompts and replies.")
    max_hours: Float | None = Field(None, gt=0, description="Most hours.")


class TrackingConfig(_Strict):
    """Where a run's curves go besides its event log."""

    report_to: Annotated[tuple[Literal["trackio", "wandb", "tensorboard"], ...], BeforeValidator(_tools)] = Field(
        (), description="Tools that are told of every step, each an extra of that name; none for none."
    )
    project: str = Field("llm-as-judge", min_length=1, description="Project of the runs there.")


class OutputConfig(_Strict):
    output_dir: OutputPath = Field(
        Path("checkpoints"), description="Folder for checkpoints, <model>/<run_name>/step_N in it."
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

    #: ``model.model_name`` as ``models.yaml`` has it.
    _base_model: BaseModelEntry | None = PrivateAttr(None)

    @property
    def base_model(self) -> BaseModelEntry:
        """What ``model.model_name`` means."""
        name = self.model.model_name
        return self._base_model or BaseModelEntry(Path(name).name, name)

    def endpoints(self) -> dict[str, EndpointConfig]:
        """The models that a run asks, by role: the executor, the judge and the second judge where there are such."""
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
#: Full name of each leaf to its field.
LEAVES = {f"{section}.{leaf}": field for section, cls in SECTIONS.items() for leaf, field in cls.model_fields.items()}
