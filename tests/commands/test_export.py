"""Exported policies as other programs read them, and model cards with recorded scores only."""

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from helpers.cli import CommandLine
from helpers.finished import EMBEDDED
from helpers.processes import program
from helpers.web import Handler, serving
from huggingface_hub import ModelCard
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from llm_as_judge.assembly.policy import adapter_digest
from llm_as_judge.commands.export import run_export
from llm_as_judge.config.loading import load_config, to_yaml
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.files import write_json
from llm_as_judge.policy.model import Policy
from llm_as_judge.rl import checkpoint
from llm_as_judge.rl.ranks import ALONE
from llm_as_judge.rl.update import SharedAdamW
from llm_as_judge.types import Prompt

IDS = torch.tensor([[1, 50, 2, 300, 7, 9, 1200, 44]])


@pytest.fixture
def config(here: Path) -> Config:
    return load_config(EMBEDDED)


def trained(config: Config, model: str = "nano") -> tuple[Policy, Path]:
    """A policy whose adapter has an effect, and its checkpoint, which calls the base ``model``."""
    policy = Policy.load(config.base_model.path, config.model)
    with torch.no_grad():
        for parameter in policy.trainable_parameters:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    state = checkpoint.TrainingState(7, checkpoint.random_states())
    folder = Path("checkpoints/nano/grpo_mixed")
    optimizer = SharedAdamW(policy, ALONE, 1e-3, 0.0)
    text = to_yaml(config).replace("model_name: nano", f"model_name: {model}")
    return policy, checkpoint.save(folder, optimizer, state, config_text=text, run_id="run-1")


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model.eval()(IDS.to(model.device)).logits.float()


@pytest.fixture
def policy(config: Config) -> tuple[torch.Tensor, torch.Tensor, Path]:
    """Logits with the adapter and without, and the checkpoint."""
    made, step = trained(config)
    whole = logits(made.model)
    with made.model.disable_adapter():
        bare = logits(made.model)
    assert (whole - bare).abs().max() > 0.5, "the adapter has no effect: no test could fail"
    return whole, bare, step


def test_peft_and_the_policy_read_the_exported_adapter(config: Config, policy: Any) -> None:
    whole, _, step = policy
    result = run_export(config, Path("out/adapter"), step)
    base = AutoModelForCausalLM.from_pretrained(config.base_model.path)
    assert torch.allclose(logits(PeftModel.from_pretrained(base, "out/adapter")), whole, atol=1e-4)
    about = json.loads(Path("out/adapter/adapter_config.json").read_text())
    assert len(about["target_modules"]) == 7 and about["base_model_name_or_path"] == "nano"
    assert all(name.startswith("model.layers.3.") for name in about["target_modules"])
    assert {"README.md", "adapter_model.safetensors", "tokenizer.json"} <= set(result.files)
    assert not {"optimizer.pt", "state.pt", "config.yaml"} & set(result.files)
    assert not list(Path("out").glob(".*"))
    again = Policy.load(config.base_model.path, config.model, adapter=Path("out/adapter"))
    assert torch.allclose(logits(again.model), whole)
    run_export(load_config(EMBEDDED, ["dtype=bfloat16"]), Path("half"), step)
    assert {weight.dtype for weight in load_file("half/adapter_model.safetensors").values()} == {torch.bfloat16}


def test_the_merged_model_has_the_policys_logits_tokens_and_template(config: Config, policy: Any) -> None:
    whole, bare, step = policy
    for dtype, most in (("float32", 1e-4), ("bfloat16", 0.3)):
        settings = load_config(EMBEDDED, [f"dtype={dtype}"])
        result = run_export(settings, Path(dtype), step, merge=True)
        model = AutoModelForCausalLM.from_pretrained(dtype, dtype="auto")
        assert str(model.dtype) == f"torch.{dtype}" and not any("lora" in name for name in model.state_dict())
        assert (logits(model) - whole).abs().max() < most < (whole - bare).abs().max()
        assert all(Path(dtype, file).stat().st_mode & 0o777 == 0o644 for file in result.files)
        assert "model.safetensors" in result.files and "adapter_model.safetensors" not in result.files
    prompt, own = Prompt("Write.", "Tom has 3 apples."), Policy.load(config.base_model.path, config.model)
    merged = Policy.load("float32", config.model)
    assert merged.encode(prompt) == own.encode(prompt) and merged.eos_token_ids == own.eos_token_ids
    plain = AutoTokenizer.from_pretrained("float32")
    assert plain.decode(own.encode(prompt)) == own.tokenizer.decode(own.encode(prompt))
    text = "class Workflow:\n    def __init__(self, name: str): # Tom's 3 apples, naïve"
    assert plain(text).input_ids == own.tokenizer(text).input_ids


