"""The policy: a frozen Hugging Face causal LM with a trainable LoRA adapter.

It encodes prompts, scores completions (padded, or every shared prefix once) and embeds texts. It does not
sample: that is an engine's work. Nothing here truncates: what does not fit is the caller's to refuse.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils import load_peft_weights, set_peft_model_state_dict
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as hf_logging

from llm_as_judge.errors import ConfigError
from llm_as_judge.experience.embedding import HiddenStateEmbedder
from llm_as_judge.rl import prefix_tree
from llm_as_judge.rl.loss import entropy_of, sampling_logprobs
from llm_as_judge.types import Completion

#: Logits are materialised for at most this many elements at a time; more are recomputed in the backward pass.
LOGIT_ELEMENTS = 2**26

AttentionInterface.register(prefix_tree.ATTENTION, prefix_tree.tree_attention)


class PromptLike(Protocol):
    @property
    def system(self) -> str: ...
    @property
    def user(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The ``model`` section of the configuration, and the seed of the adapter's initial weights."""

    model_name: str = ""
    lora_rank: int = 64
    lora_alpha: float = 64
    lora_dropout: float = 0.0
    lora_target_modules: str | Sequence[str] = "all-linear"
    dtype: str = "auto"  # auto: bfloat16 on cuda, float32 elsewhere
    device: str = "auto"
    gradient_checkpointing: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution that completions were drawn from, and are scored under."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Per completion token, right-padded to the longest completion of the batch; padding is 0."""

    logprobs: Tensor  # [B, T] float32
    entropy: Tensor  # [B, T], detached
    mask: Tensor  # [B, T] bool


