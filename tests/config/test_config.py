"""Settings: accepted notations, messages for mistakes, and what paths are relative to."""

from __future__ import annotations

import contextlib
import os
import shutil
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llm_as_judge.config.describe import describe
from llm_as_judge.config.loading import load_config, to_yaml
from llm_as_judge.config.registry import lookup
from llm_as_judge.config.schema import LEAVES
from llm_as_judge.config.sources import interpolate
from llm_as_judge.errors import ConfigError

ENVIRONMENT = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "QWEN_MODEL_PATH", "QWEN3_MODEL_PATH")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ``.env``, no ``config/`` and no variables of this machine."""
    monkeypatch.chdir(tmp_path)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def write(text: str, name: str = "c.yaml") -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def message(text: str | None = None, *overrides: str) -> str:
    """The error message for a file's text and overrides."""
    with pytest.raises(ConfigError) as caught:
        load_config(write(text) if text is not None else None, overrides)
    return str(caught.value)


# Notations


def test_notations_of_a_value() -> None:
    cases: list[tuple[str, str, Any]] = [
        ("training:\n  max_steps: 7", "training.max_steps", 7), ("training.max_steps: 7", "training.max_steps", 7),
        ("max_steps: 7", "training.max_steps", 7), ("run_name: 007", "output.run_name", "007"),
        *((f"learning_rate: {n}", "training.learning_rate", 5e-6) for n in ("5e-6", "5.0e-6", "0.000005", "'5e-6'")),
        ("importance_sampling: off", "training.importance_sampling", "off"),
        ("max_steps=7", "training.max_steps", 7), ("training.max_steps=7", "training.max_steps", 7),
        ("executor.model=1e3", "executor.model", "1e3"), ("judge.api_key=@{[: #", "judge.api_key", "@{[: #"),
        ("judge.second_model=", "judge.second_model", ""), ("executor.api_key=", "executor.api_key", ""),
        ("judge.cache=", "judge.cache", None), ("importance_sampling=off", "training.importance_sampling", "off"),
        ("lora_target_modules=[q_proj, v_proj]", "model.lora_target_modules", ("q_proj", "v_proj")),
        ("max_problems=null", "data.max_problems", None),
        ("domain_ratios={math: 1, code: 0, qa: 0}", "data.domain_ratios", {"math": 1, "code": 0, "qa": 0}),
        # within rounding
        ("domain_ratios={math: 0.3333333, code: 0.3333333, qa: 0.3333334}", "data.domain_ratios",
         {"math": 0.3333333, "code": 0.3333333, "qa": 0.3333334}),
    ]  # fmt: skip
    wrong = []
    for text, name, expected in cases:
        config = load_config(None, [text]) if "=" in text else load_config(write(f"{text}\n"))
        if attrgetter(name)(config) != expected:
            wrong.append((text, attrgetter(name)(config)))
    assert not wrong


def test_flags_beat_set_and_set_beats_the_file() -> None:
    file = write("max_steps: 1\nseed: 1\nlora_rank: 1\n")
    config = load_config(file, ["seed=2", "lora_rank=2"], extra={"lora_rank": 3, "max_steps": None})
    assert (config.training.max_steps, config.training.seed, config.model.lora_rank) == (1, 2, 3)


# Messages


