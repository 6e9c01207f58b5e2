"""Export of a trained policy: an adapter for PEFT and vLLM, or a model with the adapter merged in."""

import json
from pathlib import Path

from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.weights import let_others_read


def write_adapter(policy: Policy, directory: Path, base_model: str) -> None:
    """Write the PEFT adapter, in the base model's precision, and the tokenizer.

    ``base_model`` is the base model's name in the configuration. Target modules given as a regular expression are
    listed by name, because vLLM reads lists only.
    """
    policy.save_adapter(directory, policy.base.dtype)
    path = directory / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base_model
    if isinstance(config["target_modules"], str):
        weights = get_peft_model_state_dict(policy.model)
        names = {name.partition(".lora_")[0].removeprefix("base_model.model.") for name in weights}
        config["target_modules"] = sorted(names)
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    policy.tokenizer.save_pretrained(directory)


def write_merged(policy: Policy, directory: Path) -> None:
    """Write base model and adapter merged, in the base model's precision; ``policy`` is unusable afterwards."""
    embedding = policy.base.get_input_embeddings().weight
    for name, layer in policy.base.named_modules():
        if isinstance(layer, LoraLayer) and layer.get_base_layer().weight is embedding:
            raise ConfigError(f"{name} shares its weights with the embedding: its adapter cannot be merged")
    whole = policy.model.merge_and_unload()
    whole.set_attn_implementation("sdpa")
    if hasattr(whole.config, "quantization_config"):  # of the GGUF file it was loaded from
        del whole.config.quantization_config
    whole.save_pretrained(directory)
    policy.tokenizer.save_pretrained(directory)
    let_others_read(directory)
