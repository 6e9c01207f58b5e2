"""The embedded server: its engine computes what transformers does; its protocol, its errors, and its life with runs."""

import asyncio
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from helpers.any_json import any_json
from helpers.processes import free_port
from helpers.tiny import greedy
from helpers.web import post
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skills import generate
from transformers import Lfm2ForCausalLM

from llm_as_judge.assembly.services import open_clients
from llm_as_judge.config.loading import load_config
from llm_as_judge.embedded.engine import NanoEngine, NanoRequest
from llm_as_judge.embedded.server import EXECUTOR, MODEL_NAME, Batcher, own_server
from llm_as_judge.errors import ProviderError


@pytest.fixture(scope="module")
def reference() -> Lfm2ForCausalLM:
    model = Lfm2ForCausalLM.from_pretrained(EXECUTOR, dtype=torch.float32)
    return model.eval()


def prompts() -> list[list[int]]:
    g = torch.Generator().manual_seed(0)
    return [torch.randint(5, 1400, (n,), generator=g).tolist() for n in (3, 17, 40, 2, 1, 60)]


def test_greedy_tokens_equal_transformers(reference: Lfm2ForCausalLM) -> None:
    for slots in (2, 8):
        requests = [NanoRequest(p, 10) for p in prompts()]
        generate(NanoEngine(EXECUTOR, slots=slots, max_length=128), requests)
        for request in requests:
            expected, ended = greedy(reference, request.prompt, 10), len(request.output)
            assert request.output == expected[:ended]
            assert request.finish_reason == ("stop" if expected[ended:] else "length")
            assert expected[ended:][:1] in ([], [reference.config.eos_token_id])


def test_logits_are_the_same_bits_in_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the seed of a request decides its reply, whatever other requests are decoded with it."""
    draw = random.Random(0)
    lengths = [draw.choice((1, 9, 70, 200, 250, 300, 420)) for _ in range(40)]
    shapes = [([draw.randrange(5, 1400) for _ in range(length)], i) for i, length in enumerate(lengths)]
    sample, seen = NanoEngine._sample, {}

    def recorded(logits: torch.Tensor, requests: list[NanoRequest]) -> torch.Tensor:
        for row, request in zip(logits, requests, strict=True):
            key = request.seed, len(request.output)
            assert torch.equal(seen.setdefault(key, row.clone()), row)
        return sample(logits, requests)

    monkeypatch.setattr(NanoEngine, "_sample", staticmethod(recorded))
    engine = NanoEngine(EXECUTOR)

    def wanted() -> list[NanoRequest]:
        return [NanoRequest(prompt, 12, temperature=1.5, seed=seed) for prompt, seed in shapes]

    for request in wanted():
        generate(engine, [request])
    alone = len(seen)
    for _ in range(3):
        waiting = wanted()
        draw.shuffle(waiting)
        while waiting or engine.active:
            if waiting and draw.random() < 0.5:
                engine.admit([waiting.pop() for _ in range(min(len(waiting), engine.free, draw.randint(1, 16)))])
            elif engine.active:
                engine.step()
    assert len(seen) == alone > 100


def test_a_repeated_prompt_is_not_forwarded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same result: the test above holds with and without kept prompts."""
    forward, forwarded = NanoEngine._forward, list[int]()

    def counted(self: NanoEngine, prompt: tuple[int, ...]) -> object:
        forwarded.append(len(prompt))
        return forward(self, prompt)

    monkeypatch.setattr(NanoEngine, "_forward", counted)
    engine = NanoEngine(EXECUTOR, slots=4)

    def outputs() -> list[list[int]]:
        requests = [NanoRequest([7, 8, 9] * 30, 6, temperature=1.0, seed=seed) for seed in range(6)]
        generate(engine, requests)
        return [request.output for request in requests]

    assert outputs() == outputs() and forwarded == [90]


def test_no_reply_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = NanoEngine(EXECUTOR, slots=2, max_length=64)
    ends = torch.zeros(len(engine.embedding)).index_fill_(0, torch.tensor([engine.end]), 1e9)
    monkeypatch.setattr(engine, "_logits", lambda x: ends.expand(len(x), -1).clone())
    requests = [NanoRequest([7, 8], 6), NanoRequest([7, 8], 6, temperature=1.0, seed=0)]
    generate(engine, requests)
    assert [(len(request.output), request.finish_reason) for request in requests] == [(1, "stop")] * 2


def test_a_prompt_that_does_not_fit_is_refused_and_an_output_ends_with_the_context(address: str) -> None:
    for count, status in ((1021, 200), (1022, 400)):  # with the marks of user and assistant, 1023 and 1024 tokens
        code, reply = post(f"{address}/chat/completions", ask(messages=[{"role": "user", "content": "7" * count}]))
        assert code == status, reply
    assert "the prompt has 1024 tokens; this model reads at most 1023" in reply["error"]["message"]
    request = NanoRequest([5] * 12, 100)
    generate(NanoEngine(EXECUTOR, slots=1, max_length=16), [request])
    assert len(request.output) <= 4


