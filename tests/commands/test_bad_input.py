"""Wrong input is refused with exit status 2 and one line that names the value and the cure, without a traceback."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from helpers import misbehaving_server
from helpers.finished import run_settings
from helpers.workflows import SINGLE_CALL

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.progress import SILENT
from llm_as_judge.assembly.run_folder import open_folder
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import LLMAsJudgeError
from llm_as_judge.operators.catalog import OPERATORS, load_operators
from llm_as_judge.rewards.custom import load_rewards
from llm_as_judge.workflow import recipes
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1

ROOT = Path(__file__).parents[2]
EMBEDDED = ROOT / "config/embedded.yaml"
LONG = "x" * 5000
BOMB = "".join(f"{n}: &{n} [{','.join([f'*{m}'] * 9)}]\n" for m, n in zip("abcdefg", "bcdefgh", strict=True))
MATHS = "domain_ratios={math: 1, code: 0, qa: 0}"
FILES = {
    "list.yaml": "- 1\n- 2\n",
    "tabs.yaml": "training:\n\tseed: 1\n",
    "anchor.yaml": "training: &a\n  seed: *a\n",
    "bomb.yaml": f"a: &a [1,1,1,1,1,1,1,1,1]\n{BOMB}",
    "deep.yaml": "operators: " + "[" * 3000 + "]" * 3000 + "\n",
    "date.yaml": "seed: 2024-99-99\n",
    "guide.yaml": "math: [\n",
    "guide2.yaml": "math: x\n",
    "layer2.yaml": "NoSuchOperator: {math: x}\n",
    "layer2b.yaml": "Custom: {art: x}\n",
    "datasets.yaml": "datasets: {nope: {}}\n",
    "empty.jsonl": "",
    "digits.json": '[{"problem": "1?", "type": "math", "answer": ' + "9" * 5000 + "}]",
    "mix.yaml": "mix: text\n",
    "foreign.jsonl": '{"kind": "other"}\n{"a": 1}\n',
    "deep/adapter_config.json": "{}",
    "deep/adapter_model.safetensors": "",
    "deep/checkpoint.json": "[" * 100_000,
    "nul/.env": "OPENAI_API_KEY=a\0b\n",
    "broken.jsonl": '{"problem": "1", "answer": \n',
    "notype.jsonl": '{"problem": "1 + 1?", "answer": "2"}\n',
    "deep.jsonl": '{"problem": ' + "[" * 50_000 + "\n",
    "code.jsonl": '{"problem": "f", "type": "code", "tests": "assert f(", "entry_point": "f"}\n',
    "good.jsonl": '{"problem": "1 + 1?", "answer": "2", "type": "math"}\n',
    "qa.jsonl": '{"problem": "Who?", "answer": "I", "type": "qa"}\n',
    "pairs.jsonl": '{"gold": "1"}\n',
    "labelled.jsonl": '{"gold": "1", "candidate": "1", "equivalent": true, "domain": "math"}\n',
    "no-workflows.jsonl": '{"domain": "math", "workflow": "x = 1"}\n',
    "words.txt": "words\n",
    "blank.txt": " \n",
    "huge.txt": "x" * 1_500_000,
    "w.py": SINGLE_CALL,
    "stops.py": "import sys\n\nsys.exit(0)\n",
    "own.py": "import sys\n\n\ndef asks(x):\n    return 1\n\n\n"
    "def stops(completions, **columns):\n    sys.exit(0)\n\n\n"
    "def fails(completions, **columns):\n    raise ValueError('no such thing')\n\n\n"
    "def short(completions, **columns):\n    return []\n",
    "raises.py": "raise RuntimeError('at import')\n",
    "half-json/config.json": "{",
    "no-weights/config.json": '{"model_type": "qwen2"}',
    "no-adapter/adapter_config.json": "{}",
    "damaged/config.json": '{"model_type": "qwen2", "num_hidden_layers": "two"}',
    "no-tokenizer/config.json": '{"model_type": "qwen2"}',
    "no-tokenizer/tokenizer.json": "{}",
    "no-tokenizer/model.safetensors": "",
    "late.jsonl": '{"kind": "run", "time": 1, "id": "r"}\n{"kind": "step", "time": -1e308, "step": 1}\n',
    "bad-adapter/adapter_config.json": "{}",
    "bad-adapter/adapter_model.safetensors": "xx",
    "folder/note.txt": "nothing to read here\n",
}  # fmt: skip

#: Settings that are refused when the configuration is loaded, or when the parts that it names are.
WRONG_SETTINGS = [
    "lerning_rate=1", "learning_rate", "=1", "learning_rate=fast", "learning_rate=.nan", "max_steps='5'", "seed=[",
    "model=nano", "temperature=1", "executor.model=", "model_name=no-such-model", "device=gpu", "a.b.c=1", "training=1",
    "executor.base_url=http://x:99999/v1", "judge.base_url=ftp://x", "operators=[NoSuch]", "operators=[no.such:Thing]",
    "operators=[json:dumps]", "operators=['stops.py:Stops']", "enhanced_operators=[NoSuch]",
    "domain_ratios={math: 1}", "functions={x: 1}", "functions={'no.py:f': 1}", "functions={'raises.py:f': 1}",
    "functions={'own.py:asks': 1}", "functions={'bytes.bin:f': 1}", "functions={'stops.py:f': 1}", "source=files",
    "run_name=../up", "lora_target_modules=[", "memory_mb=99999999999999", "executor.api_key=${NO_SUCH_VARIABLE}",
    "executor.model=${", "enhancer=layer2.yaml", "enhancer=layer2b.yaml", "enhancer=words.txt", "enhancer=deep.yaml",
    "enhancer=bomb.yaml", "guidance=guide.yaml", "guidance=guide2.yaml", "guidance=bytes.bin",
    "seed=!!bool x", "seed=!!timestamp x", "seed=!!int ''", "max_steps=1:30",
]  # fmt: skip
#: Settings that are refused when problems, folders or the policy are opened, and a word of the message.
WRONG_FILES = [
    (["train_dataset=nowhere.jsonl"], "nowhere.jsonl"), (["train_dataset=folder"], "folder"),
    (["train_dataset=empty.jsonl"], "empty.jsonl"), (["train_dataset=broken.jsonl"], "broken.jsonl:1"),
    (["train_dataset=bytes.bin"], "bytes.bin"), (["train_dataset=code.jsonl"], "code.jsonl:1"),
    (["train_dataset=good.jsonl"], "domain_ratios"), (["train_dataset=good.jsonl", MATHS], "test_dataset"),
    (["train_dataset=good.jsonl", "test_dataset=nowhere", MATHS], "nowhere"),
    (["train_dataset=good.jsonl", "test_dataset=qa.jsonl", MATHS, "eval_every=1"], "val_dataset"),
    (["train_dataset=good.jsonl", "test_dataset=good.jsonl", MATHS], "same file"),
    (["output_dir=words.txt"], "words.txt"), (["log_dir=/dev/null"], "/dev/null"),
    (["results_dir=/proc/x"], "/proc/x"), (["persistence_dir=words.txt"], "words.txt"),
    (["lora_target_modules=[nope]"], "all-linear"), (["lora_target_modules='*['"], "lora_target_modules"),
    (["lora_rank=2147483647"], "lora_rank"), (["device=cuda:77"], "cuda:77"), (["model_name=./folder"], "./folder"),
    (["model_name=./no-weights"], "./no-weights"), (["model_name=./half-json"], "./half-json"),
    (["model_name=./damaged"], "./damaged"), (["model_name=./no-tokenizer"], "./no-tokenizer"),
    (["model.adapter=nowhere"], "nowhere holds no adapter"), (["model.adapter=no-adapter"], "give a folder step_N"),
    (["model.adapter=bad-adapter"], "give another folder step_N"),
]  # fmt: skip
#: Wrong commands that fail before any model is loaded.
WRONG_COMMANDS = """
nope | train --nope | train extra | train --config | train --max-steps many | train --resume | evaluate --limit 0
evaluate --data no | evaluate --untrained --data empty.jsonl | evaluate --untrained --data notype.jsonl
evaluate --untrained --data deep.jsonl | evaluate --untrained --data folder
evaluate --checkpoint no | evaluate --checkpoint folder | evaluate --untrained --checkpoint folder
evaluate --samples 0 | evaluate --workflow w.py --untrained | solve | solve x --domain art | solve x --file words.txt
solve --file blank.txt | solve --file huge.txt | solve --file bytes.bin | compare --ablate , | compare --tokens 0
compare --ablate layer1 --limit 3 | compare --ablate nothing | workflow lint no.py | workflow lint folder
workflow lint bytes.bin | workflow run w.py | workflow run w.py --problem x --domain art
sandbox run bytes.bin | sandbox run w.py --sandbox loose | sandbox run w.py --memory-mb 99999999999999999999
sandbox run w.py --wall-seconds nan | sandbox verdict --solution no.py --tests w.py --entry-point f
judge calibrate no.jsonl | judge calibrate pairs.jsonl --mode rules | judge calibrate empty.jsonl --mode rules
judge calibrate good.jsonl --mode kind
embedded serve --port 0 | embedded serve --host no.such.host.invalid | data process --raw no
data process --config datasets.yaml | data process --config anchor.yaml | data process --ratios a:b:c
data process --datasets nope | data process --custom notype.jsonl | data check --datasets nope
doctor --config no.yaml | doctor --device gpu
serve --domain art | serve --untrained --host 0.0.0.0 --api-key= | export folder --checkpoint folder
data check --datasets no | data process --custom empty.jsonl | data process --custom digits.json
data inspect --file digits.json | data process --config mix.yaml | embedded serve --host a..b | analyze deep.jsonl
monitor --once deep.jsonl | analyze foreign.jsonl | solve x --checkpoint deep
plan --call-input inf | plan --calls nan | plan --latency 1e308 --calls 1e308 | plan --gpus 999999999x80
plan --model ./damaged | report late.jsonl | data process --train-size 9999999999999 | sandbox run pipe
sandbox verdict --solution w.py --tests pipe --entry-point f | judge calibrate pipe --mode rules | workflow lint pipe
sandbox verdict --solution w.py --tests w.py --entry-point f.g | data check --file= | serve --host=
embedded serve --host=
"""
ESC = "\x1b]0;title"  # sets the title of a terminal


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes.bin").write_bytes(b"\xff\xfe\x00\xd8" * 10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)


def refusal(work: Callable[[], object]) -> str:
    """The message of an error that the user can correct; empty if there is none."""
    try:
        work()
    except (LLMAsJudgeError, OSError) as error:
        return str(error)
    return ""


def test_wrong_settings_are_refused_before_any_work() -> None:
    def load(override: str) -> None:
        config = load_config(EMBEDDED, [f"guidance={ROOT}/config/guidance.yaml", override])
        load_operators(config.workflow.operators)
        load_enhancer(config.workflow)
        load_rewards(config.reward, 1.0)
        Layer1(config.workflow)

    messages = {override[:60]: refusal(lambda override=override: load(override)) for override in WRONG_SETTINGS}
    assert not {name: text[:80] for name, text in messages.items() if not 10 < len(text) < 2500}


def test_wrong_configuration_files_are_refused_with_their_name() -> None:
    names = [name for name in FILES if name.endswith(".yaml") and name[:2] not in ("gu", "la", "da")]
    names += ["no.yaml", "folder", "bytes.bin", "words.txt/c.yaml", LONG]
    messages = {name: refusal(lambda name=name: load_config(name)) for name in names}
    assert not {name: text[:80] for name, text in messages.items() if name[:20] not in text}


def test_wrong_problems_folders_and_policies_are_refused_with_their_name(tmp_path: Path) -> None:
    def open_parts(changes: list[str]) -> None:
        config = load_config(
            EMBEDDED, [*run_settings(tmp_path / "run", "http://127.0.0.1:9/v1", eval_every=0), *changes]
        )
        with open_folder(config, resume=False, progress=SILENT):
            open_problems(config)
            load_author(config)

    wrong = []
    for changes, word in WRONG_FILES:
        message = refusal(lambda changes=changes: open_parts(changes))
        if word not in message or len(message) > 1500:
            wrong.append((changes, message))
    assert not wrong


def test_wrong_commands_exit_2_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    commands = [words.split() for line in WRONG_COMMANDS.strip().splitlines() for words in line.split(" | ")]
    commands += [["train", "--set", f"model_name={LONG}"], ["train", "--set", f"{LONG}=1"], ["workflow", "lint", LONG]]
    for words in [*commands, ["solve", " "]]:
        status = main(words)
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        if status != 2 or len(lines) != 1 or "Traceback" in error or len(error) > 2500:
            wrong.append((words, status, error))
    for words in ([], ["workflow"], ["sandbox"], ["judge"], ["embedded"], ["data"]):
        if main(words) != 2 or "Usage:" not in "".join(capsys.readouterr()):
            wrong.append((words, "no usage", ""))
    assert not wrong


def test_wrong_surroundings_exit_2_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*words: str) -> str:
        status, error = main([*words]), capsys.readouterr().err
        assert status == 2 and error.count("error: ") == 1 and "Traceback" not in error
        return error

    for value, word in (("abc", "'abc'"), ("", "not a number"), ("2", "WORLD_SIZE=2 without MASTER_ADDR")):
        monkeypatch.setenv("WORLD_SIZE", value)
        assert word in refused("train", "--config", str(EMBEDDED))
    monkeypatch.chdir(tmp_path / "nul")
    assert ".env:1" in refused("plan")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder was deleted" in refused("plan")
    monkeypatch.undo()


def test_no_control_character_of_a_text_reaches_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"problem": f"{ESC}1?", "answer": "1", "type": "math", "dataset": f"{ESC}red[/b]"}
    Path("esc.jsonl").write_text(json.dumps(record) + "\n")
    run = [{"kind": "run", "time": 1, "id": f"{ESC}[/b]", "config": "seed: 1"}, {"kind": "step", "time": 2, "step": 1}]
    Path("run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in run))
    Path("esc.py").write_text(f"raise ValueError({ESC!r})")
    Path(f"{ESC}.py").write_text(f"print({ESC!r})")
    Path(f"{ESC}ok.py").write_text(SINGLE_CALL)
    for words in (
        "data inspect --file esc.jsonl", "monitor --once run.jsonl",
        "sandbox run esc.py", f"workflow lint {ESC}.py", f"evaluate --untrained --data {ESC}", f"sandbox run {ESC}.py",
        f"workflow lint {ESC}ok.py",
    ):  # fmt: skip
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        main(words.split())
        shown = "".join(capsys.readouterr())
        assert ESC not in shown and "]0;title" in shown, (words, shown)


def test_brackets_in_a_path_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "calibrate", "labelled.jsonl", "--mode", "rules", "--set", "results_dir=out[/b]"]) == 0
    assert "out[/b]" in capsys.readouterr().out


def train(address: str, *changes: str) -> int:
    chosen = run_settings(Path("run"), address, max_steps=1, eval_every=0, rollout_batch_size=2, eval_problems=1)
    chosen += ["num_return_sequences_in_group=2", "baselines=false", "plan_matrix=false", "judge.mode=rules"]
    return main(["train", *(word for change in [*chosen, *changes] for word in ("--set", change))])


@pytest.mark.slow
def test_what_only_a_run_meets_is_refused_in_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prompts that never fit, rewards that fail, a judge's cache in the way, endpoints that are down."""
    closed = "http://127.0.0.1:9/v1"
    cases = [
        (["prompt_max_length=1"], "prompt_max_length=1"), (["functions={'own.py:fails': 1}"], "no such thing"),
        (["functions={'own.py:short': 1}"], "must return"), (["functions={'own.py:stops': 1}"], "SystemExit"),
        (["judge.cache=folder", "judge.mode=hybrid"], "cache"),
        (["judge.prompts=list.yaml", "judge.mode=hybrid"], "list.yaml"),
        (["executor.model=no-such"], "no-such"),
        (["generation.engine=vllm", f"engine.base_url={closed}", "engine.max_retries=0"], "127.0.0.1:9"),
    ]  # fmt: skip
    wrong = []
    for changes, word in cases:
        status, error = train(address, *changes), capsys.readouterr().err
        if status != 2 or "Traceback" in error or error.count("error: ") != 1 or word not in error:
            wrong.append((changes, status, error[-1500:]))
    assert not wrong


