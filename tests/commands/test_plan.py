"""Estimates of ``plan`` against measured small runs and published figures of large models."""

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.cli import CommandLine
from helpers.finished import EMBEDDED, FinishedRun, documented_24gb
from helpers.run_logs import read_rollouts

from llm_as_judge.assembly.estimates import sizes_of, step_seconds
from llm_as_judge.commands import doctor
from llm_as_judge.commands.plan import make_plan
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.policy import device

TRAINING = "config/training.yaml"
WITHIN = 0.25


def test_parameters_and_seconds_of_a_step_are_the_published_ones() -> None:
    published = {"qwen25-7b": 7_615_616_512, "qwen3-8b": 8_190_735_360, "smollm2": 134_515_008}
    found = {
        name: sizes_of(load_config(TRAINING, ["judge.mode=rules", f"model_name={name}"])).parameters
        for name in published
    }
    assert found == pytest.approx(published, rel=1e-3)
    assert [step_seconds(3, 4, 20, 10, d) for d in (0, 1, 2, 3)] == [27, 13.5, 10, 10]
    assert [step_seconds(3, 4, 5, 2, d) for d in (0, 1, 2)] == [12, 7, 7]
    # Steps that ``benchmarks/orchestration.py`` measured with an executor of 1 s per call, with 128 places and with 16.
    found = [step_seconds(1.0, 0.9, 6.1, served, d) for served, d in ((0.44, 1), (0.44, 2), (3.65, 2))]
    assert found == pytest.approx([3.78, 2.79, 4.10], rel=0.25)


def test_tokens_of_a_step_are_those_of_a_run(finished_run: FinishedRun) -> None:
    config = load_config(EMBEDDED, finished_run.overrides)
    rollouts = [event.rollout for event in read_rollouts(finished_run.log)]
    generated = sum(r.completion.written for r in rollouts) / 2
    blind, told = make_plan(config, ["1x80"]), make_plan(config, ["1x80"], log=finished_run.log)
    assert blind.tokens_a_step["generated"] == pytest.approx(generated, rel=WITHIN)
    assert told.tokens_a_step["generated"] == pytest.approx(generated, rel=0.01)
    asked = told.tokens_a_step["executor_input"] + told.tokens_a_step["executor_output"]
    assert asked == pytest.approx(sum(r.tokens for r in rollouts) / 2, rel=WITHIN)
    assert "hand-written" in blind.assumed and told.assumed == "nothing"


def test_what_does_not_fit_is_shown_with_a_setting_that_helps() -> None:
    here = make_plan(load_config(TRAINING)).machines
    assert [here[name].fits == "yes" for name in ("1xA100-40", "1xA100-80", "2xA100-80")] == [False, False, True]
    assert here["1xA100-80"].fits == "no; helps: executor.base_url of another machine"
    away = load_config(TRAINING, ["executor.base_url=https://example.org/v1"])
    assert make_plan(away, ["1x40"]).machines["1x40"].on_card == {"trainer": 0}
    served = load_config(TRAINING, ["executor.base_url=https://example.org/v1", "generation.engine=vllm"])
    found = make_plan(served, ["1x40"]).machines["1x40"]
    assert "generation.engine=local" in found.fits
    assert make_plan(served, ["1x80"]).machines["1x80"].on_card == {"trainer": 0, "policy server": 0}


