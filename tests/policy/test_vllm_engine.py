"""The vLLM engine, and a run's own server."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from helpers.finished import EMBEDDED, run_settings
from helpers.processes import free_port
from helpers.processes import running as alive
from helpers.run_logs import read_rollouts
from helpers.tables import tables
from helpers.tiny import EOS, NumberTokenizer, tiny_policy
from helpers.vllm import PYTHON, QUIET, needs_vllm
from helpers.web import Handler, serving
from safetensors.torch import load_file

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.config.endpoints import EngineConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.grpo_trainer import GRPOTrainer
from llm_as_judge.llm.transport import Transport
from llm_as_judge.policy.sampling import Sampling
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.policy.vllm_server import OwnServer, command, server_environment
from llm_as_judge.types import Completion

PROGRAMS = tables(__file__)


class FakeServer:
    """Records requests; answers with ``failures`` first, then everything succeeds."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[tuple[int, str]] = []
        self.choice: dict[str, Any] = {}
        self.models = ["base"]
        self.model: str | None = None  # model name in the reply, instead of the requested one
        outer = self

        class Replies(Handler):
            def do_GET(self) -> None:
                self.send(200, {"data": [{"id": name} for name in outer.models]})

            def do_POST(self) -> None:
                self.send(*outer.reply(self.path, json.loads(self.raw())))

        self._serving = serving(Replies, port)
        self.url = self._serving.__enter__()
        self.port = int(self.url.rpartition(":")[2])

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append((path, body))
        if self.failures:
            return self.failures.pop(0)
        if path.endswith("lora_adapter"):
            return 200, f"Success: {body['lora_name']}"
        logprobs = {"token_logprobs": [-0.5, -0.25, -0.125]}
        choices = [
            {"index": i, "text": "ignored", "finish_reason": "stop", "token_ids": [body["prompt"][0] + i, 9, EOS],
             "logprobs": logprobs, **self.choice} for i in reversed(range(body["n"]))
        ]  # fmt: skip
        return 200, {"model": self.model or body["model"], "choices": choices}

    def close(self) -> None:
        self._serving.__exit__(None, None, None)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


def engine(server: FakeServer, directory: Path, **settings: Any) -> VLLMEngine:
    config = EngineConfig(base_url=server.url + "/v1", **{"max_retries": 2, **settings})
    return VLLMEngine(config, "base", directory, NumberTokenizer())


def test_completions_carry_ids_and_logprobs_in_order_each_of_its_own_seed(server: FakeServer, tmp_path: Path) -> None:
    ended: dict[tuple[int, int], Completion] = {}

    def note(place: int, member: int, completion: Completion) -> None:
        ended[place, member] = completion

    sampling = Sampling(0.7, 0.9, 5)
    groups = engine(server, tmp_path).generate([[4, 5], [6]], 2, sampling=sampling, seed=10, on_completion=note)
    assert ended == {(i, k): c for i, group in enumerate(groups) for k, c in enumerate(group)}
    assert [[c.token_ids for c in g] for g in groups] == [[(4, 9, 1), (5, 9, 1)], [(6, 9, 1), (7, 9, 1)]]
    assert groups[0][1].text == "5 9" and groups[0][1].logprobs == (-0.5, -0.25, -0.125)
    assert groups[1][0].prompt_ids == (6,) and groups[1][0].finish_reason == "stop"
    bodies = sorted((b for _, b in server.requests), key=lambda b: -len(b["prompt"]))
    assert (bodies[0]["temperature"], bodies[0]["top_p"], bodies[0]["top_k"]) == (0.7, 0.9, 5)
    assert (bodies[0]["repetition_penalty"], bodies[0]["min_p"]) == (1.0, 0.0)
    assert bodies[0]["prompt"] == [4, 5] and bodies[0]["return_token_ids"] is True
    server.requests.clear()
    (group,) = engine(server, tmp_path).generate([[4, 5]], 3, sampling=Sampling(0))  # greedy: one request is enough
    assert len(group) == 3 and group[0] == group[1] == group[2]
    assert [body["n"] for _, body in server.requests] == [1]
    # vLLM's ParentRequest gives completion k of a request its seed plus k.
    seeds: list[list[int]] = []
    for start in (0, 64, 0):
        server.requests.clear()
        engine(server, tmp_path).generate([[4, 5], [6], [7], [8]], 6, seed=start)
        seeds.append(sorted(body["seed"] + k for _, body in server.requests for k in range(6)))
    assert seeds[0] == seeds[2] and len({*seeds[0], *seeds[1]}) == 2 * 4 * 6
    assert all(0 <= seed < 2**31 for seed in seeds[0])


