"""Wrong input of a user's: exit status 2, one line that says what and how to mend it, no traceback, at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from helpers.workflows import SINGLE_CALL

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError

LONG = "x" * 5000
DEEP = "(" * 3000 + "1" + ")" * 3000
FILES = {
    "empty.yaml": "",
    "list.yaml": "- 1\n- 2\n",
    "text.yaml": "just words\n",
    "tabs.yaml": "training:\n\tseed: 1\n",
    "open.yaml": "training: {seed: 1\n",
    "anchor.yaml": "training: &a\n  seed: *a\n",
    "anchor2.yaml": "&a [*a]\n",
    "bomb.yaml": "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{n}: &{n} [{','.join([f'*{m}'] * 9)}]\n" for m, n in zip("abcdefg", "bcdefgh", strict=True)),
    "deep.yaml": "operators: " + "[" * 3000 + "]" * 3000 + "\n",
    "deepmap.yaml": "a: " + "{a: " * 3000 + "1" + "}" * 3000 + "\n",
    "python.yaml": "seed: !!python/object/apply:os.system ['true']\n",
    "two.yaml": "seed: 1\n---\nseed: 2\n",
    "twice.yaml": "seed: 1\nseed: 2\n",
    "date.yaml": "seed: 2024-99-99\n",
    "section.yaml": "training: 3\n",
    "badkey.yaml": "? [a]\n: 1\n",
    "unknown.yaml": "training: {lerning_rate: 1}\n",
    "guide.yaml": "math: [\n",
    "guide2.yaml": "math: x\n",
    "layer2.yaml": "NoSuchOperator: {math: x}\n",
    "layer2b.yaml": "Custom: {art: x}\n",
    "prompts.yaml": "- a\n",
    "empty.jsonl": "",
    "broken.jsonl": '{"problem": "1", "answer": \n',
    "notype.jsonl": '{"problem": "1 + 1?", "answer": "2"}\n',
    "badtype.jsonl": '{"problem": "1 + 1?", "answer": "2", "type": "art"}\n',
    "deep.jsonl": '{"problem": ' + "[" * 50_000 + "\n",
    "list.jsonl": "[1, 2]\n",
    "strange.jsonl": '{"a": 1}\n',
    "code.jsonl": '{"problem": "f", "type": "code", "tests": "assert f(", "entry_point": "f"}\n',
    "good.jsonl": '{"problem": "1 + 1?", "answer": "2", "type": "math"}\n',
    "pairs.jsonl": '{"gold": "1"}\n',
    "pairs2.jsonl": "x\n",
    "words.txt": "words\n",
    "blank.txt": " \n",
    "w.py": SINGLE_CALL,
    "huge.txt": "x" * 1_500_000,
    "deep.py": f"x = {DEEP}\n",
    "solution.py": "def f(x):\n    return x\n",
    "datasets.yaml": "datasets: {nope: {}}\n",
}  # fmt: skip
SET_WRONG = [
    "lerning_rate=1", "learning_rate", "=1", "learning_rate=fast", "learning_rate=-1", "learning_rate=.nan",
    "max_steps=0", "max_steps=1e3", "max_steps=99999999999999999999999", "seed=-1", "model=nano", "temperature=1",
    "model_name=no-such-model", "model_name=", "model_name=./nowhere", "model_name=a/b/c", f"model_name={LONG}",
    "device=gpu", "device=cuda:x", "executor.base_url=localhost", "executor.base_url=http://x:99999/v1",
    "executor.base_url=http://x:abc/v1", "executor.base_url=http://[::1/v1", "judge.base_url=ftp://x",
    "judge.mode=strict", "judge.votes=0", "judge.votes=100", "judge.second_base_url=:::",
    "engine.base_url=http://x:0x1/v1", "operators=[]", "operators=[NoSuch]", "operators=[no.such:Thing]",
    "operators={a: 1}", "operators=[json:dumps]", "operators=[Custom, Custom]", "enhanced_operators=[NoSuch]",
    "domain_ratios={math: 1}", "domain_ratios=[1]", "reward_weights={correctness: 1}", "functions={x: 1}",
    "functions={'no.py:f': 1}", "functions={'json:nope': 1}", "source=files", "run_name=../up", "run_name=a/b",
    "output_dir=", "lora_rank=0", "lora_dropout=1", "lora_target_modules=[", "epsilon=2", "loss_type=ppo",
    "wall_seconds=0", "memory_mb=-1", "sandbox.mode=loose", "memory_mb=99999999999999", "cpu_seconds=99999999999",
    "open_files=9999999999", "top_p=2", "max_calls=0", "training=1", "a.b.c=1", f"{LONG}=1", "seed=[", "seed={",
    "seed=*a", "seed=!!python/none", "max_problems=none", "executor.api_key=${NO_SUCH_VARIABLE}", "executor.model=${",
    "enhancer=nowhere.yaml", "enhancer=layer2.yaml", "enhancer=layer2b.yaml", "enhancer=words.txt",
    "enhancer=deep.yaml", "enhancer=anchor.yaml", "enhancer=bomb.yaml",
]  # fmt: skip
COMMANDS = [
    [], ["nope"], ["train", "--nope"], ["train", "extra"], ["train", "--config"], ["train", "--max-steps", "0"],
    ["train", "--max-steps", "many"], ["train", "--resume"], ["evaluate", "--limit", "0"],
    ["evaluate", "--data", "no"], ["evaluate", "--untrained", "--data", "empty.jsonl"],
    ["evaluate", "--untrained", "--data", "broken.jsonl"], ["evaluate", "--untrained", "--data", "notype.jsonl"],
    ["evaluate", "--untrained", "--data", "badtype.jsonl"], ["evaluate", "--untrained", "--data", "deep.jsonl"],
    ["evaluate", "--untrained", "--data", "list.jsonl"], ["evaluate", "--untrained", "--data", "strange.jsonl"],
    ["evaluate", "--untrained", "--data", "code.jsonl"], ["evaluate", "--untrained", "--data", "words.txt"],
    ["evaluate", "--untrained", "--data", "folder"], ["evaluate", "--checkpoint", "no"],
    ["evaluate", "--checkpoint", "words.txt"], ["evaluate", "--checkpoint", "folder"],
    ["evaluate", "--untrained", "--checkpoint", "folder"], ["evaluate", "--device", "gpu"],
    ["evaluate", "--model", "x"], ["evaluate", "--samples", "0"], ["solve"], ["solve", " "],
    ["solve", "x", "--domain", "art"], ["solve", "x", "--file", "words.txt"], ["solve", "--file", "no.txt"],
    ["solve", "--file", "blank.txt"], ["solve", "--file", "huge.txt"], ["solve", "--file", "bytes.bin"],
    ["solve", "x", "--checkpoint", "folder"], ["compare", "--data", "no.jsonl"], ["compare", "--ablate", ""],
    ["compare", "--tokens", "0"], ["compare", "--ablate", "layer1", "--limit", "3"],
    ["compare", "--ablate", "nothing"], ["compare", "--ablate", "layer1", "--seeds", "0"], ["workflow"],
    ["workflow", "lint"], ["workflow", "lint", "no.py"], ["workflow", "lint", "folder"],
    ["workflow", "lint", "bytes.bin"], ["workflow", "lint", LONG], ["workflow", "run", "w.py"],
    ["workflow", "run", "w.py", "--problem", " "], ["workflow", "run", "w.py", "--problem", "x", "--domain", "art"],
    ["workflow", "run", "no.py", "--problem", "x"], ["sandbox"], ["sandbox", "run"], ["sandbox", "run", "no.py"],
    ["sandbox", "run", "bytes.bin"], ["sandbox", "run", "w.py", "--sandbox", "loose"],
    ["sandbox", "run", "w.py", "--memory-mb", "1"], ["sandbox", "run", "w.py", "--memory-mb", "99999999999999999999"],
    ["sandbox", "run", "w.py", "--cpu-seconds", "99999999999999999999"],
    ["sandbox", "run", "w.py", "--wall-seconds", "nan"], ["sandbox", "run", "w.py", "--wall-seconds", "inf"],
    ["sandbox", "verdict"], ["sandbox", "verdict", "--solution", "no.py", "--tests", "w.py", "--entry-point", "f"],
    ["sandbox", "verdict", "--solution", "folder", "--tests", "w.py", "--entry-point", "f"], ["judge"],
    ["judge", "calibrate"], ["judge", "calibrate", "no.jsonl"],
    ["judge", "calibrate", "pairs.jsonl", "--mode", "rules"],
    ["judge", "calibrate", "pairs2.jsonl", "--mode", "rules"],
    ["judge", "calibrate", "empty.jsonl", "--mode", "rules"], ["judge", "calibrate", "good.jsonl", "--mode", "kind"],
    ["judge", "calibrate", "labelled.jsonl", "--mode", "rules", "--png", "words.txt/a.png"], ["embedded"],
    ["embedded", "serve", "--port", "0"], ["embedded", "serve", "--port", "70000"],
    ["embedded", "serve", "--host", "no.such.host.invalid"], ["data"], ["data", "process", "--raw", "no"],
    ["data", "process", "--config", "datasets.yaml"], ["data", "process", "--config", "no.yaml"],
    ["data", "process", "--config", "anchor.yaml"], ["data", "process", "--split", "half"],
    ["data", "process", "--ratios", "1:2"], ["data", "process", "--ratios", "a:b:c"],
    ["data", "process", "--ratios", "0:0:0"], ["data", "process", "--train-size", "0"],
    ["data", "process", "--val-fraction", "2"], ["data", "process", "--datasets", "nope"],
    ["data", "process", "--custom", "no.jsonl"], ["data", "process", "--custom", "strange.jsonl"],
    ["data", "process", "--custom", "good.jsonl", "--out", "words.txt"], ["data", "check", "--raw", "no"],
    ["data", "check", "--file", "no.jsonl"], ["data", "check", "--datasets", "nope"], ["data", "inspect"],
    ["data", "inspect", "--out", "no"], ["data", "inspect", "--file", "no.jsonl"],
    ["data", "inspect", "--file", "strange.jsonl"],
    ["data", "inspect", "--file", "good.jsonl", "--png", "words.txt/a.png"],
    ["data", "inspect", "--file", "good.jsonl", "--png", "a.bmp.unknown"], ["data", "inspect", "--png", "mix"],
    ["judge", "calibrate", "labelled.jsonl", "--mode", "rules", "--png", "a.gif"],
    ["data", "inspect", "--examples", "-1"], ["doctor", "--config", "no.yaml"], ["doctor", "--device", "gpu"],
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8")
    (made / "folder").mkdir()
    (made / "bytes.bin").write_bytes(b"\xff\xfe\x00\xd8" * 10)
    labelled = {"gold": "1", "candidate": "1", "equivalent": True, "domain": "math"}
    (made / "labelled.jsonl").write_text(json.dumps(labelled) + "\n", encoding="utf-8")
    return made


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("LLM_AS_JUDGE_DEBUG", raising=False)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on standard error that a wrong command is answered with."""
    began = time.process_time()
    assert main(list(words)) == 2, capsys.readouterr()
    seconds = time.process_time() - began
    told = capsys.readouterr().err
    lines = [line for line in told.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and told.count("Traceback") == 0, told
    assert len(told) < 2500, f"{len(told)} characters"
    assert seconds < 10, seconds
    return lines[0]


def ids(words: object) -> str:
    return str(words)[:60].replace("x" * 30, "")


@pytest.mark.parametrize("override", SET_WRONG, ids=ids)
def test_a_wrong_setting_is_told(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "workflow", "run", "w.py", "--problem", "x", "--set", override)
    assert line


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml") and name[:2] not in ("gu", "la")])
def test_a_wrong_configuration_is_told_with_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert name in refused(capsys, "workflow", "lint", "w.py", "--config", name)


@pytest.mark.parametrize("name", ["no.yaml", "folder", "bytes.bin", "words.txt/c.yaml", LONG], ids=ids)
def test_what_is_no_configuration_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert name[:20] in refused(capsys, "doctor", "--config", name)


@pytest.mark.parametrize("words", COMMANDS, ids=ids)
def test_a_wrong_command_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if words in ([], ["workflow"], ["sandbox"], ["judge"], ["embedded"], ["data"]):
        assert main(words) == 2 and "Usage:" in "".join(capsys.readouterr())
    else:
        refused(capsys, *words)


@pytest.mark.parametrize(
    "override",
    ["device=cuda:77", "lora_target_modules=no_such_layer", "lora_target_modules='*['", "lora_target_modules=[nope]"],
)
def test_what_a_policy_cannot_be_made_with_is_told(override: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config("config/embedded.yaml", [override])
    with pytest.raises(ConfigError, match=rf"^model\.{override.partition('=')[0]}=.*; (use|give) "):
        load_author(config)