def test_examples_evaluations_long_prompts_and_vllms_share_are_planned() -> None:
    away = ["executor.base_url=https://example.org/v1"]

    def memory(*settings: str) -> dict[str, float]:
        return dict(make_plan(load_config(TRAINING, [*away, *settings]), ["1x80"]).machines["1x80"].memory_GB)

    with_examples, bare = (make_plan(load_config(TRAINING, [f"experience_buffer.top_k={k}"])) for k in (3, 0))
    assert with_examples.tokens_a_step["padded"] - bare.tokens_a_step["padded"] > 24 * 3 * 100
    assert "3 examples" in with_examples.assumed and "examples" not in bare.assumed
    padded, shared = (
        make_plan(load_config(TRAINING, [f"training.shared_prefix={on}"]), ["2x80"]).machines["2x80"].step_seconds
        for on in ("false", "true")
    )
    assert shared["update"] < padded["update"] / 3
    single = make_plan(load_config(TRAINING, ["baselines=single"]))  # two evaluations and the single call's
    assert single.tokens_a_run["requests"] == 500 * 96 + 150 * 3 * (2 + 1) < bare.tokens_a_run["requests"]
    # An update alone needs 22 GB; 42 prompts of 5,120 tokens fill the cache of 15 GB.
    assert memory("eval_problems=1")["trainer"] < 25 < 32 < memory()["trainer"] < 37
    assert memory("generation.engine=vllm")["policy server"] == 28
    assert memory("generation.engine=vllm", "engine.gpu_memory_utilization=0.5")["policy server"] == 40
    here = make_plan(load_config(TRAINING, ["generation.engine=vllm"]), ["2x80"]).machines["2x80"]
    assert here.on_card == {"executor": 0, "trainer": 1, "policy server": 1}, "its server is on the policy's card"
    served = memory("generation.engine=vllm", "engine.base_url=http://127.0.0.1:9/v1")["policy server"]
    assert served < 20, "weights and cache; its share of the card is its own setting"


def test_the_command_prints_it_and_bad_input_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    printed = cli.json("plan", "--config", TRAINING, "--gpus", "4xH100-80", "--latency", "1")
    assert printed["machines"]["4xH100-80"]["fits"] == "yes" and printed["rollouts_a_step"] == 24
    assert "1 s each" in printed["assumed"]
    assert cli("plan").startswith("A policy of 1.0 million parameters")
    shown = cli("plan", "--config", TRAINING)
    assert shown.startswith("A policy of 7.6")
    assert "2xA100-80" in shown and "1xA100-80 fits: no; helps: executor.base_url" in shown
    assert "…" not in shown, "nothing is cut off"
    config = load_config(EMBEDDED)
    with pytest.raises(ConfigError, match="A100-40"):
        make_plan(config, ["2xTPU"])
    with pytest.raises(ConfigError, match="shape is not known"):
        make_plan(load_config(EMBEDDED, ["model_name=someone/something"]))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no rollouts"):
        make_plan(config, log=tmp_path / "empty.jsonl")


def trainer(*settings: str, file: str = "config/one_model.yaml") -> float:
    return make_plan(load_config(file, settings), ["1x80"]).machines["1x80"].memory_GB["trainer"]


def test_a_local_model_that_is_not_the_policy_is_counted_and_a_cpus_second_copy() -> None:
    """Weights in bfloat16, and caches of 32 rows of 8,192 tokens: 28 layers of 4 heads, 48 of 8, with 128 each."""
    (small, large), tokens = ((7.62e9, 14.77e9), 32 * 8192)
    for size, model, cache in ((small, "7B", 28 * 4), (large, "14B", 48 * 8)):
        more = trainer(f"executor.model=Qwen/Qwen2.5-{model}-Instruct") - trainer()
        assert more == pytest.approx((2 * size + tokens * 4 * cache * 128) / 1e9, rel=0.01), model
    local = ["generation.engine=local", "executor.context=2048"]
    with pytest.raises(ConfigError, match="local model 'someone/something': its shape is not known"):
        trainer("executor.model=someone/something", *local)
    assert trainer("executor.model=Qwen/Qwen2.5-7B-Instruct", *local) - trainer(*local) == pytest.approx(15.2, rel=0.01)
    copies = [trainer(f"device={name}", file="config/small.yaml") for name in ("cuda", "cpu")]
    assert copies[1] - copies[0] == pytest.approx(0.99, rel=0.02), "all weights are in linear layers and the head"


