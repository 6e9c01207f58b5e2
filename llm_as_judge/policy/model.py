"""The policy: a frozen Hugging Face causal LM with a trainable LoRA adapter.

It encodes prompts, scores completions (``logprobs.scoring``) and embeds texts. It does not sample: that is an engine's
work. Nothing here truncates: what does not fit is the caller's to refuse.
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.utils import logging as hf_logging

from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.experience.embedding import HiddenStateEmbedder
from llm_as_judge.policy import scoring
from llm_as_judge.policy.attention import ATTENTION, Kernel
from llm_as_judge.policy.chat import chat_ids
from llm_as_judge.policy.scoring import Layout, MicroBatch, Sampling, TokenScores
from llm_as_judge.policy.shareable import why_not
from llm_as_judge.policy.weights import load_folder, load_gguf
from llm_as_judge.types import Completion, Prompt

#: Parameters below which an operation is too short to be shared among threads, or to gain by lower precision.
SMALL_MODEL = 20_000_000

#: The adapter that the KL term is measured to, where training does not start from the bare base model.
_REFERENCE = "reference"

#: What Mamba layers compute with by its weights, past any adapter around it.
_PAST_LAYERS = frozenset(("out_proj", "conv1d", "dt_proj"))

#: Names under which modules keep the strength of a noise.
_NOISE = re.compile(r"dropout|layerdrop|pdrop|jitter")


class Policy:
    """``base`` is the causal LM with adapter layers inside, ``model`` the PEFT wrapper around it."""

    def __init__(self, base: Any, tokenizer: Any, config: ModelConfig, *, seed: int = 0) -> None:
        """``seed`` is of the adapter's initial weights."""
        self.config = config
        self.tokenizer = tokenizer
        device = resolve_device(config.device)
        base = base.to(device=device, dtype=resolve_dtype(config.dtype, device, base.num_parameters()))
        silence(base)
        layers, modules = _linear_layers(base), config.lora_target_modules
        lora = LoraConfig(
            r=config.lora_rank,
            lora_alpha=config.lora_alpha,  # type: ignore[arg-type]
            lora_dropout=config.lora_dropout,
            target_modules=modules if isinstance(modules, str) else list(modules),
            task_type="CAUSAL_LM",
        )
        # The adapter depends on its seed alone, and making it leaves the caller's random state as it was.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            with warnings.catch_warnings():
                # PEFT asks transformers for an attribute by a name that has a newer one.
                warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
                try:
                    self.model: Any = get_peft_model(base, lora)
                except (ValueError, re.error) as error:
                    raise ConfigError(_no_adapter(config, base.config.model_type, layers, error)) from error
        if config.gradient_checkpointing:
            if hasattr(self.base, "activation_checkpointing_enable"):  # the newer name
                self.base.activation_checkpointing_enable({"use_reentrant": False})
            else:
                self.base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.base.enable_input_require_grads()
        # Plain attention as before, until a row of shared prefixes comes.
        if self.base.config._attn_implementation == "sdpa" and self.base._can_set_attn_implementation():
            self.base.set_attn_implementation(ATTENTION)
        self.kernel: Kernel | None = None  # the device's own, unless set
        self.sharded = False  # over several ranks, all of which must compute at once
        self.model.train()

    @classmethod
    def load(cls, path: str, config: ModelConfig, *, seed: int = 0, adapter: Path | None = None) -> Policy:
        """Model and tokenizer from a directory, a GGUF file or the Hugging Face hub, with the weights of ``adapter`` if
        given. What ``config.adapter`` holds is where training starts from, and the reference of the KL term.

        Raises ``ConfigError`` where there is none, or the adapter is of another model.
        """
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        path = locate_weights(path)
        try:
            load = load_gguf if path.endswith(".gguf") else load_folder
            tokenizer, base = load(Path(path), config.dtype)
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError(
                f"model.model_name={config.model_name!r}: {path} cannot be loaded: {error}. "
                "Give a directory with a Hugging Face model, or the id of one on the hub"
            ) from error
        policy = cls(base, tokenizer, config, seed=seed)
        if config.adapter is not None:
            policy.load_adapter(config.adapter)
            policy.keep_as_reference()
        if adapter is not None:
            policy.load_adapter(adapter)
        fit_threads(policy)
        return policy

    @classmethod
    def from_config(cls, architecture: Any, tokenizer: Any, config: ModelConfig, *, seed: int = 0) -> Policy:
        """A randomly initialised model of the given Hugging Face configuration."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            base = AutoModelForCausalLM.from_config(architecture)  # type: ignore[no-untyped-call]
        return cls(base, tokenizer, config, seed=seed)

    @property
    def base(self) -> Any:
        return self.model.get_base_model()

    @property
    def device(self) -> torch.device:
        device: torch.device = self.base.device
        return device

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends a turn: the tokenizer's and the generation config's."""
        ends = {self.tokenizer.eos_token_id}
        configured = getattr(self.base.generation_config, "eos_token_id", None)
        ends |= set(configured) if isinstance(configured, list) else {configured}
        return frozenset(int(i) for i in ends if i is not None)

    def trainable_parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def encode(self, prompt: Prompt) -> list[int]:
        """Ids of the chat, up to where the policy begins. Raises ``ConfigError`` for a model without chat template."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(
                f"model.model_name={self.config.model_name!r} has no chat template; choose an instruction-tuned model"
            )
        return chat_ids(self.tokenizer, prompt)

    def logprobs(
        self,
        completions: Sequence[Completion],
        sampling: Sampling | None = None,
        *,
        reference: bool = False,
        shared_prefix: bool = False,
    ) -> TokenScores:
        """Log-probability and entropy of every completion token under the sampling distribution, with
        gradient.

        ``reference`` scores without the adapter and without gradient. ``shared_prefix`` forwards each unique
        prefix of the batch once (equal up to rounding, faster where prompts are long against completions).
        Raises ``ConfigError`` where the model does not allow that.
        """
        layout: Layout = "tree" if shared_prefix else "padded"
        self._refuse(layout, completions)
        with self._reference() if reference else nullcontext():
            return scoring.score(self.base, completions, sampling or Sampling(), layout, self.kernel)

    def micro_batches(
        self, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
    ) -> Iterator[MicroBatch]:
        """The same in micro-batches of at most ``budget`` forwarded tokens, see ``scoring.micro_batches``.

        Take each one's gradient before asking for the next. Raises ``ConfigError`` like ``logprobs``.
        """
        self._refuse(layout, completions)
        return scoring.micro_batches(self.base, completions, sampling, layout, budget, self.kernel)

    def own_logprobs(
        self, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
    ) -> list[Tensor]:
        """Log-probs [T] of every completion under the present weights and without gradient."""
        logprobs: dict[int, Tensor] = {}
        with torch.no_grad():
            for batch in self.micro_batches(completions, sampling, layout, budget):
                rows = zip(batch.members, batch.scores.logprobs, batch.scores.mask, strict=True)
                logprobs.update((i, row[mask]) for i, row, mask in rows)
        return [logprobs[i] for i in range(len(completions))]

    def reference_logprobs(
        self, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
    ) -> list[Tensor]:
        """The same under the reference's."""
        with self._reference():
            return self.own_logprobs(completions, sampling, layout, budget)

    def why_no_tree(self, longest: int = 0) -> str:
        """Why prefixes cannot be shared in sequences of up to ``longest`` tokens; empty where they can."""
        config = self.base.config
        if config._attn_implementation != ATTENTION:
            return f"{config.model_type} was loaded with attention {config._attn_implementation!r}, which knows no tree"
        return why_not(config.get_text_config(), self.config.lora_dropout, longest)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors [N, hidden] of the frozen model, comparable over the whole training."""
        with self._without_adapter():
            return HiddenStateEmbedder(self.base, self.tokenizer).embed(texts)

    @contextmanager
    def generation_weights(self) -> Iterator[Any]:
        """The base model in evaluation mode, ready to generate; afterwards everything is as it was, bit for
        bit.

        In float32 the adapter is added to copies of the weights for the time being: a third of the time of
        small models. In lower precision that would round away small updates, so the adapter stays beside the
        weights.
        """
        base = self.base
        was_training, attention = self.model.training, base.config._attn_implementation
        layers: list[Any] = [m for m in base.modules() if isinstance(m, LoraLayer)]
        layers = [m for m in layers if isinstance(m.get_base_layer(), torch.nn.Linear)]
        merge = base.dtype == torch.float32 and len(layers) == sum(isinstance(m, LoraLayer) for m in base.modules())
        originals = [m.get_base_layer().weight.data for m in layers] if merge else []
        self.model.eval()
        try:
            with self._without_adapter() if merge else nullcontext():
                if merge:
                    with torch.no_grad():
                        for layer in layers:
                            weight = layer.get_base_layer().weight
                            weight.data = weight.data + layer.get_delta_weight("default")
                yield base
        finally:
            for layer, original in zip(layers if merge else (), originals, strict=True):
                layer.get_base_layer().weight.data = original
            base.set_attn_implementation(attention)
            self.model.train(was_training)

    def keep_as_reference(self) -> None:
        """From now on the reference is the adapter as it is, not the bare base model."""
        own = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        kept = {name: value.detach().clone() for name, value in own.items()}
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            self.model.add_adapter(_REFERENCE, self.model.peft_config["default"])
        set_peft_model_state_dict(self.model, kept, adapter_name=_REFERENCE)
        for name, parameter in self.model.named_parameters():
            if f".{_REFERENCE}." in name:
                parameter.requires_grad_(False)

    def save_adapter(self, directory: Path) -> None:
        """Writes a PEFT adapter: ``PeftModel.from_pretrained`` and vLLM read it."""
        self.model.save_pretrained(str(directory), save_embedding_layers=False, selected_adapters=["default"])

    def load_adapter(self, directory: Path) -> None:
        """Puts a saved adapter's weights in place of the present ones; the shapes must agree.

        Raises ``DataError`` where there is none that can be read, ``ConfigError`` for one of another shape or model.
        """
        if not any(directory.glob("adapter_model.*")):  # PEFT would look for it on the hub
            raise DataError(f"{directory} holds no adapter: no adapter_model.safetensors in it; give a folder step_N")
        try:
            weights = load_peft_weights(str(directory), device="cpu")
        except (OSError, ValueError, KeyError, SafetensorError, pickle.UnpicklingError) as error:
            raise DataError(f"{directory} holds no adapter that can be read: {error}; give a folder step_N") from error
        try:
            result: Any = set_peft_model_state_dict(self.model, weights)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ConfigError(f"{directory} is an adapter of another shape or model: {error}") from error
        missing = [name for name in result.missing_keys if "lora_" in name and f".{_REFERENCE}." not in name]
        if missing:
            raise ConfigError(f"{directory} is an adapter of other modules: it lacks {missing[:3]}")
        if result.unexpected_keys:
            raise ConfigError(f"{directory} is an adapter of another model: it has {result.unexpected_keys[:3]}")

    def _refuse(self, layout: Layout, completions: Sequence[Completion]) -> None:
        if layout == "padded":
            return
        longest = max((len(c.prompt_ids) + len(c.token_ids) for c in completions), default=0)
        if reason := self.why_no_tree(longest):
            raise ConfigError(f"{reason}; set training.shared_prefix=false to forward padded rows instead")

    @contextmanager
    def _reference(self) -> Iterator[None]:
        """The policy before training: the adapter it started from, or none."""
        if _REFERENCE not in self.model.peft_config:
            with self._without_adapter(), torch.no_grad():
                yield
            return
        self.model.base_model.set_adapter(_REFERENCE, inference_mode=True)
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.base_model.set_adapter("default")

    @contextmanager
    def _without_adapter(self) -> Iterator[None]:
        with self.model.disable_adapter():
            yield


def silence(base: Any) -> None:
    """Switches off the dropout and the router noise that a model would have in training mode.

    Its weights are frozen, and what is scored must be what was sampled: the adapter's own dropout is
    ``model.lora_dropout``.
    """
    for module in base.modules():
        noisy = [name for name, value in vars(module).items() if isinstance(value, float) and _NOISE.search(name)]
        for name in (*noisy, "p") if isinstance(module, torch.nn.modules.dropout._DropoutNd) else noisy:
            setattr(module, name, 0.0)


def resolve_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # CUDA that is not compiled in is an assertion of torch's
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"model.device={name!r} is no device of this machine: {reason}; use auto, cpu, cuda or cuda:N"
        ) from error
    return device


def resolve_dtype(name: str, device: torch.device, parameters: int) -> torch.dtype:
    """``auto`` is bfloat16 on cuda, and for all but small models on CPUs with instructions for it (AVX512-BF16, AMX);
    float32 elsewhere.
    """
    if name == "auto":
        on_cpu = device.type == "cpu" and parameters > SMALL_MODEL and _cpu_computes_bfloat16()
        return torch.bfloat16 if device.type == "cuda" or on_cpu else torch.float32
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(f'model.dtype={name!r} is no dtype; use "auto", "float32", "bfloat16" or "float16"')
    return dtype


def _cpu_computes_bfloat16() -> bool:
    """Elsewhere bfloat16 is emulated, several times slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def fit_threads(policy: Policy) -> None:
    """Leave torch one thread where a small model runs on the CPU, unless ``OMP_NUM_THREADS`` says how many.

    On two idle cores a second thread gains such a model a tenth of its time. As soon as other work wants one of them
    the threads wait for each other, spinning: then two take five times as long as one.
    """
    small = policy.base.num_parameters() < SMALL_MODEL
    if small and policy.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def _linear_layers(base: Any) -> set[str]:
    """Names of the layers that ``all-linear`` means."""
    head = base.get_output_embeddings()
    names = (
        name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear) and module is not head
    )
    return {name.rpartition(".")[2] for name in names}


def _no_adapter(config: ModelConfig, kind: str, layers: set[str], error: Exception) -> str:
    """Why the model takes no such adapter, with the cure."""
    if "Mamba-based" in str(error):  # PEFT's own list of types
        rest = ", ".join(sorted(layers - _PAST_LAYERS))
        return (
            f"model.model_name={config.model_name!r} is a Mamba model ({kind}): no adapter reaches its out_proj and "
            f"conv1d; give model.lora_target_modules=[{rest}]"
        )
    return (
        f"model.lora_target_modules={config.lora_target_modules!r}: {error}; give all-linear, names of layers such as "
        "[q_proj, v_proj], or a regular expression over their full names"
    )
