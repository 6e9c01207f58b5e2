"""The policy: a frozen Hugging Face causal LM with a trainable LoRA adapter.

It encodes prompts, scores completions (``policy.scoring``) and embeds texts. Sampling is done by an engine
(``policy.local``, ``policy.vllm``). Nothing is truncated: callers refuse what does not fit.
"""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict
from torch import Tensor
from transformers.utils import logging as hf_logging

from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import ModelConfig
from llm_as_judge.errors import ConfigError, DataError, refusing
from llm_as_judge.files import read_json
from llm_as_judge.policy import quantized, scoring
from llm_as_judge.policy.attention import ATTENTION
from llm_as_judge.policy.chat import Encoder
from llm_as_judge.policy.device import fit_threads, resolve_device, resolve_dtype
from llm_as_judge.policy.limits import SMALL_MODEL
from llm_as_judge.policy.packed import PackedLinears
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.scoring import Layout, MicroBatch
from llm_as_judge.policy.shareable import TESTED, why_not, why_not_positions
from llm_as_judge.policy.weights import end_ids, let_others_read, load_model
from llm_as_judge.types import Completion

logger = logging.getLogger(__name__)

_EMBEDDED = 512

#: Adapter of the KL reference, if training does not start from the bare base model.
_REFERENCE = "reference"

#: Attributes of modules that hold the strength of some noise.
_NOISE = re.compile(r"dropout|layerdrop|pdrop|jitter")