def test_the_documented_configuration_fits_a_24_gb_card(root: Path, tmp_path: Path) -> None:
    config, cards = documented_24gb(root, tmp_path), ["1xRTX3090-24", "1xRTX4090-24", "1xL4-24"]
    training = config.training
    lengths = training.prompt_max_length, training.response_max_length
    sizes = training.rollout_batch_size, training.num_return_sequences_in_group, *lengths
    assert sizes == (4, 6, 1800, 512), "tests/policy/test_real_architectures.py compares these with plan's formulae"
    found = make_plan(config, cards).machines
    for card in cards:
        assert (found[card].fits, found[card].memory_GB["trainer"] < 22) == ("yes", True), card
    total = f"{found['1xRTX4090-24'].memory_GB['trainer']:.1f} GB"
    assert f"puts its peak at {total}" in (root / "docs/training.md").read_text("utf-8")


def test_a_card_without_bfloat16_is_named_and_any_number_of_gigabytes_is_a_card() -> None:
    t4 = ["1xT4-16", "1x24.5"]
    found = make_plan(load_config("config/small.yaml"), t4).machines
    assert (found["1xT4-16"].fits, found["1xT4-16"].on_card) == (
        "no; the card has no bfloat16: set model.dtype=float32",
        {},
    )
    assert found["1x24.5"].fits == "yes"
    assert make_plan(load_config("config/small.yaml", ["dtype=float32"]), t4).machines["1xT4-16"].fits == "yes"
    hopeless = ["executor.base_url=https://example.org/v1", "micro_batch_tokens=4872"]
    found = make_plan(load_config(TRAINING, hopeless), ["1x5"]).machines
    assert found["1x5"].fits == "no; helps: nothing alone, most model.quantization=nf4"


def test_doctor_refuses_a_card_without_bfloat16_and_warns_of_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script for the GPU, run here with another ``torch.cuda``."""
    card: dict[str, Any] = {"name": "Tesla T4", "capability": (7, 5), "memory": (15e9, 16e9)}

    def printed(code: str, *words: str, **more: Any) -> str:
        monkeypatch.setattr(sys, "argv", ["-c", *words])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                exec(code, {})
            except ConfigError as error:
                raise OSError(str(error)) from error
        return out.getvalue().strip()

    def compile_(kernel: Any) -> Any:
        return card.get("kernel", lambda *heads: heads[0])

    monkeypatch.setattr(doctor, "_printed", printed)
    monkeypatch.setattr(device, "resolve_device", lambda name: torch.device(card.get("device", "cuda")))
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch, "randn", lambda *size, device, requires_grad: torch.ones(size, requires_grad=True))
    for name, fact in (
        ("get_device_name", "name"),
        ("get_device_capability", "capability"),
        ("mem_get_info", "memory"),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, fact=fact: card[fact])

    def found(*settings: str, name: str = "gpu") -> doctor.Check:
        local = ["generation.engine=local", "executor.concurrency=4", "prompt_max_length=3072", *settings]
        return doctor.run_check(name, doctor.checks_of(load_config("config/one_model.yaml", local))[name])

    assert not found().ok and "Tesla T4 has no bfloat16; set model.dtype=float32" in found().detail
    card |= {"name": "RTX 3090", "capability": (8, 6), "memory": (25e9, 25.4e9)}
    assert found().ok and found().detail.startswith("RTX 3090, compute capability 8.6, CUDA")
    assert "25.0 of 25.4 GB free; WARNING" in found().detail and "helps: model.quantization=nf4" in found().detail
    assert found("model.quantization=nf4").detail.endswith("25.4 GB free")
    assert found("executor.model=someone/something").detail.endswith("25.4 GB free"), "plan does not know it"
    card["kernel"] = lambda *heads: 1 / 0
    assert "division by zero; FlexAttention needs Triton" in found().detail
    card["device"] = "cpu"
    assert found() == doctor.Check("gpu", True, "none, so that model.device=auto is the CPU")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert "pip install 'llm-as-judge[quantized]'" in found("model.quantization=nf4", name="model").detail
