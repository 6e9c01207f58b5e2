"""Loading of base model and tokenizer from a folder, the Hugging Face hub or a GGUF file; access to saved weights."""

import contextlib
import hashlib
import importlib.util
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as hf_logging

from llm_as_judge.errors import ConfigError, refusing

logger = logging.getLogger(__name__)

_HUB_TIMEOUT_S = 10.0


def load_model(path: str, dtype: Any, setting: str, **options: Any) -> tuple[Any, Any]:
    """Load tokenizer and causal LM; ``options`` are more arguments of ``from_pretrained``.

    Raises ``ConfigError``, which names ``setting``, if they cannot be loaded.
    """
    cure = "give a directory with a Hugging Face model, a GGUF file, or the id of a model on the hub"
    if path.endswith(".gguf") and importlib.util.find_spec("gguf") is None:
        raise ConfigError(f"{setting}: {path} needs the package gguf; install it: python -m pip install gguf")
    with refusing(ConfigError, f"{setting}: {path} cannot be loaded", cure):
        return (load_gguf if path.endswith(".gguf") else load_folder)(path, dtype, **options)


def load_folder(path: Path | str, dtype: Any, **options: Any) -> tuple[Any, Any]:
    """Load tokenizer and causal LM; without a connection to the hub, from its cache only, as its library would retry
    each file for minutes.
    """
    if not Path(path).exists():
        try:
            HfApi().model_info(str(path), timeout=_HUB_TIMEOUT_S)
        except (HfHubHTTPError, HFValidationError):
            pass  # reported by the loader
        except Exception:  # errors of an HTTP library that changes with the hub's
            constants.HF_HUB_OFFLINE = True
    AutoConfig.from_pretrained(str(path))  # first, so that a folder without a model is named as such
    return load_tokenizer(str(path)), AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype, **options)


def load_gguf(file: Path | str, dtype: Any, **options: Any) -> tuple[Any, Any]:
    """Load tokenizer and causal LM of a GGUF file; weights are dequantized, as an adapter needs plain linear layers.

    The converted model is kept in the user's cache, at four bytes a parameter: converting takes up to minutes, of which
    most are for the tokenizer.
    """
    path, stat = Path(file), os.stat(file)
    name = f"{path.resolve()}/{stat.st_size}/{stat.st_mtime_ns}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llm-as-judge" / "gguf"
    folder = cache / f"{path.stem}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    if not (folder / "config.json").exists():
        try:
            _convert(path, folder)
        except (OSError, SafetensorError) as error:  # the latter: a full disk
            what = f"{path} could not be kept converted in {folder.parent} ({error})"
            if options:
                raise ConfigError(f"{what}, from where it would be quantized; free space there") from error
            logger.warning(what)
            return load_tokenizer(str(path)), _dequantized(path, dtype)
    return load_folder(folder, dtype, **options)


def _convert(path: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        made = Path(aside) / "model"
        _dequantized(path, "float32").save_pretrained(made)
        load_tokenizer(str(path)).save_pretrained(made)
        with contextlib.suppress(OSError):  # of another process that was faster
            made.rename(folder)
    if not folder.exists():
        raise FileNotFoundError(f"{folder} could not be made")


def _dequantized(path: Path, dtype: Any) -> Any:
    from transformers import GgufConfig, modeling_gguf_pytorch_utils

    # disable_progress_bar() has no effect on this module's own tqdm.
    vars(modeling_gguf_pytorch_utils)["tqdm"] = hf_logging.tqdm
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True)
    )


def end_ids(generation: Any, tokenizer: Any) -> frozenset[int]:
    """Collect all ids that end a turn, from the tokenizer and the generation config."""
    configured = getattr(generation, "eos_token_id", None)
    ends = tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])
    return frozenset(int(i) for i in ends if i is not None)


def let_others_read(folder: Path) -> None:
    """Make a folder of weights readable for other users, such as a server's; safetensors restricts new files."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o755 if file.is_dir() else 0o644)


def load_tokenizer(name: str) -> Any:
    """Load the tokenizer of a model folder, GGUF file or hub id, exactly as its ``tokenizer.json`` defines it.

    For some model types ``AutoTokenizer`` builds the type's usual splitting rules although the folder declares a plain
    ``tokenizer.json``.
    """
    if name.endswith(".gguf"):
        return AutoTokenizer.from_pretrained(Path(name).parent, gguf_file=Path(name).name)
    if get_tokenizer_config(name).get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return PreTrainedTokenizerFast.from_pretrained(name)
    return AutoTokenizer.from_pretrained(name)