def test_the_card_names_facts_but_no_path_and_only_this_adapters_scores(config: Config, policy: Any) -> None:
    run_export(config, Path("out"), policy[2])
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert str(Path.cwd()) not in card and "embedded/weights" not in card
    assert "base_model" not in card.split("---")[1], "the hub has no such folder"
    for fact in ("7 steps of GRPO", "correctness 0.65", "training.learning_rate | 0.002", "nano-executor", "math 0.4"):
        assert fact in re.sub(" +", " ", card)
    run_export(config, Path("named"), policy[2], base_model="someone/nano")
    card = Path("named/README.md").read_text(encoding="utf-8")
    assert ModelCard(card).data.base_model == "someone/nano"
    assert "vllm serve someone/nano --enable-lora --max-lora-rank 64" in card
    assert json.loads(Path("named/adapter_config.json").read_text())["base_model_name_or_path"] == "someone/nano"
    for run, steps, digest, used in (
        ("run-2", 7, "other", False), ("run-1", 8, None, False), ("run-1", 7, adapter_digest(policy[2]), True),
    ):  # fmt: skip
        record(run, steps, digest)
        folder = Path(f"{run}-{steps}")
        assert run_export(config, folder, policy[2]).scores == used
        card = re.sub(" +", " ", (folder / "README.md").read_text(encoding="utf-8"))
        assert ("No scores are recorded for this adapter." in card) == (not used)
    assert "| overall | 52.5 [42.5, 62.5] | 77.5 [67.5, 87.5] |" in card and "150 held-out problems" in card
    assert "| squad2 | exact | 31.2 [25.0, 37.5] | 64 | gpt-oss |" in card


def summary(share: float) -> dict[str, Any]:
    shares = {"overall": share, "valid_rate": 0.875, "math": share}
    return {**shares, "interval": {name: [value - 0.1, value + 0.1] for name, value in shares.items()}, "problems": 150}


def record(run: str, steps: int, digest: str | None) -> None:
    """Results of training, and of an evaluation of the adapter."""
    official = {"name": "exact", "exact": 0.3125, "interval": {"exact": [0.25, 0.375]}, "problems": {"exact": 64}}
    metrics = {"accuracy": 0.3, "official": {"squad2": official}, "problems": 64}
    row = {"dataset": "squad2", "adapter": digest, "executor": "gpt-oss", "metrics": metrics}
    write_json(Path("results/evaluation/nano_results.json"), {"model": "nano", "datasets": [row]})
    results = {"run_id": run, "steps": steps, "before": summary(0.525), "after": summary(0.775)}
    write_json(Path("results/training/nano/grpo_mixed.json"), results)


def test_a_checkpoint_of_another_machine_is_exported_from_the_models_folder_here(config: Config) -> None:
    _, step = trained(config, "/elsewhere/nano")
    result = run_export(config, Path("out/adapter"), step)
    assert result.base_model == "nano" and "elsewhere" not in Path("out/adapter/README.md").read_text()


def test_a_full_folder_and_a_damaged_checkpoint_are_refused(config: Config, policy: Any) -> None:
    with pytest.raises(ConfigError, match="not empty"):
        run_export(config, policy[2], policy[2])
    (policy[2] / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="damaged"):
        run_export(config, Path("out"), policy[2])
    assert not Path("out").exists()