def ask(**more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Tom has 3 apples. He buys 4 more. How many apples does Tom have now?"}
    return {"model": MODEL_NAME, "messages": [message], "temperature": 0, "max_tokens": 8, **more}


def test_chat_answers_with_usage_choices_and_seeds_that_repeat(address: str) -> None:
    body = ask(n=3, temperature=1.0, seed=5)
    (status, first), (_, second) = (post(f"{address}/chat/completions", body) for _ in range(2))
    assert status == 200 and len(first["choices"]) == 3 and first["choices"] == second["choices"]
    assert first["choices"][0]["message"]["content"] and first["choices"][0]["finish_reason"] in ("stop", "length")
    assert first["usage"]["total_tokens"] == first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
    _, small = post(f"{address}/chat/completions", body | {"model": "nano-small"})
    assert small["model"] == "nano-small" and first["model"] == MODEL_NAME and small["choices"] != first["choices"]


def test_a_bad_body_is_answered_with_the_reason(address: str) -> None:
    bad_bodies: list[tuple[bytes, int, str]] = [
        (b"{not json", 400, "not JSON"), (b'{"max_tokens": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"), (b"\xff\xfe", 400, "not JSON"), (b'"x"', 400, "object"),
        (b" " * (1 << 21), 413, "Too Large"),
    ]  # fmt: skip
    wrong = []
    for body, status, words in bad_bodies:
        code, reply = post(f"{address}/chat/completions", body)
        if code != status or words not in reply["error"]["message"]:
            wrong.append((str(body)[:100], code, reply))
    assert not wrong
    assert post(f"{address}/embeddings", {})[0] == 404
    code, reply = post(f"{address}/models", {})
    assert (code, reply["error"]["type"]) == (405, "invalid_request_error")


JUNK = any_json(st.just(2**64), st.just("é" * 9000))
FIELDS = ("model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "n", "seed", "stream")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from([*FIELDS, "stop", "tools"]), JUNK, min_size=1, max_size=2))
def test_any_input_gets_a_reply_or_the_reason(address: str, changes: dict[str, Any]) -> None:
    code, reply = post(f"{address}/chat/completions", {**ask(), "max_tokens": 1} | changes)
    assert code in (200, 400, 404), reply
    assert reply["choices"] if code == 200 else reply["error"]["message"]


async def test_a_failure_in_the_engine_fails_only_the_requests_concerned() -> None:
    engine = NanoEngine(EXECUTOR, slots=8, max_length=128)
    batcher = Batcher(engine)
    good = asyncio.create_task(batcher.complete(NanoRequest([5, 6, 7], 100)))
    while not engine.active:
        await asyncio.sleep(0.001)
    with pytest.raises(IndexError):
        await batcher.complete(NanoRequest([10**9], 1))  # no such token
    assert (await good).finish_reason


def test_serve_prints_its_address_and_how_to_stop_it() -> None:
    port = free_port()
    command = [sys.executable, "-m", "llm_as_judge", "embedded", "serve", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"http://127.0.0.1:{port}/v1" in said and "Ctrl-C" in said
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


RUN = """
import sys
from pathlib import Path
from llm_as_judge.embedded.server import own_server

with own_server(Path(sys.argv[1])) as address:
    print(address, flush=True)
    sys.stdin.readline()
"""


def ends(address: str, seconds: float = 20) -> bool:
    """Whether the server no longer listens after at most ``seconds``."""
    port, deadline = urlsplit(address).port, time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                return True
        time.sleep(0.1)
    return False


def test_a_run_has_a_server_of_its_own_that_ends_if_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path / "logs/server.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        address = run.stdout.readline().strip()
        assert post(f"{address}/chat/completions", ask())[0] == 200
        run.kill()
    assert ends(address), "the server outlived its run"


async def test_roles_without_an_address_share_a_server_and_others_have_theirs(tmp_path: Path, address: str) -> None:
    settings = [f"log_dir={tmp_path}", "judge.mode=llm"]
    async with open_clients(load_config(None, settings), ["executor", "judge"]) as clients:
        (own,) = {client.config.base_url for client in clients.values()}
        assert own != address and (await clients["judge"].chat("What is 1 + 1?")).completion_tokens
    assert ends(own)
    config = load_config(None, [*settings, f"executor.base_url={address}"])
    async with open_clients(config, ["executor"]) as clients:
        assert clients["executor"].config.base_url == address
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1:9"):
        async with open_clients(load_config(None, ["executor.base_url=http://127.0.0.1:9/v1"]), ["executor"]):
            pass


def test_a_server_that_does_not_start_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "aiohttp.py").write_text("raise SystemExit(3)")
    log = tmp_path / "server.log"
    with pytest.raises(ProviderError, match=f"ended with status 3; see {log}"), own_server(log):
        pass
