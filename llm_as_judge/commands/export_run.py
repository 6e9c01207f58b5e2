"""``llm-as-judge export``: a trained policy with its model card, ready for ``huggingface-cli upload``."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.policy import adapter_digest
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.export import write_adapter, write_merged
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl.checkpoint import MANIFEST, step_of, verify
from llm_as_judge.views.card import CardFacts, model_card

CARD = "README.md"


@dataclass(frozen=True, slots=True)
class Exported:
    folder: Path
    checkpoint: Path
    base_model: str
    merged: bool
    files: Mapping[str, int]  # bytes of each
    scores: bool  # the card has some

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "checkpoint": str(self.checkpoint),
            "base_model": self.base_model,
            "merged": self.merged,
            "files": dict(self.files),
            "scores": self.scores,
        }


def export(
    config: Config, folder: Path, checkpoint: Path, *, merge: bool = False, base_model: str | None = None
) -> Exported:
    """Writes the adapter of ``checkpoint``, or the whole model with it, to ``folder``, whole or not at all.

    ``base_model`` is what card and adapter call the base model, a Hugging Face id; None is that of the configuration.
    Data, reward and settings are those that the checkpoint was made with; scores are those that were recorded of this
    very adapter. Raises ``ConfigError`` where ``folder`` holds anything, ``DataError`` for a damaged checkpoint.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not empty; name a new folder")
    if (checkpoint / MANIFEST).is_file():
        verify(checkpoint)
    trained = _trained_with(checkpoint, config)
    path = config.base_model.path
    on_hub = base_model is not None or (path.count("/") == 1 and not Path(path).exists() and ":" not in path)
    name = base_model or (path if on_hub else config.base_model.key)
    policy = Policy.load(path, config.model, adapter=checkpoint)
    dtype = str(policy.base.dtype).removeprefix("torch.")
    training, rows = _training_of(checkpoint, trained), _rows_of(checkpoint, config)
    facts = CardFacts(
        folder.resolve().name, name, on_hub, merge, dtype, step_of(checkpoint), trained, training, rows, _mix(trained)
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        if merge:
            write_merged(policy, aside)
        else:
            write_adapter(policy, aside, name)
        (aside / CARD).write_text(model_card(facts), encoding="utf-8")
        aside.chmod(0o755)
        aside.replace(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    return Exported(folder, checkpoint, name, merge, files, bool(training or rows))


def _trained_with(checkpoint: Path, config: Config) -> Config:
    """The configuration that lies in the checkpoint, else the given one."""
    file = checkpoint / "config.yaml"
    return load_config(file) if file.is_file() and file.read_text(encoding="utf-8").strip() else config


def _training_of(checkpoint: Path, trained: Config) -> Mapping[str, Any]:
    """The results of the run that wrote the checkpoint, where that was its last step."""
    manifest, key = _read(checkpoint / MANIFEST), trained.base_model.key
    results = _read(trained.output.results_dir / "training" / key / f"{trained.output.run_name}.json")
    same = results.get("run_id") == manifest.get("run") and results.get("steps") == manifest.get("step")
    return results if results and same else {}


def _rows_of(checkpoint: Path, config: Config) -> Sequence[Mapping[str, Any]]:
    """Evaluations of these very weights."""
    rows = _read(config.output.results_dir / "evaluation" / f"{config.base_model.key}_results.json").get("datasets", [])
    digest = adapter_digest(checkpoint)
    return [row for row in rows if row.get("adapter") == digest]


def _mix(trained: Config) -> Mapping[str, Any]:
    """Lines of each dataset in the training mix, where ``data process`` made it."""
    file = trained.data.train_dataset
    facts = _read(file.with_name("info.json")).get("datasets", {}) if file else {}
    return {name: of["train_mix"]["lines"] for name, of in facts.items() if "lines" in of.get("train_mix", {})}


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
