"""The embedded server as a process, over HTTP: the protocol, its errors, and its life with its parent."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm_as_judge.config.schema import EndpointConfig
from llm_as_judge.embedded import supervise
from llm_as_judge.embedded.engine import Engine, Request
from llm_as_judge.embedded.server import EXECUTOR, MODEL_NAME, Batcher
from llm_as_judge.embedded.supervise import EmbeddedServer
from llm_as_judge.errors import ConfigError
from llm_as_judge.llm.client import LLMClient


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    url = f"http://127.0.0.1:{free_port()}/v1"
    server = EmbeddedServer(url)
    asyncio.run(server.__aenter__())
    yield url
    server.stop()


def post(url: str, body: Any) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def ask(**more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Tom has 3 apples. He buys 4 more. How many apples does Tom have now?"}
    return {"model": MODEL_NAME, "messages": [message], "temperature": 0, "max_tokens": 8, **more}


def test_chat_answers_with_usage_and_finish_reason(address: str) -> None:
    status, body = post(f"{address}/chat/completions", ask())
    assert status == 200
    assert body["choices"][0]["message"]["content"]
    assert body["choices"][0]["finish_reason"] in ("stop", "length")
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]


def test_n_choices_and_a_seed_repeat(address: str) -> None:
    body = ask(n=3, temperature=1.0, seed=5)
    first, second = (post(f"{address}/chat/completions", body)[1]["choices"] for _ in range(2))
    assert len(first) == 3
    assert first == second


def test_completions_take_token_ids(address: str) -> None:
    status, body = post(f"{address}/completions", {"prompt": [1, 50, 2], "max_tokens": 4, "temperature": 0})
    assert status == 200
    assert body["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{not json", 400, "not JSON"),
        (ask(messages=[]), 400, "messages"),
        (ask(messages=[{"role": "robot", "content": "x"}]), 400, "role"),
        (ask(temperature="hot"), 400, "temperature"),
        (ask(model="gpt-9"), 404, "gpt-9"),
        (ask(stream=True), 400, "stream"),
        (ask(messages=[{"role": "user", "content": "é" * 5000}]), 400, "tokens"),
        (ask(messages=[{"role": "user", "content": "x " * 100_000}]), 400, "200000 characters"),
        (ask(messages=[{"role": ["user"], "content": "x"}]), 400, "role"),
        (ask(messages=[{"role": "user", "content": "\ud800"}]), 400, "surrogates"),
        (ask(seed=2**64), 400, "64 bits"),
        (ask(seed="1"), 400, "seed"),
        (ask(seed=True), 400, "seed"),
        (ask(n=65), 400, "n must be"),
        (ask(top_p=float("nan")), 400, "top_p"),
        (ask(model=["nano"]), 404, "no model"),
        (ask(tools=[{"type": "function"}]), 400, "tools"),
        (ask(response_format={"type": "json_schema"}), 400, "response_format"),
        (b'{"max_tokens": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b'"x"', 400, "object"),
        (b" " * (1 << 21), 413, "Too Large"),
    ],
)
def test_a_bad_request_is_answered_with_the_reason(address: str, body: Any, status: int, words: str) -> None:
    code, reply = post(f"{address}/chat/completions", body)
    assert code == status
    assert words in reply["error"]["message"]


def test_wrong_paths_and_methods_are_errors_of_the_protocol(address: str) -> None:
    assert post(f"{address}/embeddings", {})[0] == 404
    code, reply = post(f"{address}/models", {})
    assert (code, reply["error"]["type"]) == (405, "invalid_request_error")


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.just(2**64)
    | st.just("é" * 9000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "n", "seed", "stream")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["chat/completions", "completions"]),
    changes=st.dictionaries(st.sampled_from([*FIELDS, "prompt", "stop", "tools"]), JUNK, min_size=1, max_size=2),
)
def test_no_input_is_answered_with_anything_but_a_reply_or_the_reason(
    address: str, path: str, changes: dict[str, Any]
) -> None:
    code, reply = post(f"{address}/{path}", {"prompt": [1, 50, 2], **ask(), "max_tokens": 1} | changes)
    assert code in (200, 400, 404), reply
    assert reply["choices"] if code == 200 else reply["error"]["message"]


def test_bad_requests_do_no_harm_to_those_under_way(address: str) -> None:
    async def run() -> None:
        config = EndpointConfig(base_url=address, max_tokens=60, temperature=1.0)
        async with LLMClient(config) as client:
            good = [asyncio.create_task(client.chat("Question: where?", seed=i)) for i in range(8)]
            await asyncio.sleep(0.02)
            long = ask(messages=[{"role": "user", "content": "x " * 400_000}])
            began = time.perf_counter()
            for body in (ask(seed=2**64), long, long, long):
                assert (await asyncio.to_thread(post, f"{address}/chat/completions", body))[0] == 400
            assert time.perf_counter() - began < 5
            assert all(reply.text for reply in await asyncio.gather(*good))

    asyncio.run(run())


def test_a_failure_in_the_engine_is_told_to_those_it_concerns_only() -> None:
    engine = Engine(EXECUTOR, slots=8, max_length=128)
    batcher = Batcher(engine)

    async def run() -> None:
        good = asyncio.create_task(batcher.complete(Request([5, 6, 7], 100)))
        while not engine.active:
            await asyncio.sleep(0.001)
        with pytest.raises(IndexError):
            await batcher.complete(Request([10**9], 1))  # no such token
        assert (await good).finish_reason

    asyncio.run(run())


def test_serve_says_where_it_serves_and_how_to_stop_it() -> None:
    port = free_port()
    command = [sys.executable, "-m", "llm_as_judge.commands.app", "embedded", "serve", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"http://127.0.0.1:{port}/v1" in said and "Ctrl-C" in said
        assert post(f"http://127.0.0.1:{port}/v1/chat/completions", ask())[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_many_requests_are_answered_together(address: str) -> None:
    async def run() -> tuple[float, float]:
        config = EndpointConfig(base_url=address, max_tokens=24, temperature=1.0, concurrency=32)
        async with LLMClient(config) as client:
            await client.chat("Question: where?")
            began = time.perf_counter()
            for _ in range(4):
                await client.chat("Question: where?")
            alone = (time.perf_counter() - began) / 4
            began = time.perf_counter()
            replies = await asyncio.gather(*(client.chat("Question: where?") for _ in range(32)))
            assert len(replies) == 32
            return alone, (time.perf_counter() - began) / 32

    alone, together = asyncio.run(run())
    assert together < alone


def test_the_server_ends_with_its_parent() -> None:
    port = free_port()
    code = (
        "import asyncio, os\n"
        "from llm_as_judge.embedded.supervise import EmbeddedServer\n"
        f"s = EmbeddedServer('http://127.0.0.1:{port}/v1')\n"
        "asyncio.run(s.__aenter__())\n"
        "os._exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    deadline = time.time() + 20
    while time.time() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                return
        time.sleep(0.2)
    pytest.fail("the server outlived its parent")


@pytest.mark.parametrize("own", [True, False], ids=["its own", "another run's"])
async def test_a_server_that_is_gone_is_started_anew(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_SHORT_LIFE_SECONDS", 0.0)
    first = EmbeddedServer(f"http://127.0.0.1:{free_port()}/v1")
    async with first:
        other = EmbeddedServer(first.base_url)
        async with other:
            assert first.process is not None and other.process is None
            if not own:
                await first.__aexit__(None, None, None)
            else:
                first.process.kill()
            deadline = time.time() + 60
            while await supervise._served_model(first.base_url) != MODEL_NAME:
                assert time.time() < deadline, "nobody started another"
                await asyncio.sleep(0.1)
            assert own or other.process is not None


def test_a_port_taken_by_another_service_is_named_with_the_cure() -> None:
    code = (
        "import http.server, sys\n"
        "address = ('127.0.0.1', int(sys.argv[1]))\n"
        "http.server.HTTPServer(address, http.server.BaseHTTPRequestHandler).serve_forever()\n"
    )
    port = free_port()
    other = subprocess.Popen([sys.executable, "-c", code, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        with pytest.raises(ConfigError, match="taken by another server"):
            asyncio.run(EmbeddedServer(f"http://127.0.0.1:{port}/v1").__aenter__())
    finally:
        other.kill()
        other.wait()


def test_an_address_elsewhere_is_refused() -> None:
    with pytest.raises(ConfigError, match="openai"):
        EmbeddedServer("http://example.org:8002/v1")
