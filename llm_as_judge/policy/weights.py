"""Loading of base model and tokenizer from a folder, the Hugging Face hub or a GGUF file; access to saved weights."""

from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as hf_logging

_HUB_TIMEOUT_S = 10.0


def load_folder(path: Path | str, dtype: str) -> tuple[Any, Any]:
    if not Path(path).exists():
        _prefer_cache(str(path))
    AutoConfig.from_pretrained(str(path))  # first, so that a folder without a model is named as such
    return load_tokenizer(str(path)), AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype)


def _prefer_cache(hub_id: str) -> None:
    """Without a connection to the hub, read its cache only; its library would retry each file for minutes."""
    try:
        HfApi().model_info(hub_id, timeout=_HUB_TIMEOUT_S)
    except (HfHubHTTPError, HFValidationError):
        pass  # reported by the loader
    except Exception:  # errors of an HTTP library that changes with the hub's
        constants.HF_HUB_OFFLINE = True


def load_gguf(path: Path, dtype: str) -> tuple[Any, Any]:
    """Tokenizer and causal LM of a GGUF file; weights are dequantized, as an adapter needs plain linear layers."""
    from transformers import GgufConfig, modeling_gguf_pytorch_utils

    # disable_progress_bar() has no effect on this module's own tqdm.
    vars(modeling_gguf_pytorch_utils)["tqdm"] = hf_logging.tqdm
    unpacked = GgufConfig(dequantize=True)
    base = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=dtype, quantization_config=unpacked
    )
    return load_tokenizer(str(path)), base


def let_others_read(folder: Path) -> None:
    """Makes a folder of weights readable for other users, such as a server's; safetensors restricts new files."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o755 if file.is_dir() else 0o644)


def load_tokenizer(name: str) -> Any:
    """Tokenizer of a model folder, GGUF file or hub id, exactly as its ``tokenizer.json`` defines it.

    For some model types ``AutoTokenizer`` builds the type's usual splitting rules although the folder declares a plain
    ``tokenizer.json``.
    """
    if name.endswith(".gguf"):
        return AutoTokenizer.from_pretrained(Path(name).parent, gguf_file=Path(name).name)
    if get_tokenizer_config(name).get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(name)
    return AutoTokenizer.from_pretrained(name)