def test_mistakes_are_reported_with_file_line_value_and_cure() -> None:
    wrong = []
    for text, expected in [
        ("seed: 1\n\ntraining:\n  lerning_rate: 1\n",
         "c.yaml:4: unknown setting 'training.lerning_rate'; did you mean training.learning_rate?"),
        ("max_step: 1\n", "did you mean training.max_steps?"),
        ("seed: 1\ntraining:\n  max_steps: many\n",
         "c.yaml:3: training.max_steps = 'many': Input should be a valid integer"),
        ("seed: 1\ntraining:\n  max_steps: many\n  rollout_batch_size: 0\n",
         "c.yaml:4: training.rollout_batch_size = 0: Input should be greater than 0"),
        ("temperature: 0.5\n", "c.yaml:1: 'temperature' is ambiguous; write generation.temperature or executor.temper"),
        ("model: qwen25-7b\n", "c.yaml:1: section 'model' must contain"),
        ("", "c.yaml: the file is empty"),
        ("# only a comment\n", "c.yaml: the file is empty"),
        ("- a\n", "c.yaml:1: expected 'name: value'"),
        ("just words\n", "c.yaml:1: expected 'name: value'"),
        ("seed: 1\nseed: 2\n", "c.yaml:2: 'seed' is set twice, first at c.yaml:1"),
        ("seed: 1\ntraining:\n  seed: 2\n", "c.yaml:3: training.seed is set twice, first at c.yaml:1"),
        ("seed: 1\ntraining: [\n", "c.yaml:3: not valid YAML"),
        ("a: 1\n---\nb: 1\n", "not valid YAML"),
        ("seed: !!python/object:os.system 1\n", "c.yaml:1: not valid YAML"),
        ("seed: !!bool x\n", "c.yaml:1: 'x' is not a value of type"),
        ("seed: !!int ''\n", "c.yaml:1: '' is not a value of type"),
        ("seed: !!timestamp x\n", "c.yaml:1: 'x' is not a value of type"),
        ("? [a]\n: 1\n", "c.yaml:1: a key must be a plain name"),
        ("training:\n", "section 'training' must contain"),
        ("executor:\n  api_key: ${NO_SUCH_KEY}\n",
         "c.yaml:2: executor.api_key: environment variable NO_SUCH_KEY is not set; export it, put NO_SUCH_K"),
        ('seed: "${1X}"\n', "c.yaml:1: training.seed"),
    ]:  # fmt: skip
        if expected not in (said := message(text)):
            wrong.append((text, said))
    for override, expected in [
        ("max_step=1", "did you mean training.max_steps?"), ("model=qwen25-7b", "'model' is a section"),
        ("model_name=qwen2.5-7b", "did you mean 'qwen25-7b'?"), ("model_name=./missing", "'./missing' is not a key of"),
        ("domain_ratios={math: 0.401, code: 0.3, qa: 0.3}", "must sum to 1, got 1.001"),
        ("domain_ratios={math: 1.5, code: -0.5, qa: 0}", "must not be negative"),
        ("domain_ratios={math: 1, code: 0, qa: 0, art: 0}", "domain_ratios"),
    ]:  # fmt: skip
        if expected not in (said := message(None, override)):
            wrong.append((override, said))
    assert not wrong


def test_missing_file_and_folder_in_its_place() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load_config("nowhere.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(".")


def test_api_key_is_in_no_message_and_no_dump() -> None:
    said = message("executor:\n  api_key: [very, secret]\n")
    assert "executor.api_key" in said
    assert "secret" not in said
    config = load_config(None, ["executor.api_key=sk-secret"])
    assert "sk-secret" not in to_yaml(config) + repr(config)


@given(st.text(max_size=60))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    path = Path("fuzz.yaml")
    path.write_text(text, encoding="utf-8")
    with contextlib.suppress(ConfigError):
        load_config(path)


# Paths


def test_input_paths_of_a_configuration_are_relative_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("conf").mkdir()
    for name in ("guide.yaml", "mine.jsonl", "brevity.py"):
        Path("conf", name).write_text("x", "utf-8")
        Path(name).write_text("another of that name, in the shell's folder", "utf-8")
    text = "guidance: guide.yaml\ntrain_dataset: ./mine.jsonl\nfunctions: {'brevity.py:short': 1, 'pkg.mod:long': 1}\n"
    file = write(text, "conf/c.yaml")
    beside = Path("conf").resolve()
    for place, name in ((".", file), ("conf", Path("c.yaml")), ("/", file.resolve())):
        with monkeypatch.context() as patch:
            patch.chdir(place)
            config = load_config(name)
            assert config.workflow.guidance == beside / "guide.yaml"
            assert config.data.train_dataset == beside / "mine.jsonl"
            assert set(config.reward.functions) == {f"{beside}/brevity.py:short", "pkg.mod:long"}
    again = load_config(write(to_yaml(config), "dump.yaml"))
    assert again.workflow.guidance == beside / "guide.yaml"


def test_output_paths_and_those_of_the_command_line_are_relative_to_the_current_folder() -> None:
    Path("conf/out").mkdir(parents=True)
    Path("conf/guide.yaml").write_text("x", "utf-8")
    config = load_config(write("output_dir: out\nseed: 1\n", "conf/c.yaml"), ["guidance=guide.yaml"])
    assert (config.workflow.guidance, config.output.output_dir) == (Path("guide.yaml"), Path("out"))
    # ``data process`` writes to the current folder, wherever the configuration is.
    Path("data").mkdir()
    Path("data/train.jsonl").write_text("x", "utf-8")
    config = load_config(write("train_dataset: data/train.jsonl\n", "conf/d.yaml"))
    assert config.data.train_dataset == Path("data/train.jsonl")


# Environment


def test_references_take_environment_then_dotenv_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("executor:\n  api_key: ${OPENAI_API_KEY:-sk-dummy}\n")
    assert load_config(file).executor.api_key == "sk-dummy"
    Path(".env").write_text(
        "# keys\nexport OPENAI_API_KEY='from # file' # a note\nOTHER=x # note\nTHIRD=\"y\" # note\n"
    )
    assert load_config(file).executor.api_key == "from # file"
    assert load_config(None, ["judge.model=${OTHER}${THIRD}"]).judge.model == "xy"
    monkeypatch.setenv("OPENAI_API_KEY", "real")
    assert load_config(file).executor.api_key == "real"


def test_reference_to_a_number_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "12")
    assert load_config(write("max_steps: ${STEPS}\n")).training.max_steps == 12


