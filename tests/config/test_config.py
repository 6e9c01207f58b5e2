"""Settings: notations, messages for mistakes, what paths are relative to, and the digest of a configuration."""

import contextlib
import os
import shutil
from operator import attrgetter
from pathlib import Path

import pytest
import yaml
from helpers.tables import tables
from hypothesis import given
from hypothesis import strategies as st

from llm_as_judge.config.identity import _END, content_of, identity
from llm_as_judge.config.loading import load_config, to_yaml
from llm_as_judge.config.registry import own_object
from llm_as_judge.config.schema import LEAVES
from llm_as_judge.errors import ConfigError

TABLES = tables(__file__)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ``.env``, no ``config/`` and no variables of this machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "QWEN_MODEL_PATH", "QWEN3_MODEL_PATH"):
        monkeypatch.delenv(name, raising=False)


def write(text: str, name: str = "c.yaml") -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def message(text: str | None = None, *overrides: str) -> str:
    """The error message for a file's text and overrides, empty if there is none."""
    try:
        load_config(write(text) if text is not None else None, overrides)
    except ConfigError as error:
        return str(error)
    return ""


def test_notations_of_a_value_and_which_source_wins() -> None:
    wrong = []
    for text, name, expected in TABLES["notations"]:
        config = load_config(None, [text]) if "=" in text else load_config(write(f"{text}\n"))
        found = attrgetter(name)(config)
        if (list(found) if isinstance(found, tuple) else found) != expected:
            wrong.append((text, found))
    assert not wrong
    file = write("max_steps: 1\nseed: 1\nlora_rank: 1\n")
    config = load_config(file, ["seed=2"], extra={"lora_rank": 3, "max_steps": None})
    assert (config.training.max_steps, config.training.seed, config.model.lora_rank) == (1, 2, 3)