def test_every_version_and_every_policy_is_a_new_adapter_also_an_older_one(server: FakeServer, tmp_path: Path) -> None:
    policy, other, vllm = tiny_policy(perturb=0.1), tiny_policy(), engine(server, tmp_path)
    vllm.sync(policy, 0)
    vllm.sync(policy, 0)
    vllm.sync(policy, 1)
    names = [body["lora_name"] for _, body in server.requests]
    assert [path.rsplit("/", 1)[1].partition("_")[0] for path, _ in server.requests] == ["load", "load", "unload"]
    assert names[0] == names[2] and [name.rpartition("-")[0] for name in names[:2]] == ["policy-v0", "policy-v1"]
    assert [p.name for p in tmp_path.iterdir()] == [names[1]]
    path = Path(server.requests[1][1]["lora_path"])
    assert path.is_absolute() and (path / "adapter_model.safetensors").exists()
    (group,) = vllm.generate([[4]])
    assert server.requests[-1][1]["model"] == names[1]
    assert group[0].policy_version == 1
    # A repair turn is sampled by the weights of the episode's first turn, while newer ones are trained.
    first = [torch.full_like(parameter, 0.5) for parameter in policy.trainable_parameters]
    with policy.holding(first):
        vllm.sync(policy, 0)
    written = load_file(tmp_path / server.requests[-2][1]["lora_name"] / "adapter_model.safetensors")
    assert vllm.generate([[4]])[0][0].policy_version == 0 and all(bool((w == 0.5).all()) for w in written.values())
    vllm.sync(other, 1)  # the same version, other weights: an evaluation of another checkpoint
    assert server.requests[-2][1]["lora_name"] not in names
    # Another run's server may have an adapter of that version.
    assert engine(server, tmp_path / "another").generate([[4]]) and server.requests[-1][1]["model"] == "base"