def test_a_full_disk_or_folder_has_a_cure(config: Config, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(config)

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(Policy, "save_adapter", full)
    shown = cli.refused("export", "out")
    assert "error: out: no space left on device" in shown and "llm-as-judge export DIR" in shown, shown
    assert "output_dir" not in shown and not Path("out").exists()
    Path("taken").mkdir()
    Path("taken/file").touch()
    monkeypatch.setattr("llm_as_judge.commands.cli.AdapterOptions.choose", None)  # refused before anything is loaded
    assert "taken exists and is not empty" in cli.refused("export", "taken")


def test_the_command_exports_the_newest_checkpoint_and_lists_its_files(config: Config, cli: CommandLine) -> None:
    assert "train first" in cli.refused("export", "out")
    trained(config)
    found = cli.json("export", "out")
    assert found["checkpoint"].endswith("step_7") and found["files"]["adapter_model.safetensors"] > 10_000
    printed = cli("export", "merged", "--merge", "--set", "lora_rank=7")
    said = ("model.safetensors", "hf upload", "step_7 and its own lora_rank=64, not the configured one")
    assert all(part in printed for part in said)
    cli.refused("export", "out")


class Hub(Handler):
    """The hub's HTTP interface as far as an upload needs it; ``files`` by repository and name."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path == "/api/whoami-v2":
            right = self.headers["Authorization"] == "Bearer hf_right"
            return self.send(200 if right else 401, {"name": "me"} if right else {"error": "Invalid token"})
        found = self.files.get(self.path.strip("/").replace("resolve/main/", ""))
        kind = {"X-Error-Code": "EntryNotFound"}
        if found:
            kind = {"ETag": '"a"', "X-Repo-Commit": "c" * 40, "X-Linked-Size": str(len(found))}
        body = found.decode() if found and self.command == "GET" else ""
        self.send(200 if found else 404, body, **kind)

    def do_POST(self) -> None:
        body = self.raw()
        if self.headers["Authorization"] != "Bearer hf_right":
            self.send(401, {"error": "Invalid token"})
        elif self.path.endswith("/preupload/main"):
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            self.send(200, {"files": files})
        elif self.path.endswith("/commit/main"):
            repository = self.path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in (json.loads(line) for line in body.splitlines()):
                if line["key"] == "file":
                    self.files[f"{repository}/{line['value']['path']}"] = base64.b64decode(line["value"]["content"])
            commit = {"commitUrl": f"http://{self.headers['Host']}/me/mine/commit/c", "commitOid": "c" * 40}
            self.send(200, {**commit, "pullRequestUrl": None})
        else:
            self.send(200, {"url": f"http://{self.headers['Host']}/me/mine", "id": "me/mine", "name": "me/mine"})


@pytest.mark.slow
def test_push_uploads_the_folder_and_never_over_another_bases_adapter(config: Config, here: Path) -> None:
    trained(config)

    def export(folder: str, *words: str, token: str = "hf_right", base: str = "Org/Base") -> Any:
        named = ("--base-model", base) if base else ()
        command = (sys.executable, "-m", "llm_as_judge", "export", folder, "--push", "me/mine", *named, *words)
        return program(*command, HF_ENDPOINT=address, HF_TOKEN=token, HF_HOME=here / "hub", HF_HUB_OFFLINE="0")

    with serving(Hub) as address:
        for words, reason in (
            ({"token": ""}, "needs a token of the hub: run hf auth login"),
            ({"base": ""}, "add --base-model OWNER/NAME"),
            ({"token": "hf_wrong"}, "Invalid user token"),
        ):
            refused = export("refused", **words)
            assert refused.returncode and reason in refused.stderr and not Hub.files, refused.stderr
        done = export("one")
        assert done.returncode == 0 and f"pushed to {address}/me/mine" in done.stdout, done.stderr
        sent = {name.removeprefix("me/mine/"): data for name, data in Hub.files.items()}
        assert sent == {path.name: path.read_bytes() for path in (here / "one").iterdir()}
        assert export("two").returncode == 0
        for words, what in ((["--merge"], "a merged model"), (["--base-model", "Org/Other"], "one of Org/Other")):
            refused = export("three", *words)
            assert f"me/mine holds an adapter of Org/Base, not {what}; push to another name" in refused.stderr
            assert not (here / "three").exists()