class Policy(Encoder):
    """``base`` is the causal LM with adapter layers inside, ``model`` the PEFT wrapper around it."""

    def __init__(self, base: Any, tokenizer: Any, config: ModelConfig, *, seed: int = 0) -> None:
        """Add an adapter, whose initial weights ``seed`` determines."""
        self.config, self.tokenizer, self.name = config, tokenizer, config.model_name
        device = resolve_device(config.device)
        self.quantization = quantized.quantization_of(base)
        if self.quantization == "none":
            base = base.to(device=device, dtype=resolve_dtype(config.dtype, device, base.num_parameters()))
        else:  # loaded in its place and precision
            quantized.fix_kernels(base)
        silence(base)
        # The adapter depends on its seed only, and the caller's random state is left as it was.
        own = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=own), warnings.catch_warnings():
            torch.manual_seed(seed)
            # PEFT reads an attribute of transformers by its old name.
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
            try:
                self.model: Any = get_peft_model(base, LoraConfig(**lora_arguments(config)))
            except (ValueError, re.error) as error:
                raise ConfigError(
                    f"model.lora_target_modules={config.lora_target_modules!r}: {error}; give all-linear, names of "
                    "layers such as [q_proj, v_proj], or a regular expression over their full names"
                ) from error
        for layer in self._adapted():
            # Autocast rounds the weights. PEFT would widen every input instead, also in checkpointing's second pass.
            layer.cast_input_dtype_enabled = False
        #: The adapter's, also while it is switched off.
        self.trainable_parameters = [p for p in self.model.parameters() if p.requires_grad]
        if config.gradient_checkpointing:
            if hasattr(self.base, "activation_checkpointing_enable"):  # name in newer releases
                self.base.activation_checkpointing_enable({"use_reentrant": False})
            else:
                self.base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.base.enable_input_require_grads()
        if self.base.config.get_text_config().model_type in TESTED:
            # Computes plain attention unless a forward pass brings a prefix tree.
            self.base.set_attn_implementation(ATTENTION)
        self.packed = PackedLinears(self.base)
        self.model.train()

    @classmethod
    def load(cls, path: str, config: ModelConfig, *, seed: int = 0, adapter: Path | None = None) -> "Policy":
        """Load model and tokenizer from a directory, a GGUF file or the hub, with the weights of ``adapter``.

        Training starts from ``config.adapter``, which is also the reference of the KL term. Raises ``ConfigError`` if
        the model cannot be loaded or the adapter belongs to another model.
        """
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        config = config.model_copy(update=lora_shape(read_json(adapter / "adapter_config.json")) if adapter else {})
        path = locate_weights(path)
        options: dict[str, Any] = {"dtype": config.dtype}
        if config.quantization != "none":
            device = resolve_device(config.device)
            dtype = resolve_dtype(config.dtype, device, SMALL_MODEL + 1)
            options = {"dtype": dtype, **quantized.loading_options(config.quantization, str(device), dtype)}
        tokenizer, base = load_model(path, setting=f"model.model_name={config.model_name!r}", **options)
        policy = cls(base, tokenizer, config, seed=seed)
        if config.adapter is not None:
            policy.load_adapter(config.adapter)
            policy.keep_as_reference()
        if adapter is not None:
            policy.load_adapter(adapter)
        fit_threads(policy.device, base.num_parameters())
        return policy

    @property
    def base(self) -> Any:
        return self.model.get_base_model()

    @property
    def device(self) -> torch.device:
        device: torch.device = self.base.device
        return device

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return end_ids(self.base.generation_config, self.tokenizer)

    @contextmanager
    def holding(self, weights: Sequence[Tensor]) -> Iterator[None]:
        """Give the adapter other ``weights`` for the block, those of ``trainable_parameters``."""
        parameters = self.trainable_parameters
        own = [parameter.data for parameter in parameters]
        try:
            for parameter, other in zip(parameters, weights, strict=True):
                parameter.data = other.to(parameter.device)
            yield
        finally:
            for parameter, kept in zip(parameters, own, strict=True):
                parameter.data = kept

    def micro_batches(
        self, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int
    ) -> Iterator[MicroBatch]:
        """Yield scores as ``scoring.micro_batches``. Raises ``ConfigError`` if the model does not allow ``layout``."""
        self._refuse(layout, completions)
        return scoring.micro_batches(self.base, completions, sampling, layout, budget)

    def known_logprobs(
        self, completions: Sequence[Completion], sampling: Sampling, layout: Layout, budget: int, *,
        reference: bool = False,
    ) -> list[Tensor]:  # fmt: skip
        """Compute log-probs [T] of every completion under the current weights or the KL reference, without gradient."""
        logprobs: dict[int, Tensor] = {}
        with torch.no_grad(), self._reference() if reference else nullcontext():
            for members, scores in self.micro_batches(completions, sampling, layout, budget):
                rows = zip(members, scores.logprobs, strict=True)
                logprobs.update((i, row[: len(completions[i].token_ids)]) for i, row in rows)
        return [logprobs[i] for i in range(len(completions))]

    def why_no_tree(self, longest: int = 0) -> str:
        """Say why prefixes cannot be shared in sequences of up to ``longest`` tokens; empty if they can."""
        return why_not(self.base.config.get_text_config(), self.config.lora_dropout, longest)

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts as unit vectors [N, hidden]: mean last hidden states over a text's last ``_EMBEDDED`` tokens.

        By the frozen base model, so that they stay comparable throughout training. Texts are forwarded one at a time:
        in a batch, padding changes the last bits, and a resumed run would form other batches.
        """
        base, was_training = self.base, self.base.training

        def vector(text: str) -> NDArray[np.float32]:
            # An empty text still needs a token; 0 stands for it.
            ids = self.tokenizer.encode(text, add_special_tokens=False)[-_EMBEDDED:] or [0]
            row = torch.tensor([ids], device=self.device)
            hidden = base.get_decoder()(input_ids=row, use_cache=False).last_hidden_state[0].float()
            return np.asarray(torch.nn.functional.normalize(hidden.mean(0), dim=-1).cpu())

        base.eval()
        try:
            with self.model.disable_adapter():
                return np.stack([vector(text) for text in texts])
        finally:
            base.train(was_training)

    @contextmanager
    def generation_weights(self) -> Iterator[Any]:
        """Put the base model in evaluation mode for the block, then restore everything bit for bit.

        On a CPU the frozen weights of larger models are used in a layout for decoding (``policy.packed``). Otherwise,
        in float32, the adapter is merged into copies of the weights, which saves small models a third of the time. In
        lower precision merging would round small updates away, so the adapter stays separate, as it does on a head that
        shares its weights with the embedding.
        """
        base = self.base
        was_training, attention = self.model.training, base.config._attn_implementation
        layers = self._adapted()
        embedding = getattr(base.get_input_embeddings(), "weight", None)
        adapted = [layer.get_base_layer() for layer in layers]
        plain = all(type(own) is torch.nn.Linear and own.weight is not embedding for own in adapted)
        merged = layers if plain and base.dtype == torch.float32 and not self.packed.wanted else []
        originals = [layer.get_base_layer().weight.data for layer in merged]
        self.model.eval()
        try:
            with self.model.disable_adapter() if merged else nullcontext(), self.packed.used():
                for layer, original in zip(merged, originals, strict=True):
                    layer.get_base_layer().weight.data = original + layer.get_delta_weight("default").detach()
                yield base
        finally:
            for layer, original in zip(merged, originals, strict=True):
                layer.get_base_layer().weight.data = original
            base.set_attn_implementation(attention)
            self.model.train(was_training)

    def keep_as_reference(self) -> None:
        """Make the current adapter the KL reference, instead of the bare base model."""
        own = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        kept = {name: value.detach().clone() for name, value in own.items()}
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            self.model.add_adapter(_REFERENCE, self.model.peft_config["default"])
        set_peft_model_state_dict(self.model, kept, adapter_name=_REFERENCE)
        for name, parameter in self.model.named_parameters():
            if f".{_REFERENCE}." in name:
                parameter.requires_grad_(False)

    def save_adapter(self, directory: Path, dtype: torch.dtype | None = None) -> None:
        """Write a PEFT adapter, which ``PeftModel.from_pretrained`` and vLLM read; ``dtype``: default its own."""
        trained = ((name, p.detach()) for name, p in self.model.named_parameters() if p.requires_grad)
        weights = {name: weight.to(dtype or weight.dtype) for name, weight in trained}
        self.model.save_pretrained(
            str(directory), save_embedding_layers=False, selected_adapters=["default"], state_dict=weights
        )
        (directory / "README.md").unlink(missing_ok=True)  # PEFT's template of a model card, with nothing filled in
        if self.quantization != "none":
            quantized.record_quantization(directory, self.quantization)
        let_others_read(directory)

    def load_adapter(self, directory: Path) -> None:
        """Replace the adapter's weights by saved ones of the same shapes.

        Raises ``DataError`` if none can be read, ``ConfigError`` if they have another scale, other shapes or belong to
        another model.
        """
        if not any(directory.glob("adapter_model.*")):  # PEFT would look for it on the hub
            raise DataError(f"{directory} holds no adapter (adapter_model.safetensors); give a folder step_N")
        saved, own = read_json(directory / "adapter_config.json"), self.config.lora_alpha
        found = ", ".join(f"model.{name}={value}" for name, value in lora_shape(saved).items()).replace("'", "")
        cure = f"give another folder step_N, or set {found}, if the base model is the same"
        with refusing(DataError, f"the adapter in {directory} cannot be read", cure):
            weights = load_peft_weights(str(directory), device="cpu")
        if broken := [name for name, weight in weights.items() if not weight.isfinite().all()]:
            raise DataError(f"the adapter in {directory} has NaN or infinite weights, such as {broken[0]}; {cure}")
        here = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        theirs, ours = ({name: tuple(weight.shape) for name, weight in all_.items()} for all_ in (weights, here))
        if wrong := min((name for name, _ in theirs.items() ^ ours.items()), default=None):
            what = f"{wrong} is {theirs.get(wrong, 'missing')} in it and {ours.get(wrong, 'missing')} here"
            raise ConfigError(f"{directory} is an adapter of another shape or model: {what}; {cure}")
        set_peft_model_state_dict(self.model, weights)
        if (trained_on := quantized.recorded_quantization(directory)) != self.quantization:
            logger.warning(
                "%s was trained on a base with model.quantization=%s, not %s: its workflows may be worse",
                directory, trained_on, self.quantization,
            )  # fmt: skip
        names = [_model_name(name) for name in (self.base.config.name_or_path, self.config.model_name)]
        other = str(saved.get("base_model_name_or_path") or "")
        if other and _model_name(other) not in names:
            logger.warning(
                "%s is an adapter for %s and fits by its shape only: is %s the same model?", directory, other, names[0]
            )
        scale = {name: saved[name] for name in ("lora_alpha", "use_rslora", "alpha_pattern") if saved.get(name)}
        if scale and scale != {"lora_alpha": own}:
            found = ", ".join(f"{name}={value}" for name, value in scale.items())
            raise ConfigError(f"{directory} has {found}, not model.lora_alpha={own:g}; set that to the adapter's value")

    def _adapted(self) -> list[Any]:
        return [module for module in self.base.modules() if isinstance(module, LoraLayer)]

    def _refuse(self, layout: Layout, completions: Sequence[Completion]) -> None:
        longest = max((len(c.prompt_ids) + len(c.token_ids) for c in completions), default=0)
        if reason := why_not_positions(self.base.config.get_text_config(), longest):
            raise ConfigError(f"{reason}; lower training.prompt_max_length or training.response_max_length")
        if layout == "tree" and (reason := self.why_no_tree(longest)):
            raise ConfigError(f"{reason}; set training.shared_prefix=false to forward padded rows instead")

    @contextmanager
    def _reference(self) -> Iterator[None]:
        """Run the block with the policy before training: the adapter it started from, or none."""
        with torch.no_grad():
            if _REFERENCE not in self.model.peft_config:
                with self.model.disable_adapter():
                    yield
                return
            self.model.base_model.set_adapter(_REFERENCE, inference_mode=True)
            try:
                yield
            finally:
                self.model.base_model.set_adapter("default")


def lora_arguments(config: ModelConfig) -> dict[str, Any]:
    modules = config.lora_target_modules
    return {
        "r": config.lora_rank,
        "lora_alpha": config.lora_alpha,
        "lora_dropout": config.lora_dropout,
        "target_modules": modules if isinstance(modules, str) else list(modules),
        "task_type": "CAUSAL_LM",
    }


def lora_shape(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return rank, alpha and modules of a saved adapter's PEFT configuration, by the names of ``ModelConfig``."""
    modules = saved.get("target_modules") or ()
    found = {"lora_rank": saved.get("r"), "lora_alpha": saved.get("lora_alpha")}
    found["lora_target_modules"] = modules if isinstance(modules, str) else sorted(modules)
    return {name: value for name, value in found.items() if value}


def _model_name(path: str) -> str:
    """Return the last part of a model's hub id or path, also if the path is in the hub's cache."""
    cached = re.search(r"models--([^/]+)/snapshots/", path)
    return (cached[1].rpartition("--")[2] if cached else path.rstrip("/").rpartition("/")[2]).lower()


def silence(base: Any) -> None:
    """Switch off dropout and router noise of the frozen base model, so that scoring and sampling agree.

    The adapter has its own dropout, ``model.lora_dropout``.
    """
    for module in base.modules():
        noisy = [name for name, value in vars(module).items() if isinstance(value, float) and _NOISE.search(name)]
        for name in (*noisy, "p") if isinstance(module, torch.nn.modules.dropout._DropoutNd) else noisy:
            setattr(module, name, 0.0)
