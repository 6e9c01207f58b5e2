"""What only a run meets: a wrong policy, wrong files and places, sizes that fit nowhere; a line with the cure for each.

``test_bad_input`` has what is refused before a run begins.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
import torch

from llm_as_judge.commands.app import main
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.workflow import recipes

ROOT = Path(__file__).parents[2]
MATHS = "domain_ratios={math: 1, code: 0, qa: 0}"
FILES = {
    "words.txt": "words\n",
    "empty.jsonl": "",
    "broken.jsonl": '{"problem": "1", "answer": \n',
    "code.jsonl": '{"problem": "f", "type": "code", "tests": "assert f(", "entry_point": "f"}\n',
    "good.jsonl": '{"problem": "1 + 1?", "answer": "2", "type": "math"}\n',
    "qa.jsonl": '{"problem": "Who?", "answer": "I", "type": "qa"}\n',
    "guide.yaml": "math: [\n",
    "guide2.yaml": "math: x\n",
    "list.yaml": "- a\n",
    "half-json/config.json": "{",
    "no-weights/config.json": '{"model_type": "qwen2"}',
    "no-adapter/adapter_config.json": "{}",
    "bad-adapter/adapter_config.json": "{}",
    "bad-adapter/adapter_model.safetensors": "xx",
    "buffer/math_top_samples.jsonl": '{"problem_id": 1}\n',
    "broken.py": "def f(:\n",
    "raises.py": "raise RuntimeError('at import')\n",
    "own.py": "def asks(x):\n    return 1\n\n\n"
    "def fails(completions, **columns):\n    raise ValueError('no such thing')\n\n\n"
    "def short(completions, **columns):\n    return []\n\n\n"
    "def words(completions, **columns):\n    return ['good' for _ in completions]\n",
    "not-workflows.jsonl": '{"domain": "math", "workflow": "x = 1"}\n',
}
#: Settings, and words that must be told beside the cure.
WRONG = {
    "a module that is not there": (["lora_target_modules=no_such_layer"], "all-linear"),
    "modules that are not there": (["lora_target_modules=[nope]"], "all-linear"),
    "no modules": (["lora_target_modules=[]"], "all-linear"),
    "a rank beyond all layers": (["lora_rank=2147483647"], "lora_rank"),
    "a device beyond the last": (["device=cuda:77"], "model.device='cuda:77'"),
    "a folder without a model": (["model_name=./empty"], "./empty"),
    "a model without weights": (["model_name=./no-weights"], "./no-weights"),
    "a model that is half written": (["model_name=./half-json"], "./half-json"),
    "no folder for an adapter": (["model.adapter=nowhere"], "nowhere holds no adapter"),
    "a file for an adapter": (["model.adapter=words.txt"], "words.txt holds no adapter"),
    "an adapter without weights": (["model.adapter=no-adapter"], "give a folder step_N"),
    "a damaged adapter": (["model.adapter=bad-adapter"], "give a folder step_N"),
    "prompts that never fit": (["prompt_max_length=1"], "prompt_max_length=1"),
    "a group beyond all measure": (["num_return_sequences_in_group=2147483647"], "num_return_sequences_in_group"),
    "a batch beyond all measure": (["rollout_batch_size=2147483647"], "rollout_batch_size"),
    "an evaluation beyond all measure": (["eval_problems=2147483647"], "eval_problems"),
    "a learning rate beyond all measure": (["learning_rate=1e38"], "learning_rate"),
    "a clip range beyond all measure": (["epsilon_high=1e300"], "epsilon_high must be at most"),
    "a decay beyond all measure": (["weight_decay=1e300"], "weight_decay must be at most"),
    "no training file": (["train_dataset=nowhere.jsonl"], "nowhere.jsonl"),
    "a folder without problems": (["train_dataset=empty"], "empty"),
    "an empty training file": (["train_dataset=empty.jsonl"], "empty.jsonl"),
    "a broken training file": (["train_dataset=broken.jsonl"], "broken.jsonl:1"),
    "no text": (["train_dataset=bytes.bin"], "bytes.bin"),
    "tests that do not parse": (["train_dataset=code.jsonl"], "code.jsonl:1"),
    "a domain without problems": (["train_dataset=good.jsonl"], "domain_ratios"),
    "no test file": (["train_dataset=good.jsonl", MATHS], "test_dataset"),
    "a test file that is not there": (["train_dataset=good.jsonl", "test_dataset=nowhere", MATHS], "nowhere"),
    "no validation file": (["train_dataset=good.jsonl", "test_dataset=qa.jsonl", MATHS, "eval_every=1"], "val_dataset"),
    "one file for both": (["train_dataset=good.jsonl", "test_dataset=good.jsonl", MATHS], "one file"),
    **{
        f"{setting} from {file}": ([f"{setting}={file}", "judge.mode=hybrid"], file)
        for setting in ("guidance", "enhancer", "judge.prompts")
        for file in ("nowhere.yaml", "words.txt", "guide.yaml", "list.yaml", "empty", "bytes.bin")
    },
    "guidance for a part": (["guidance=guide2.yaml"], "guide2.yaml"),
    "a folder for the cache": (["judge.cache=empty", "judge.mode=hybrid"], "cache"),
    "another file for the cache": (["judge.cache=bytes.bin", "judge.mode=hybrid"], "cache"),
    "a folder that takes no cache": (["judge.cache=/proc/x/y", "judge.mode=hybrid"], "/proc/x"),
    "a cache below a file": (["judge.cache=words.txt/x", "judge.mode=hybrid"], "words.txt"),
    **{
        f"a reward of {function}": ([f"functions={{'{function}': 1}}"], function.partition(":")[0])
        for function in ("no.py:f", "broken.py:f", "raises.py:f", "own.py:no", "own.py:asks", "bytes.bin:f", "empty:f")
    },
    "a reward that fails": (["functions={'own.py:fails': 1}"], "ValueError: no such thing"),
    "a reward for nobody": (["functions={'own.py:short': 1}"], "must return"),
    "a reward in words": (["functions={'own.py:words': 1}"], "must return"),
    "no such embedder": (["embedder=no-such-model"], "embedder='no-such-model'"),
    "a file for the buffer": (["persistence_dir=words.txt"], "words.txt"),
    "a buffer of something else": (["persistence_dir=buffer", "reuse=true"], "math_top_samples.jsonl:1"),
    "a buffer that is no text": (["persistence_dir=bytes", "reuse=true"], "math_top_samples.jsonl"),
    **{
        f"a {what} for {place}": ([f"{place}={path}"], path)
        for place in ("output_dir", "log_dir", "results_dir")
        for what, path in (("file", "words.txt"), ("device", "/dev/null"), ("folder that takes none", "/proc/x"))
    },
    "nobody to sample": (
        ["generation.engine=vllm", "engine.base_url=http://127.0.0.1:9/v1", "engine.max_retries=0"], "127.0.0.1:9",
    ),
    "no such executor": (["executor.model=no-such"], "no-such"),
    "nobody to execute": (
        ["executor.provider=openai", "executor.base_url=http://127.0.0.1:9/v1", "executor.max_retries=0"], "server",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text, encoding="utf-8")
    (made / "empty").mkdir()
    (made / "bytes").mkdir()
    for name in ("bytes.bin", "bytes/math_top_samples.jsonl"):
        (made / name).write_bytes(b"\xff\xfe\x00\xd8" * 10)
    return made


@pytest.fixture
def settings(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The smallest run there is, of which every setting but the wrong ones is right."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)
    chosen = {
        "executor.base_url": address, "judge.base_url": address, "judge.mode": "rules", "max_steps": 1,
        "rollout_batch_size": 2, "num_return_sequences_in_group": 2, "eval_problems": 1, "baselines": "false",
        "plan_matrix": "false", "max_problems": 3, "patience_s": 0,
    }  # fmt: skip
    return [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = main(list(words))
    told = capsys.readouterr().err
    assert status == 2 and "Traceback" not in told, told
    (line,) = (line for line in told.splitlines() if line.startswith("error: "))
    assert len(line) < 1500, f"{len(line)} characters"
    return line


@pytest.mark.parametrize("what", WRONG)
def test_a_run_that_cannot_be_is_told_in_a_line(
    what: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, told = WRONG[what]
    words = [word for override in wrong for word in ("--set", override)]
    assert told in refused(capsys, "train", "--config", str(ROOT / "config/embedded.yaml"), *settings, *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
@pytest.mark.parametrize("command", ["train", "warmup", "evaluate"])
def test_cuda_where_there_is_none_is_told(
    command: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(ROOT / "config/embedded.yaml")
    assert "use auto, cpu" in refused(capsys, command, "--config", config, *settings, "--device", "cuda")


@pytest.mark.parametrize("file", ["nowhere", "empty", "words.txt", "bytes.bin", "not-workflows.jsonl"])
def test_workflows_that_no_warm_up_can_use_are_told(
    file: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--set", f"own_workflows={file}", "--set", "look_problems=1"]
    assert file in refused(capsys, "warmup", "--config", str(ROOT / "config/embedded.yaml"), *settings, *wrong)


def test_a_workflow_of_ones_own_that_does_not_begin_as_the_prompt_ends_is_told(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [recipes.write(recipes.draw("math", Random(0), OPERATORS), "math", Random(0))]
    sources.append(f"import math\n\n{sources[0]}")
    rows = [json.dumps({"domain": "math", "workflow": source}) + "\n" for source in sources]
    Path("own.jsonl").write_text("".join(rows), encoding="utf-8")
    words = ["--set", "own_workflows=own.jsonl", "--set", "look_problems=1", "--set", "workflow.prefill=true"]
    line = refused(capsys, "warmup", "--config", str(ROOT / "config/embedded.yaml"), *settings, *words)
    assert "own.jsonl: with workflow.prefill" in line and "'import math" in line


def test_memory_that_is_not_there_is_told_with_what_takes_less(
    settings: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def train(*_: object, **__: object) -> None:
        torch.empty(2**55)

    monkeypatch.setattr("llm_as_judge.commands.train_run.train", train)
    line = refused(capsys, "train", *settings)
    assert "not enough memory (tried to allocate 144115188075855872 bytes)" in line and "micro_batch_tokens" in line


def test_any_other_error_of_torch_is_a_bug_and_keeps_its_traceback(
    settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def train(*_: object, **__: object) -> None:
        torch.empty(2) @ torch.empty(3)

    monkeypatch.setattr("llm_as_judge.commands.train_run.train", train)
    with pytest.raises(RuntimeError, match="size"):
        main(["train", *settings])