@pytest.fixture
def misbehaving() -> Iterator[str]:
    """An endpoint that fails as the model's name says."""
    with misbehaving_server.running() as address:
        yield f"{address}/v1"


def test_an_endpoint_that_fails_is_reported_before_any_work(
    misbehaving: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for failure, word in (
        ("busy", "429"), ("broken", "500"), ("unauthorised", "401"), ("silent", ""), ("drip", ""), ("hang_up", ""),
        ("truncated_body", ""), ("true executor.api_key=schlüssel", "key"),
        ("true executor.base_url=http://no.such.host.invalid/v1", "no.such.host.invalid"),
        ("true executor.base_url=http://127.0.0.1:9/v1", "127.0.0.1:9"),
    ):  # fmt: skip
        model, *changes = f"executor.model=m/{failure}".split()
        once = ["executor.provider=openai", "executor.timeout_s=1", "executor.max_retries=0"]
        status, error = train(misbehaving, *once, model, *changes), capsys.readouterr().err
        if status != 2 or "Traceback" in error or error.count("error: ") != 1 or word not in error:
            wrong.append((failure, status, error))
    assert not wrong and not list(Path("run").rglob("adapter_model.safetensors"))


def test_unusable_workflows_for_a_warm_up_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    source = recipes.write(recipes.draw("math", Random(0), OPERATORS), "math", Random(0))
    rows = [json.dumps({"domain": "math", "workflow": text}) for text in (source, f"import math\n\n{source}")]
    Path("own.jsonl").write_text("\n".join(rows), encoding="utf-8")
    cases = {name: f"{name}" for name in ("nowhere", "no-workflows.jsonl")}
    wrong = []
    for file, word in {**cases, "own.jsonl": "'import math"}.items():
        options = ["--set", f"own_workflows={file}", "--set", "look_problems=1", "--set", "workflow.prefill=true"]
        status, error = main(["warmup", *options]), capsys.readouterr().err
        if status != 2 or word not in error or "Traceback" in error:
            wrong.append((file, status, error))
    assert not wrong