def test_a_malformed_dotenv_line_is_an_error() -> None:
    for line in ("not an assignment", "NAME", "NAME=a\0b", "NAME='open"):
        Path(".env").write_text(f"A=1\n{line}\n")
        assert ".env:2" in message("seed: 1\n"), line


def test_environment_text_is_not_interpolated_again() -> None:
    assert interpolate("${A}", {"A": "${B}", "B": "no"}, "here") == "${B}"


# Models and endpoints


def test_model_key_gives_path_and_defaults_that_the_file_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    write("big:\n  path: ${BIG:-org/big}\n  defaults: {dtype: bfloat16, lora_rank: 8}\n", "models.yaml")
    config = load_config(write("model_name: big\nlora_rank: 16\n"))
    assert (config.model.dtype, config.model.lora_rank) == ("bfloat16", 16)
    assert (config.base_model.key, config.base_model.path) == ("big", "org/big")
    monkeypatch.setenv("BIG", "/weights/big")
    assert load_config(Path("c.yaml")).base_model.path == "/weights/big"


def test_model_may_be_an_id_or_a_folder() -> None:
    assert load_config(None, ["model_name=Qwen/Qwen3-8B"]).base_model.key == "Qwen3-8B"
    Path("mine").mkdir()
    assert load_config(None, ["model_name=./mine"]).base_model.key == "mine"


def test_mistakes_in_models_yaml_are_reported() -> None:
    write("big:\n  paht: x\n", "models.yaml")
    assert "models.yaml:2" in message("model_name: big\n")
    write("big: {}\n", "models.yaml")
    assert "no path" in message("model_name: big\n")
    write("big: {path: a/b, defaults: {lora_rnk: 1}}\n", "models.yaml")
    assert "did you mean model.lora_rank?" in message("model_name: big\n")


def test_llm_yaml_gives_the_endpoints_of_this_machine(root: Path) -> None:
    shutil.copy(root / "config/llm.yaml.example", "llm.yaml")
    text = Path("llm.yaml").read_text().replace("localhost:8002", "far:9000")
    Path("llm.yaml").write_text(text)
    file = write("executor:\n  model: gpt-oss-120b\n  base_url: http://here/v1\n")
    config = load_config(file)
    assert config.executor.base_url == "http://far:9000/v1"
    assert config.judge.base_url == "http://127.0.0.1:8002/v1"
    assert load_config(file, ["executor.base_url=http://set/v1"]).executor.base_url == "http://set/v1"
    write("models:\n  gpt-oss-120b:\n    base_ulr: x\n", "llm.yaml")
    assert "llm.yaml:3: unknown setting 'executor.base_ulr'" in message("executor.model: gpt-oss-120b\n")