def test_the_adapter_has_the_servers_precision_and_is_readable_for_it(server: FakeServer, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
            policy = tiny_policy(dtype=name, perturb=0.1)
            engine(server, tmp_path / name).sync(policy, 1)
            path = Path(server.requests[-1][1]["lora_path"])
            saved = load_file(path / "adapter_model.safetensors")
            policy.save_adapter(tmp_path / f"{name}_exact")
            exact = load_file(tmp_path / f"{name}_exact/adapter_model.safetensors")
            assert saved.keys() == exact.keys()
            assert all(torch.equal(value.to(dtype), saved[key]) for key, value in exact.items())
            assert {oct(file.stat().st_mode & 0o777) for file in path.iterdir()} == {"0o644"}
            assert all(folder.stat().st_mode & 0o777 == 0o755 for folder in (path, path.parent))
    finally:
        os.umask(before)


def test_unusable_servers_and_replies_are_errors_with_their_reason(server: FakeServer, tmp_path: Path) -> None:
    vllm = engine(server, tmp_path)
    assert vllm.check() == ["base"]
    assert server.requests[-1][1]["max_tokens"] == 1 and server.requests[-1][1]["return_token_ids"] is True
    for choice, message in (
        ({"token_ids": None}, "no token ids.*upgrade the server"),
        ({"logprobs": None}, "no token ids"),
        ({"logprobs": {"token_logprobs": [-0.5, float("nan"), -0.1]}}, "not finite"),
        ({"finish_reason": "abort"}, "ended a completion by 'abort'"),  # not cut off at its limit
    ):
        server.choice = choice
        with pytest.raises(ProviderError, match=message):
            vllm.check()
    server.choice, server.models = {}, ["other"]
    with pytest.raises(ConfigError, match="serves other, not base"):
        vllm.check()
    server.failures = [(404, "No adapter found for /elsewhere")]  # vLLM's words for a path that it cannot read
    with pytest.raises(ConfigError, match=r"VLLM_ALLOW_RUNTIME_LORA_UPDATING.*can read .* by a shared file system"):
        vllm.sync(tiny_policy(), 0)
    server.failures = [(400, "The lora adapter 'policy-v3' has already been loaded.")]
    vllm.sync(tiny_policy(), 3)
    assert vllm.version == 3
    server.model = "base"
    with pytest.raises(ProviderError, match="instead of 'policy-v3-"):
        vllm.generate([[4]])


def test_a_lost_adapter_is_loaded_again(server: FakeServer, tmp_path: Path) -> None:
    vllm = engine(server, tmp_path)
    vllm.sync(tiny_policy(), 4)
    server.failures = [(404, "The model does not exist.")]
    assert vllm.generate([[4]])[0][0].policy_version == 4
    paths = [path.rsplit("/", 1)[1] for path, _ in server.requests]
    assert paths == ["load_lora_adapter", "completions", "load_lora_adapter", "completions"]
    assert server.requests[2][1] == server.requests[0][1]
    server.failures = [(200, "Success"), (404, "The lora adapter 'policy-v4' cannot be found.")]  # vLLM's own words
    vllm.sync(tiny_policy(), 5)  # after a restart the new adapter is loaded, and the old one is not there
    assert vllm.version == 5 and not server.failures


def test_a_restart_is_waited_for_and_a_wrong_address_is_not(tmp_path: Path) -> None:
    first = FakeServer()
    port = first.port
    vllm = engine(first, tmp_path, max_retries=0, restart_s=60)
    vllm.sync(tiny_policy(), 1)
    first.close()
    again: list[FakeServer] = []
    timer = threading.Timer(0.7, lambda: again.append(FakeServer(port)))
    timer.start()
    try:
        assert vllm.generate([[4]])[0][0].text == "4 9"
    finally:
        timer.join()
        again[0].close()
    stranger = engine(first, tmp_path, max_retries=0, restart_s=60)
    with pytest.raises(ProviderError, match="is the server running"):
        stranger.generate([[4]])


def test_the_configured_engine_is_checked(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", server.url)
    server.models = ["Qwen/Qwen2.5-7B-Instruct"]
    config = load_config("config/training.yaml", ["generation.engine=vllm", f"output_dir={tmp_path}"])
    monkeypatch.setattr("llm_as_judge.assembly.policy.Policy.load", lambda *a, **k: tiny_policy())
    made = load_author(config).engine
    assert server.requests[0][1]["model"] == server.models[0]
    made.sync(tiny_policy(), 2)
    assert len(list((tmp_path / "qwen25-7b/grpo_mixed/adapters").glob("policy-v2-*/adapter_model.safetensors"))) == 1
    assert made.generate([[4]])[0][0].text == "4 9"


STAND_IN = f"#!{sys.executable}\n{PROGRAMS['STAND_IN']}"


def program(folder: Path, text: str = STAND_IN) -> str:
    file = folder / "vllm-python"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def gone(pid: int) -> bool:
    """Whether a process ends; a busy machine may need long for it."""
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def start(config: Config, folder: Path) -> OwnServer:
    words = command(config, "weights", "name", "bfloat16")
    return OwnServer(config.engine, words, "cuda:1", folder / "logs/server.log")


def test_command_line_and_environment_follow_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["lora_rank=24", "seed=5", "engine.gpus=2,3", "engine.options=[--enforce-eager]", "engine.python=py"]
    config = load_config("config/training.yaml", ["generation.engine=vllm", *settings])
    assert config.engine.base_url == "", "config/training.yaml starts a server unless VLLM_BASE_URL is set"
    words = command(config, "weights", "name", "bfloat16")
    assert words[:4] == ["py", "-m", "vllm.entrypoints.openai.api_server", "--enable-lora"]
    assert words[-1] == "--enforce-eager"
    longest = config.training.prompt_max_length + config.training.response_max_length
    assert dict(zip(words[4:-1:2], words[5:-1:2], strict=True)) == {
        "--host": "127.0.0.1", "--model": "weights", "--served-model-name": "name",
        "--dtype": "bfloat16", "--max-model-len": str(longest), "--max-lora-rank": "32", "--max-loras": "2",
        "--gpu-memory-utilization": "0.35", "--tensor-parallel-size": "2", "--seed": "5", "--generation-config": "vllm",
        "--logprobs-mode": "processed_logprobs",
    }  # fmt: skip
    both = [*settings, "executor.provider=local", "executor.model=policy", "executor.context=20000"]
    words = command(load_config("config/training.yaml", both), "weights", "name", "bfloat16")
    assert words[words.index("--max-model-len") + 1] == "20000", "it also answers as the executor"
    with pytest.raises(ConfigError, match=r"lora_rank=513: vLLM serves ranks up to 512"):
        command(load_config(None, ["lora_rank=513"]), "weights", "name", "float32")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    own = server_environment(EngineConfig(api_key="sk-1"), "cuda:1")
    assert (own["CUDA_VISIBLE_DEVICES"], own["VLLM_API_KEY"]) == ("1", "sk-1")
    assert "WORLD_SIZE" not in own, "vLLM would take itself for a rank of torchrun"
    assert server_environment(EngineConfig(gpus="2,3"), "cuda:1")["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "CUDA_VISIBLE_DEVICES" not in server_environment(EngineConfig(), "cpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert server_environment(EngineConfig(), "cuda:1")["CUDA_VISIBLE_DEVICES"] == "6"


async def test_it_ends_with_all_its_processes_past_proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "noted"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = start(load_config(None, [f"engine.python={program(tmp_path)}"]), tmp_path)
    noted, address = json.loads((tmp_path / "noted").read_text()), server.config
    assert "up" in server.log.read_text() and "PYTHONPATH" not in noted["environment"]

    async with aclosing(Transport(address)) as transport:
        assert await transport.ask("/models", None, str) == "fine"
    del server
    assert all(gone(pid) for pid in noted["pids"])


def test_it_ends_if_the_run_is_killed(tmp_path: Path) -> None:
    noted = {**os.environ, "NOTES": str(tmp_path / "noted")}
    command = [sys.executable, "-c", PROGRAMS["RUN"], f"engine.python={program(tmp_path)}", str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=noted) as running:
        assert running.stdout is not None and running.stdout.readline() == b"up\n"
        os.kill(running.pid, signal.SIGKILL)
    assert all(gone(pid) for pid in json.loads((tmp_path / "noted").read_text())["pids"])


def test_a_server_that_does_not_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    for text, seconds, noted in (
        ("#!/bin/sh\necho no kernel image >&2\nexit 3\n", 60, r"(?s)status 3\. Install vLLM.*no kernel image$"),
        ("#!/bin/sh\necho loading\nsleep 100\n", 1, r"(?s)within engine\.restart_s=1 s; raise it"),
        (None, 60, r"(?s)ended with status 127.*/missing: No such file"),
    ):
        python = program(tmp_path, text) if text else str(tmp_path / "missing")
        with pytest.raises(ConfigError, match=noted):
            start(load_config(None, [f"engine.python={python}", f"engine.restart_s={seconds}"]), tmp_path)


@pytest.mark.vllm
@pytest.mark.gpu
@needs_vllm[1]
def test_a_run_starts_uses_and_ends_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    address = f"http://127.0.0.1:{free_port()}/v1"
    engine = {"generation.engine": "vllm", "engine.python": PYTHON, "device": device, "dtype": "float32"}
    # On a CPU, vLLM 0.32 ends when a request with a seed does not fit the first batch as a whole.
    words = "[--enforce-eager, --no-enable-chunked-prefill, --max-num-seqs, '16']"
    options = {"engine.options": words, "rollout_batch_size": 2}
    # The same server answers the operators, with the base weights.
    options |= {"executor.provider": "local", "executor.model": "policy", "executor.context": 1024}
    options |= {"judge.mode": "rules"}
    config = load_config(EMBEDDED, run_settings(tmp_path, address, **engine, **options))
    report = asyncio.run(GRPOTrainer(config=config).train(2))
    assert report is not None and report.step == 2
    log = (tmp_path / "logs/nano/policy_server.log").read_text(errors="replace")
    assert "/v1/load_lora_adapter" in log and "/v1/chat/completions" in log
    ran = [r.rollout for r in read_rollouts(tmp_path / "logs/nano/grpo_mixed.jsonl") if r.rollout.execution.calls]
    assert ran and all(rollout.tokens for rollout in ran) and report.unscored == 0
    author = load_author(config)
    assert isinstance(author.engine, VLLMEngine)
    own = author.engine._own
    assert own is not None
    port = f"--port {urlsplit(own.config.base_url).port}$"  # the last word; without $ 5000 is also in 50001
    pids = [int(pid) for pid in subprocess.check_output(["pgrep", "-f", "--", port], text=True).split()]
    del author, own
    assert pids and all(gone(pid) for pid in pids)
