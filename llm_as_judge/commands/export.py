"""``llm-as-judge export``: a trained policy with a model card, as PEFT, vLLM and the Hugging Face hub read it."""

import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError, refusing
from llm_as_judge.files import naming, read_json

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.policy.model import Policy

CARD = "README.md"
_ADAPTER = "adapter_config.json"
_COMPARED = 8  # prompts on which two precisions of the base are compared


@dataclass(frozen=True, slots=True)
class Exported:
    folder: Path
    checkpoint: Path
    base_model: str
    merged: bool
    files: Mapping[str, int]  # bytes of each
    scores: bool  # whether the card has scores
    note: str = ""  # how far whole base and adapter, which are merged, are from the quantized base and adapter
    pushed: str = ""  # address on the hub


def run_export(
    config: "Config", folder: Path, checkpoint: Path, *, merge: bool = False, base_model: str | None = None
) -> Exported:
    """Write the adapter of ``checkpoint``, or the whole model merged with it, to ``folder``: all of it or nothing.

    ``base_model`` is the Hugging Face id of the base model for card and adapter (default: the configured one). The card
    takes data, reward and settings from the checkpoint, and only scores recorded for this very adapter. Raises
    ``ConfigError`` if ``folder`` is not empty, ``DataError`` for a damaged checkpoint.
    """
    from llm_as_judge.config.loading import load_config
    from llm_as_judge.policy.export import write_adapter, write_merged
    from llm_as_judge.policy.model import Policy
    from llm_as_judge.rl.checkpoint import MANIFEST, step_of, verify
    from llm_as_judge.views.card import model_card

    _check_new(folder)
    if (checkpoint / MANIFEST).is_file():
        verify(checkpoint)
    saved = checkpoint / "config.yaml"
    here = [f"model.model_name={config.model.model_name}"]  # the run may have been on another machine
    trained = load_config(saved, here) if saved.is_file() and saved.read_text(encoding="utf-8").strip() else config
    path, hub_id = config.base_model.path, base_model or _hub_id(config)
    name = hub_id or config.base_model.key
    kept, note = config.model.quantization, ""
    if merge and kept != "none":
        policy, note = _in_full_precision(path, config, checkpoint)
    else:
        policy = Policy.load(path, config.model, adapter=checkpoint)
    dtype = str(policy.base.dtype).removeprefix("torch.") + (f" on a base in {kept}" if kept != "none" else "")
    training, rows = _training_results(read_json(checkpoint / MANIFEST), trained), _evaluations(checkpoint, config)
    card = model_card(
        trained, folder.resolve().name, name, dtype, step_of(checkpoint), training, rows, _mix(trained), note,
        on_hub=hub_id is not None, merged=merge,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with naming(folder):
            if merge:
                write_merged(policy, folder)
            else:
                write_adapter(policy, folder, name)
            (folder / CARD).write_text(card, encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    files = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    return Exported(folder, checkpoint, name, merge, files, bool(training or rows), note)


def _in_full_precision(path: str, config: "Config", adapter: Path) -> "tuple[Policy, str]":
    """Load the policy on unrounded base weights, as 4 or 8 bits would round the adapter, and tell how far off it is."""
    from llm_as_judge.policy.model import Policy
    from llm_as_judge.policy.sampling import PLAIN
    from llm_as_judge.types import DOMAINS, Completion, Question
    from llm_as_judge.workflow.prompt import Layer1
    from llm_as_judge.workflow.shapes import SHAPES, workflow

    def logprobs(policy: Policy) -> list[float]:
        completions, prompt = list[Completion](), Layer1(config.workflow, config.data.domains, config.choices)
        for source, domain in list(itertools.product(SHAPES.values(), DOMAINS))[:_COMPARED]:
            asked = policy.encode(prompt(Question("", "What is 6 times 7?", domain)))
            reply = policy.tokenizer.encode(workflow(source, domain), add_special_tokens=False)
            completions.append(Completion("", tuple(asked), tuple(reply), (), "stop"))
        return [float(one) for row in policy.known_logprobs(completions, PLAIN, "padded", 4096) for one in row]

    quantized = logprobs(Policy.load(path, config.model, adapter=adapter))
    policy = Policy.load(path, config.model.model_copy(update={"quantization": "none"}), adapter=adapter)
    apart = [abs(one - other) for one, other in zip(quantized, logprobs(policy), strict=True)]
    return policy, (
        f"Log-probabilities of {_COMPARED} workflows differ from those on the base in {config.model.quantization}, on "
        f"which it was trained, by {sum(apart) / len(apart):.3f} nats a token on average and {max(apart):.2f} at most."
    )


def _hub_id(config: "Config") -> str | None:
    path = config.base_model.path
    return path if path.count("/") == 1 and not Path(path).exists() and ":" not in path else None


def check_target(repository: str, base_model: str | None, *, merge: bool) -> None:
    """Raise ``ConfigError`` without a token, or if the hub's ``repository`` holds an adapter of another base model."""
    import huggingface_hub as hub

    if base_model is None:
        raise ConfigError("--push needs the base model's name on the hub: add --base-model OWNER/NAME")
    if hub.get_token() is None:
        raise ConfigError("--push needs a token of the hub: run hf auth login, or set HF_TOKEN")
    with refusing(ConfigError, f"--push {repository}", "check the name, the network and the token"):
        hub.whoami()
        if not hub.file_exists(repository, _ADAPTER):
            return
        found = read_json(Path(hub.hf_hub_download(repository, _ADAPTER))).get("base_model_name_or_path")
    if merge or found != base_model:
        what = "a merged model" if merge else f"one of {base_model}"
        raise ConfigError(f"{repository} holds an adapter of {found}, not {what}; push to another name")


def push(folder: Path, repository: str) -> str:
    """Upload an exported folder to the hub in one commit; returns the address."""
    import huggingface_hub as hub

    cure = f"{folder} is written, so upload it later: hf upload {repository} {folder}"
    with refusing(ConfigError, f"--push {repository}", cure):
        hub.create_repo(repository, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload with llm-as-judge export")
    return f"{hub.constants.ENDPOINT}/{repository}"


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty; name a new folder")


def _training_results(manifest: Mapping[str, Any], trained: "Config") -> Mapping[str, Any]:
    """Read the results of the run that wrote the checkpoint, if it was the run's last step."""
    output = trained.output
    results = read_json(output.results_dir / "training" / trained.base_model.key / f"{output.run_name}.json")
    same = results.get("run_id") == manifest.get("run") and results.get("steps") == manifest.get("step")
    return results if same else {}


def _evaluations(checkpoint: Path, config: "Config") -> Sequence[Mapping[str, Any]]:
    """Read the evaluation rows of these very weights."""
    from llm_as_judge.assembly.policy import adapter_digest

    rows = read_json(config.output.results_dir / "evaluation" / f"{config.base_model.key}_results.json").get("datasets")
    digest = adapter_digest(checkpoint)
    return [row for row in rows or () if row.get("adapter") == digest]


def _mix(trained: "Config") -> Mapping[str, Any]:
    """Count the lines of each dataset in a training mix made by ``data process``."""
    file = trained.data.train_dataset
    datasets = read_json(file.with_name("info.json")).get("datasets", {}) if file else {}
    return {name: of["train_mix"]["lines"] for name, of in datasets.items() if "lines" in of.get("train_mix", {})}


@cli.grouped
def export(
    options: cli.ConfigOptions,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; new or empty.")],
    merge: Annotated[bool, typer.Option("--merge", help="Whole model with the adapter merged in.")] = False,
    base_model: Annotated[str | None, typer.Option(metavar="ID", help="Hugging Face id of the base model.")] = None,
    to: Annotated[str | None, typer.Option("--push", metavar="OWNER/NAME", help="Upload it to the hub too.")] = None,
    checkpoint: cli.Checkpoint = None,
    as_json: cli.AsJson = False,
) -> None:
    """Export a trained adapter or merged model to DIR. The folder includes tokenizer and model card."""
    _check_new(folder)  # before torch is loaded
    settings = options.load()
    if to is not None:
        check_target(to, base_model or _hub_id(settings), merge=merge)
    chosen = cli.AdapterOptions(checkpoint).choose(settings, needed=True)
    assert chosen is not None
    result = run_export(settings, folder, chosen, merge=merge, base_model=base_model)
    if to is not None:
        result = replace(result, pushed=push(folder, to))
    if as_json:
        cli.print_json(result)
        return
    console = cli.make_console(as_json)
    cli.show(console, cli.policy_name(chosen, settings))
    cli.show(console, *(f"{size:>14,}  {folder / name}" for name, size in result.files.items()))
    if result.note:
        cli.show(console, result.note)
    if not result.scores:
        cli.show(console, "the model card has no scores; run llm-as-judge evaluate before the export to include them")
    cli.show(console, f"pushed to {result.pushed}" if to else f"publish it with: hf upload OWNER/NAME {folder}")
