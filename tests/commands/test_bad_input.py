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
from helpers.tables import tables
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

TABLES = tables(__file__)

LONG = "x" * 5000
MATHS = "domain_ratios={math: 1, code: 0, qa: 0}"
FILES = TABLES["FILES"] | {
    "digits.json": '[{"problem": "1?", "type": "math", "answer": ' + "9" * 5000 + "}]",
    "deep/checkpoint.json": "[" * 100_000,
    "deep.jsonl": '{"problem": ' + "[" * 50_000 + "\n",
    "huge.txt": "x" * 1_500_000,
    "w.py": SINGLE_CALL,
}
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

    messages = [(changes, word, message(changes)) for changes, word in TABLES["WRONG_FILES"]]
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
    commands = [words.split() for line in TABLES["WRONG_COMMANDS"].strip().splitlines() for words in line.split(" | ")]
    nested = '{"kind": "step", "gold": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    Path("nested.jsonl").write_text(nested)
    commands += [["analyze", "nested.jsonl"], ["judge", "calibrate", "nested.jsonl", "--mode", "rules"]]
    commands += [["warmup", "--set", "own_workflows=nested.jsonl"]]
    Path("wide.yaml").write_bytes("seed: 1".encode("utf-16"))
    Path("accent.yaml").write_bytes("run_id: \xe9".encode("latin-1"))
    commands += [["train", "--set", f"model_name={LONG}"], ["train", "--set", f"{LONG}=1"], ["workflow", "lint", LONG]]
    assert not wrong_commands(cli, *((words, "") for words in [*commands, ["solve", " "]]))
    named = [line.partition(": ") for line in TABLES["NAMED_COMMANDS"].strip().splitlines()]
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
    source = recipes.write(recipes.draw_recipe("math", Random(0), OPERATORS), "math", Random(0))
    rows = [json.dumps({"domain": "math", "workflow": text}) for text in (source, f"import math\n\n{source}")]
    Path("own.jsonl").write_text("\n".join(rows), encoding="utf-8")
    for file, word in {"nowhere": "nowhere", "no-workflows.jsonl": "no-workflows", "own.jsonl": "'import math"}.items():
        settings = [f"own_workflows={file}", "workflow.prefill=true"]
        assert word in cli.refused("warmup", *as_options(settings))
    own = [source.replace("(self.llm)", f"(self.llm{model})") for model in (", model='strong'", ", model='weak'")]
    Path("own.jsonl").write_text("\n".join(json.dumps({"domain": "math", "workflow": text}) for text in own))
    settings = ["own_workflows=own.jsonl", "executors.strong.description=better"]
    assert "own.jsonl:2" in cli.refused("warmup", *as_options(settings)), "a configured executor may be named"
