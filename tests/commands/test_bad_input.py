"""Wrong input is refused with exit status 2 and one line that names the value and the cure, without a traceback."""

import json
import os
import re
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers.cli import SINGLE_CALL, CommandLine
from helpers.finished import EMBEDDED, as_options, run_settings
from helpers.misbehaving import Misbehaving
from helpers.web import serving

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.progress import SILENT
from llm_as_judge.assembly.run_folder import open_folder
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import LLMAsJudgeError
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.workflow import recipes

LONG = "x" * 5000
MATHS = "domain_ratios={math: 1, code: 0, qa: 0}"
FILES = {
    "anchor.yaml": "training: &a\n  seed: *a\n",
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
    "notype.jsonl": '{"problem": "1 + 1?", "answer": "2", "type": "maths"}\n',
    "deep.jsonl": '{"problem": ' + "[" * 50_000 + "\n",
    "code.jsonl": '{"problem": "f", "type": "code", "tests": "assert f(", "entry_point": "f"}\n',
    "good.jsonl": '{"problem": "1 + 1?", "answer": "2", "type": "math"}\n',
    "qa.jsonl": '{"problem": "Who?", "answer": "I", "type": "qa"}\n',
    "pairs.jsonl": '{"gold": "1"}\n',
    "labelled.jsonl": '{"gold": "1", "candidate": "1", "equivalent": true, "domain": "math"}\n',
    "no-workflows.jsonl": '{"domain": "math", "workflow": "x = 1"}\n',
    "words.txt": "some words\n",
    "blank.txt": " \n",
    "huge.txt": "x" * 1_500_000,
    "w.py": SINGLE_CALL,
    "own.py": "def fails(completions, **columns):\n    raise ValueError('no such thing')\n",
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

#: Settings that are refused when problems, folders or the policy are opened, and a word of the message.
WRONG_FILES = [
    (["train_dataset=nowhere.jsonl"], "nowhere.jsonl"), (["train_dataset=folder"], "folder"),
    (["train_dataset=empty.jsonl"], "empty.jsonl"), (["train_dataset=broken.jsonl"], "broken.jsonl:1"),
    (["train_dataset=bytes.bin"], "bytes.bin"), (["train_dataset=code.jsonl"], "code.jsonl:1"),
    (["train_dataset=good.jsonl"], "domain_ratios={math: 0.4, code: 0, qa: 0}"),
    (["train_dataset=good.jsonl", MATHS], "test_dataset"),
    (["train_dataset=good.jsonl", "test_dataset=nowhere", MATHS], "nowhere"),
    (["train_dataset=good.jsonl", "test_dataset=qa.jsonl", MATHS, "eval_every=1"], "val_dataset"),
    (["train_dataset=good.jsonl", "test_dataset=good.jsonl", MATHS], "same file"),
    (["output_dir=words.txt"], "words.txt"), (["log_dir=/dev/null"], "/dev/null"),
    (["results_dir=/proc/x"], "/proc/x"), (["persistence_dir=words.txt"], "words.txt"),
    (["lora_target_modules=[nope]"], "all-linear"), (["lora_target_modules='*['"], "lora_target_modules"),
    (["lora_rank=2147483647"], "lora_rank"), (["device=cuda:77"], "cuda:77"), (["model_name=./folder"], "./folder"),
    (["model_name=./no-weights"], "./no-weights"), (["model_name=./half-json"], "./half-json"),
    (["model_name=nobody/no-such-model"], "nobody/no-such-model"),
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
solve --file blank.txt | solve --file huge.txt | solve --file bytes.bin | compare --ablate ,
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
embedded serve --host= | plan --config pipe | plan --log pipe | solve x --untrained --config pipe
"""
#: Further ones, with a part of the message.
NAMED_COMMANDS = """
compare --seeds 2: --seeds 2 counts the runs of --ablate
evaluate --workflow words.txt: words.txt: line 1: invalid syntax
train --set output_dir=/proc/x: /proc/x: no such file or directory; make room there, make it writable or
train --set num_generations=3: unknown setting 'num_generations'; the sections are
train --set memory=3: did you mean sandbox.memory_mb?
serve --untrained --host a..b: cannot serve at a..b:8010: not the name of a host; choose another address with --host
train --resume --fresh: --resume and --fresh exclude each other
evaluate --untrained --samples 3 --set eval_temperature=0: --samples 3 with generation.eval_temperature=0
evaluate --workflow w.py --samples 2 --set executor.temperature=0: --samples 2 with executor.temperature=0
plan --config wide.yaml: byte 0 is not UTF-8; save the file as UTF-8 text
plan --config accent.yaml: byte 8 is not UTF-8; save the file as UTF-8 text
monitor --once words.txt: the file is not the log of a run
evaluate --workflow w.py --set executor.provider=openai --set executor.base_url=http://h/v1?key=hidden: http://h/v1?***
"""
ESC = "\x1b]0;title"  # sets the title of a terminal
TURNED = "\u202e\u2067\u200f"  # turn the direction of what follows


@pytest.fixture(autouse=True)
def _there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text(text, encoding="utf-8")
    os.mkfifo("pipe")
    Path("bytes.bin").write_bytes(b"\xff\xfe\x00\xd8" * 10)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)


def test_wrong_problems_folders_and_policies_are_refused_with_their_name() -> None:
    def message(changes: list[str]) -> str:
        settings = run_settings(Path("run"), "http://127.0.0.1:9/v1", eval_every=0)
        try:
            config = load_config(EMBEDDED, [*settings, *changes])
            with open_folder(config, resume=False, progress=SILENT):
                open_problems(config)
                load_author(config)
        except (LLMAsJudgeError, OSError) as error:
            return str(error)
        return ""

    messages = [(changes, word, message(changes)) for changes, word in WRONG_FILES]
    assert not [row for row in messages if row[1] not in row[2] or len(row[2]) > 1500]


def wrong_commands(cli: CommandLine, *commands: tuple[list[str], str]) -> list[object]:
    """Commands that do not end with exit status 2 and one short line with the word that belongs to them."""
    wrong = []
    for words, named in commands:
        try:
            error = cli.refused(*words)
        except AssertionError as ended:
            wrong.append((words, str(ended)[-1500:]))
        else:
            wrong += [] if named in error and len(error) < 2500 else [(words, error)]
    return wrong


def test_wrong_commands_exit_2_with_one_line(cli: CommandLine) -> None:
    commands = [words.split() for line in WRONG_COMMANDS.strip().splitlines() for words in line.split(" | ")]
    nested = '{"kind": "step", "gold": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    Path("nested.jsonl").write_text(nested)
    commands += [["analyze", "nested.jsonl"], ["judge", "calibrate", "nested.jsonl", "--mode", "rules"]]
    commands += [["warmup", "--set", "own_workflows=nested.jsonl"]]
    Path("wide.yaml").write_bytes("seed: 1".encode("utf-16"))
    Path("accent.yaml").write_bytes("run_id: \xe9".encode("latin-1"))
    commands += [["train", "--set", f"model_name={LONG}"], ["train", "--set", f"{LONG}=1"], ["workflow", "lint", LONG]]
    assert not wrong_commands(cli, *((words, "") for words in [*commands, ["solve", " "]]))
    named = [line.partition(": ") for line in NAMED_COMMANDS.strip().splitlines()]
    assert not wrong_commands(cli, *((words.split(), part) for words, _, part in named))
    assert "hidden" not in cli.err
    for words in ([], ["workflow"], ["sandbox"], ["judge"], ["embedded"], ["data"]):
        assert "Usage:" in cli(*words, status=2) + cli.err, words


def test_wrong_surroundings_exit_2_with_one_line(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    for value, word in (("abc", "'abc'"), ("", "not a number"), ("2", "WORLD_SIZE=2 without MASTER_ADDR")):
        monkeypatch.setenv("WORLD_SIZE", value)
        assert word in cli.refused("train")
    monkeypatch.setenv("LLM_AS_JUDGE_API_KEY", "")
    assert "LLM_AS_JUDGE_API_KEY is empty" in cli.refused("serve", "--untrained")
    monkeypatch.chdir(here / "nul")
    assert ".env:1" in cli.refused("plan")
    gone = here / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder was deleted" in cli.refused("plan")
    monkeypatch.undo()


def test_no_control_character_reaches_the_terminal_and_brackets_are_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    record = {"problem": f"{ESC}{TURNED}1?", "answer": "1", "type": "math", "dataset": f"{ESC}red[/b]"}
    Path("esc.jsonl").write_text(json.dumps(record) + "\n")
    run = [
        {"kind": "run", "time": 1, "id": f"{ESC}{TURNED}[/b]", "config": "seed: 1"},
        {"kind": "step", "time": 2, "step": 1},
    ]
    Path("run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in run))
    Path("esc.py").write_text(f"raise ValueError({ESC + TURNED!r})")
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
        assert ESC not in shown and not set(TURNED) & set(shown) and "]0;title" in shown, (words, shown)
    assert "out[/b]" in cli("judge", "calibrate", "labelled.jsonl", "--mode=rules", "--set", "results_dir=out[/b]")


def train(address: str, *changes: str) -> list[str]:
    chosen = run_settings(Path("run"), address, max_steps=1, eval_every=0, rollout_batch_size=2, eval_problems=1)
    chosen += ["num_return_sequences_in_group=2", "baselines=none", "judge.mode=rules"]
    return ["train", *as_options([*chosen, *changes])]


@pytest.mark.slow
def test_what_only_a_run_meets_is_refused_in_one_line(address: str, cli: CommandLine) -> None:
    """Prompts that never fit, rewards that fail, endpoints that are down."""
    closed = "http://127.0.0.1:9/v1"
    cases = [
        (["prompt_max_length=1"], "prompt_max_length=1"), (["functions={'own.py:fails': 1}"], "no such thing"),
        (["executor.model=no-such"], "no-such"),
        (["generation.engine=vllm", f"engine.base_url={closed}", "engine.max_retries=0"], "127.0.0.1:9"),
    ]  # fmt: skip
    assert not wrong_commands(cli, *((train(address, *changes), word) for changes, word in cases))


def test_an_endpoint_that_fails_is_reported_before_any_work(cli: CommandLine) -> None:
    once = ["executor.provider=openai", "executor.timeout_s=1", "executor.max_retries=0"]
    with serving(Misbehaving) as address:
        commands = [
            (train(f"{address}/v1", *once, *f"executor.model=m/{failure}".split()), word)
            for failure, word in (
                ("busy", "429"), ("broken", "500"), ("unauthorised", "401"), ("silent", ""), ("drip", ""),
                ("hang_up", ""), ("truncated_body", ""), ("true executor.api_key=schlüssel", "key"),
                ("true executor.base_url=http://no.such.host.invalid/v1", "no.such.host.invalid"),
                ("true executor.base_url=http://127.0.0.1:9/v1", "127.0.0.1:9"),
            )
        ]  # fmt: skip
        assert not wrong_commands(cli, *commands)
    assert not list(Path("run").rglob("adapter_model.safetensors"))


class Uncounted(Misbehaving):
    """Counts no tokens."""

    def send(self, status: int, reply: Any = "", **headers: str) -> None:
        super().send(status, {"choices": reply["choices"]} if status == 200 else reply, **headers)


def test_empty_replies_are_unscored_and_named_and_doctor_says_what_an_endpoint_lacks(cli: CommandLine) -> None:
    once = ["executor.provider=openai", "executor.max_retries=0", "judge.mode=rules", "max_unscored=1"]
    with serving(Misbehaving) as address:
        endpoint = as_options([*once, f"executor.base_url={address}", "executor.model=late/true+reasoning_only"])
        shown = cli("evaluate", "--workflow", "w.py", "--data", "good.jsonl", *endpoint, status=1)
        assert re.search(r"unscored.*an empty reply \(finish_reason stop\)", " ".join(shown.split())), shown
        assert "no problem could be scored" in cli.err
    for server, behaviour, ok, said in (
        (Misbehaving, "reasoning_only", False, "no text arrives: check the server's chat template"),
        (Uncounted, "true", True, "answers; it reports no token counts (usage): they are estimated"),
    ):
        with serving(server) as address:
            options = as_options([*once, f"executor.base_url={address}", f"executor.model=d/{behaviour}"])
            found = cli.json("doctor", *options, status=0 if ok else 1)["checks"]
        (executor,) = [check for check in found if check["name"] == "executor"]
        assert executor["ok"] is ok and said in executor["detail"]


def test_unusable_workflows_for_a_warm_up_are_refused(cli: CommandLine) -> None:
    source = recipes.write(recipes.draw("math", Random(0), OPERATORS), "math", Random(0))
    rows = [json.dumps({"domain": "math", "workflow": text}) for text in (source, f"import math\n\n{source}")]
    Path("own.jsonl").write_text("\n".join(rows), encoding="utf-8")
    for file, word in {"nowhere": "nowhere", "no-workflows.jsonl": "no-workflows", "own.jsonl": "'import math"}.items():
        settings = [f"own_workflows={file}", "look_problems=1", "workflow.prefill=true"]
        assert word in cli.refused("warmup", *as_options(settings))
    own = [source.replace("(self.llm)", f"(self.llm{model})") for model in (", model='strong'", ", model='weak'")]
    Path("own.jsonl").write_text("\n".join(json.dumps({"domain": "math", "workflow": text}) for text in own))
    settings = ["own_workflows=own.jsonl", "look_problems=1", "executors.strong.description=better"]
    assert "own.jsonl:2" in cli.refused("warmup", *as_options(settings)), "a configured executor may be named"