class Policy:
    """``base`` is the causal LM with adapter layers inside, ``model`` the PEFT wrapper around it."""

    def __init__(self, base: Any, tokenizer: Any, settings: PolicySettings) -> None:
        self.settings = settings
        self.tokenizer = tokenizer
        device = resolve_device(settings.device)
        base = base.to(device=device, dtype=resolve_dtype(settings.dtype, device))
        modules = settings.lora_target_modules
        config = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,  # type: ignore[arg-type]
            lora_dropout=settings.lora_dropout,
            target_modules=modules if isinstance(modules, str) else list(modules),
            task_type="CAUSAL_LM",
        )
        # The adapter depends on its seed alone, and making it leaves the caller's random state as it was.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(settings.seed)
            with warnings.catch_warnings():
                # PEFT asks transformers for an attribute by a name that has a newer one.
                warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")
                self.model: Any = get_peft_model(base, config)
        if settings.gradient_checkpointing:
            self.base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.base.enable_input_require_grads()
        self.model.train()

    @classmethod
    def load(cls, settings: PolicySettings) -> Policy:
        """Model and tokenizer from a directory or the Hugging Face hub. Raises ``ConfigError`` where there is
        none.
        """
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            tokenizer = load_tokenizer(settings.model_name)
            base = AutoModelForCausalLM.from_pretrained(
                settings.model_name, dtype=resolve_dtype(settings.dtype, resolve_device(settings.device))
            )
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"model.model_name={settings.model_name!r} cannot be loaded: {error}. "
                "Give a directory with a Hugging Face model, or the id of one on the hub"
            ) from error
        return cls(base, tokenizer, settings)

    @classmethod
    def from_config(cls, config: Any, tokenizer: Any, settings: PolicySettings) -> Policy:
        """A randomly initialised model of the given Hugging Face configuration."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            base = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        return cls(base, tokenizer, settings)

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
        found = {self.tokenizer.eos_token_id}
        configured = getattr(self.base.generation_config, "eos_token_id", None)
        found |= set(configured) if isinstance(configured, list) else {configured}
        return frozenset(int(i) for i in found if i is not None)

    def trainable_parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def encode(self, prompt: PromptLike) -> list[int]:
        """Ids of the chat, up to where the assistant begins; thinking is off where a template knows the
        switch.
        """
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(
                f"model.model_name={self.settings.model_name!r} has no chat template; choose an instruction-tuned model"
            )
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        ids = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, enable_thinking=False
        )
        return [int(i) for i in ids]

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
        """
        lengths = [len(c.token_ids) for c in completions]
        if not lengths or min(lengths) == 0:
            raise ValueError("every completion needs at least one token, and the batch at least one completion")
        with self._reference() if reference else nullcontext():
            hidden = self._tree_hidden(completions) if shared_prefix else self._padded_hidden(completions)
            targets = torch.tensor([t for c in completions for t in c.token_ids], device=self.device)
            flat_logprobs, flat_entropy = self._score(hidden, targets, sampling or Sampling())
        longest = max(lengths)
        mask = torch.arange(longest) < torch.tensor(lengths)[:, None]  # [B, T]
        mask = mask.to(self.device)
        empty = flat_logprobs.new_zeros(mask.shape)
        return TokenScores(
            logprobs=empty.masked_scatter(mask, flat_logprobs),
            entropy=empty.masked_scatter(mask, flat_entropy),
            mask=mask,
        )

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

    def save_adapter(self, directory: Path) -> None:
        """Writes a PEFT adapter: ``PeftModel.from_pretrained`` and vLLM read it."""
        self.model.save_pretrained(str(directory), save_embedding_layers=False)

    def load_adapter(self, directory: Path) -> None:
        """Puts a saved adapter's weights in place of the present ones; the shapes must agree."""
        weights = load_peft_weights(str(directory), device="cpu")
        try:
            result: Any = set_peft_model_state_dict(self.model, weights)
        except RuntimeError as error:
            raise ConfigError(f"{directory} is an adapter of another shape or model: {error}") from error
        if result.unexpected_keys:
            raise ConfigError(f"{directory} is an adapter of another model: it has {result.unexpected_keys[:3]}")

    def _padded_hidden(self, completions: Sequence[Completion]) -> Tensor:
        """Hidden states [M, hidden] that predict the completion tokens, one sequence after the other."""
        sequences = [[*c.prompt_ids, *c.token_ids[:-1]] for c in completions]
        ids = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.long)
        where = torch.zeros_like(ids, dtype=torch.bool)
        for row, (sequence, completion) in enumerate(zip(sequences, completions, strict=True)):
            ids[row, : len(sequence)] = torch.tensor(sequence)
            where[row, len(completion.prompt_ids) - 1 : len(sequence)] = True
        # Right padding under a causal mask: no real token sees padding, so the mask stays implicit and fast.
        out = self.base.get_decoder()(input_ids=ids.to(self.device), use_cache=False)
        hidden: Tensor = out.last_hidden_state[where.to(self.device)]
        return hidden

    def _tree_hidden(self, completions: Sequence[Completion]) -> Tensor:
        if self.settings.gradient_checkpointing:
            # The recomputation in the backward pass would look the attention up after it was put back.
            raise ConfigError("shared_prefix and model.gradient_checkpointing exclude each other; switch one off")
        tree = prefix_tree.plan([c.prompt_ids for c in completions], [c.token_ids for c in completions])
        before = self.base.config._attn_implementation
        self.base.set_attn_implementation(prefix_tree.ATTENTION)
        try:
            out = self.base.get_decoder()(
                input_ids=tree.ids[None].to(self.device),
                position_ids=tree.positions[None].to(self.device),
                use_cache=False,
                tree=tree,
            )
        finally:
            self.base.set_attn_implementation(before)
        hidden: Tensor = out.last_hidden_state[0][tree.rows.to(self.device)]
        return hidden

    def _score(self, hidden: Tensor, targets: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies [M]; the head's logits exist only a chunk at a time."""
        head = self.base.get_output_embeddings()

        def chunk_scores(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
            full = sampling_logprobs(head(states), sampling.temperature, sampling.top_p, sampling.top_k, keep=ids)
            return full.gather(-1, ids[:, None])[:, 0], entropy_of(full.detach())

        rows = max(1, LOGIT_ELEMENTS // head.weight.shape[0])
        if len(targets) <= rows:
            return chunk_scores(hidden, targets)
        parts = [
            checkpoint(chunk_scores, hidden[i : i + rows], targets[i : i + rows], use_reentrant=False)
            for i in range(0, len(targets), rows)
        ]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    @contextmanager
    def _reference(self) -> Iterator[None]:
        with self._without_adapter(), torch.no_grad():
            yield

    @contextmanager
    def _without_adapter(self) -> Iterator[None]:
        with self.model.disable_adapter():
            yield


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model folder or hub id, as its ``tokenizer.json`` has it.

    For some model types ``AutoTokenizer`` builds the type's usual splitting rules even where the folder declares a
    plain ``tokenizer.json``; that declaration is taken at its word here.
    """
    if get_tokenizer_config(name).get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(name)
    return AutoTokenizer.from_pretrained(name)


def resolve_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f'model.device={name!r} is no device; use "auto", "cpu", "cuda" or "cuda:N"') from error


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is bfloat16 on cuda and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(f'model.dtype={name!r} is no dtype; use "auto", "float32", "bfloat16" or "float16"')
    return dtype


def load_trained(directory: Path, settings: PolicySettings) -> Policy:
    """The policy of a checkpoint directory: the base model of ``settings`` with the adapter saved there."""
    policy = Policy.load(settings)
    policy.load_adapter(directory)
    return policy