def test_llm_yaml_of_other_projects_is_accepted() -> None:
    write(
        'models:\n  "gpt-oss-120b":\n    api_type: "openai"\n    base_url: "http://far:8002/v1"\n    api_key: "sk-x"\n'
        '    model_name: "/path/to/gpt-oss-120b"\n    temperature: 0\n    top_p: 1\n    no_proxy: "localhost"\n',
        "llm.yaml",
    )
    executor = load_config(write("executor.model: gpt-oss-120b\n")).executor
    assert (executor.provider, executor.model) == ("openai", "/path/to/gpt-oss-120b")
    assert (executor.base_url, executor.api_key) == ("http://far:8002/v1", "sk-x")


# The files shipped and the documentation


def test_every_shipped_model_resolves_and_only_nano_stays_off_a_gpu(root: Path) -> None:
    for key in yaml.safe_load((root / "config/models.yaml").read_text()):
        for file in ("embedded", "training"):
            config = load_config(root / f"config/{file}.yaml", [f"model_name={key}"])
            assert config.base_model.key == key and config.model.device == ("cpu" if key == "nano" else "auto")


def test_every_shipped_file_is_a_configuration_or_read_by_the_package(root: Path) -> None:
    readers = [*(root / "llm_as_judge").rglob("*.py"), *(root / "config").glob("*.yaml")]
    for path in (root / "config").glob("*.yaml*"):
        with contextlib.suppress(ConfigError):
            load_config(path)
            continue
        name = path.name.removesuffix(".example")
        assert any(name in reader.read_text("utf-8") for reader in readers if reader != path), path


def test_dump_reads_back_as_the_same_config(root: Path) -> None:
    for file in ("embedded", "training"):
        config = load_config(root / f"config/{file}.yaml", ["learning_rate=3e-7", "persistence_dir=a b"])
        again = load_config(write(to_yaml(config), f"{file}-dump.yaml"))
        assert again.model_dump() == config.model_dump()


def test_every_setting_is_described() -> None:
    rows = describe()
    assert [row.name for row in rows] == list(LEAVES)
    assert all(row.description.endswith(".") and row.type for row in rows)
    row = next(row for row in rows if row.name == "data.domain_ratios")
    assert (row.type, row.default) == ("mapping of math, code, qa", "{math: 0.4, code: 0.3, qa: 0.3}")


def test_lookup_finds_names_of_the_table_and_of_modules_and_suggests_the_nearest() -> None:
    assert lookup("thing", "a", {"a": 1}) == 1
    assert lookup("thing", "json:dumps", {"a": 1})([]) == "[]"  # type: ignore[operator]
    for name, expected in {
        "alhpa": "'alpha'",
        "no_such:X": "cannot import",
        "json:dmps": "'dumps'",
        ":X": "import",
    }.items():
        with pytest.raises(ConfigError, match=expected):
            lookup("thing", name, {"alpha": 1})


def test_lookup_in_a_file_gives_one_object_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    size = 1\n", encoding="utf-8")
    found: type = lookup("thing", f"{file}:Mine", {})
    assert found is lookup("thing", f"{file}:Mine", {}) and found.size == 1  # type: ignore[attr-defined]
    file.write_text("class Mine:\n    size = 22\n", encoding="utf-8")
    os.utime(file, ns=(1, 1))
    assert lookup("thing", f"{file}:Mine", {}).size == 22  # type: ignore[attr-defined]
    file.write_text("import no_such\n", encoding="utf-8")
    os.utime(file, ns=(2, 2))
    with pytest.raises(ConfigError, match=r"cannot import .*mine.py.*No module named 'no_such'$"):
        lookup("thing", f"{file}:Mine", {})
    with pytest.raises(ConfigError, match="there is no file"):
        lookup("thing", f"{tmp_path}/other.py:Mine", {})