def test_mistakes_are_reported_with_file_line_value_and_cure_in_a_few_words() -> None:
    wrong = []
    for text, expected in TABLES["wrong files"]:
        said = message(None, text) if ":" not in text.partition("=")[0] and text[:1].isalpha() else message(text)
        wrong += [(text, said) for part in expected.split("|") if part.partition(", unable")[0] not in said]
    assert not wrong
    Path("bytes.yaml").write_bytes(b"\xff\xfe\x00\xd8" * 10)
    for place, reason in (
        ("nowhere.yaml", r"nowhere\.yaml: no such file"), (".", "cannot be read"), ("bytes.yaml", "bytes"),
        ("c.yaml/d.yaml", "d.yaml"), ("x" * 5000, "xxxx"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=reason):
            load_config(place)
    messages = {text: message(text) if text.endswith("\n") else message(None, text) for text in ODD}
    assert not {text: said for text, said in messages.items() if not 10 < len(said) < 2500}


#: Other mistakes, in files and in overrides.
ODD = ["operators: " + "[" * 3000 + "]" * 3000 + "\n", *TABLES["odd"]]


@given(st.text(max_size=60))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    path = Path("fuzz.yaml")
    path.write_text(text, encoding="utf-8")
    with contextlib.suppress(ConfigError):
        load_config(path)


def test_paths_in_a_file_are_relative_to_it_and_others_to_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("conf/out").mkdir(parents=True)
    for name in ("guide.yaml", "mine.jsonl", "brevity.py"):
        Path("conf", name).write_text("x", "utf-8")
        Path(name).write_text("another of that name, in the shell's folder", "utf-8")
    text = "guidance: guide.yaml\ntrain_dataset: ./mine.jsonl\nfunctions: {'brevity.py:short': 1, 'pkg.mod:long': 1}\n"
    file = write(f"{text}output_dir: out\nown_workflows: data/w.jsonl\n", "conf/c.yaml")
    beside = Path("conf").resolve()
    for place, name in ((".", file), ("conf", Path("c.yaml")), ("/", file.resolve())):
        with monkeypatch.context() as patch:
            patch.chdir(place)
            config = load_config(name)
            assert config.workflow.guidance == beside / "guide.yaml"
            assert config.data.train_dataset == beside / "mine.jsonl"
            assert set(config.reward.functions) == {f"{beside}/brevity.py:short", "pkg.mod:long"}
            assert config.output.output_dir == Path("out")
            assert config.warmup.own_workflows == Path("data/w.jsonl")  # where ``data process`` writes
    again = load_config(write(to_yaml(config), "dump.yaml"))
    assert again.workflow.guidance == beside / "guide.yaml"
    assert load_config(file, ["guidance=guide.yaml"]).workflow.guidance == Path("guide.yaml")


def test_variables_come_from_the_environment_then_from_dotenv(monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("executor.api_key: ${KEY}\nexecutor.model: ${MODEL:-small}\nmax_steps: ${STEPS}\n")
    Path(".env").write_text('export KEY="sk-1"   # mine\nSTEPS=12\nMODEL=\n')
    config = load_config(file)
    found = (config.executor.api_key, config.executor.model, config.training.max_steps)
    assert found == ("sk-1", "small", 12)
    monkeypatch.setenv("KEY", "${MODEL}")
    assert load_config(file).executor.api_key == "${MODEL}"  # not interpolated again
    for line in ("not an assignment", "NAME", "NAME=a\0b", "NAME='open"):
        Path(".env").write_text(f"A=1\n{line}\n")
        assert ".env:2" in message("seed: 1\n"), line


def test_model_is_a_key_an_id_or_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    write("big:\n  path: ${BIG:-org/big}\n  defaults: {dtype: bfloat16, lora_rank: 8}\n", "models.yaml")
    config = load_config(write("model_name: big\nlora_rank: 16\n"))
    assert (config.model.dtype, config.model.lora_rank) == ("bfloat16", 16)
    assert (config.base_model.key, config.base_model.path) == ("big", "org/big")
    monkeypatch.setenv("BIG", "/weights/big")
    assert load_config(Path("c.yaml")).base_model.path == "/weights/big"
    assert load_config(None, ["model_name=Qwen/Qwen3-8B"]).base_model.key == "Qwen3-8B"
    Path("mine").mkdir()
    assert load_config(None, ["model_name=./mine"]).base_model.key == "mine"
    for text, expected in (
        ("big:\n  paht: x\n", "models.yaml:1: model 'big' must have a path"), ("big: {}\n", "must have a path"),
        ("big: {path: a/b, defaults: {lora_rnk: 1}}\n", "did you mean model.lora_rank?"),
    ):  # fmt: skip
        write(text, "models.yaml")
        assert expected in message("model_name: big\n")


def test_llm_yaml_gives_the_endpoints_of_this_machine(root: Path) -> None:
    text = (root / "config/llm.yaml.example").read_text()
    write(text.replace("localhost:8002", "far:9000"), "llm.yaml")
    file = write("executor:\n  model: gpt-oss-120b\n  base_url: http://here/v1\n")
    config = load_config(file)
    assert config.executor.base_url == "http://far:9000/v1"
    assert config.judge.base_url == ""
    assert load_config(file, ["executor.base_url=http://set/v1"]).executor.base_url == "http://set/v1"
    write("models:\n  gpt-oss-120b:\n    base_ulr: x\n", "llm.yaml")
    assert "llm.yaml:3: unknown setting 'executor.base_ulr'" in message("executor.model: gpt-oss-120b\n")
    # as other projects write it
    write('models:\n  "gpt-oss-120b":\n    api_type: "openai"\n    model_name: "/path/to/gpt-oss-120b"\n', "llm.yaml")
    executor = load_config(file).executor
    assert (executor.provider, executor.model) == ("openai", "/path/to/gpt-oss-120b")


def test_every_shipped_model_resolves_and_every_shipped_file_is_read(root: Path) -> None:
    for key in yaml.safe_load((root / "config/models.yaml").read_text()):
        for file in ("embedded", "training"):
            config = load_config(root / f"config/{file}.yaml", [f"model_name={key}"])
            assert config.base_model.key == key and config.model.device == ("cpu" if "nano" in key else "auto")
    readers = [*(root / "llm_as_judge").rglob("*.py"), *(root / "config").glob("*.yaml")]
    for path in (root / "config").glob("*.yaml*"):
        with contextlib.suppress(ConfigError):
            load_config(path)
            continue
        name = path.name.removesuffix(".example")
        assert any(name in reader.read_text("utf-8") for reader in readers if reader != path), path


def test_a_dump_reads_back_without_keys_and_every_setting_is_described(root: Path) -> None:
    for file in ("embedded", "training"):
        shutil.copytree(root / "config", file)
        config = load_config(f"{file}/{file}.yaml", ["learning_rate=3e-7", "persistence_dir=a b", "run_name=007"])
        again = load_config(write(to_yaml(config), f"{file}-dump.yaml"))
        assert again.model_dump() == config.model_dump()
    config = load_config(None, ["executor.api_key=sk-secret"])
    assert "sk-secret" not in to_yaml(config) + repr(config)
    assert all((field.description or "").endswith(".") for field in LEAVES.values())


def test_own_objects_are_found_in_a_module_and_a_file(tmp_path: Path) -> None:
    assert own_object("thing", "json:dumps")([]) == "[]"
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    size = 1\n", encoding="utf-8")
    found = own_object("thing", f"{file}:Mine")
    assert found is own_object("thing", f"{file}:Mine") and found.size == 1
    file.write_text("class Mine:\n    size = 22\n", encoding="utf-8")
    os.utime(file, ns=(1, 1))
    assert own_object("thing", f"{file}:Mine").size == 22
    broken, stops = tmp_path / "broken.py", tmp_path / "stops.py"
    broken.write_text("import no_such\n", encoding="utf-8")
    stops.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    for name, expected in {
        "no_such:X": "cannot import", "json:dmps": "'dumps'", ":X": "import",
        f"{broken}:X": "cannot import .*broken.py.*No module named 'no_such'$",
        f"{tmp_path}/x.py:X": "there is no file", f"{stops}:X": "SystemExit", "bytes.bin:f": "bytes.bin",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=expected):
            own_object("thing", name)


# The digest of a configuration does not depend on where its files are, only on their content.


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    folder = tmp_path / "here"
    shutil.copytree(root / "config", folder / "config")
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    (folder / "model/model.safetensors").write_bytes(b"weights")
    (folder / "rewards.py").write_text("def f(completions, **kw): ...\n")
    (folder / "train.jsonl").write_text('{"problem": "1 + 1?", "answer": "2", "type": "math"}\n')
    return folder


def identity_of(folder: Path, *more: str) -> str:
    files = [f"train_dataset={folder}/train.jsonl", f"model_name={folder}/model"]
    own = f"functions={{'{folder}/rewards.py:f': 0.5}}"
    return identity(load_config(folder / "config/embedded.yaml", [*files, own, *more]))


def test_a_moved_checkout_has_the_same_identity_and_a_changed_one_another(checkout: Path, tmp_path: Path) -> None:
    found = {identity_of(checkout)}
    settings = ("seed=1", "executor.model=other", "lora_rank=3", "functions={}")
    found |= {identity_of(checkout, setting) for setting in settings}
    files = ("config/guidance.yaml", "config/operator_descriptions/nano.yaml", "model/model.safetensors",
             "model/config.json", "rewards.py", "train.jsonl")  # fmt: skip
    for file in files:
        with open(checkout / file, "a") as changed:
            changed.write("\n")
        found.add(identity_of(checkout))
    assert len(found) == 1 + len(settings) + len(files)
    before = identity_of(checkout)
    elsewhere = checkout.rename(tmp_path / "there")
    assert identity_of(elsewhere) == before
    reached = ("executor.base_url=http://127.0.0.1:1/v1", "judge.api_key=sk-other", "results_dir=x",
               "max_hours=1")  # fmt: skip
    assert identity_of(elsewhere, *reached) == before


def test_a_large_file_is_identified_by_its_ends_and_its_size(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    found = set()
    for place in (None, 0, -1):
        data = bytearray(2 * _END + 10)
        if place is not None:
            data[place] = 1
        path.write_bytes(data)
        found.add(content_of(path))
    path.write_bytes(bytes(2 * _END + 11))
    assert len(found | {content_of(path)}) == 4
