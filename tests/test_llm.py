"""The LLM client against a real HTTP server that misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from llm_as_judge.cache import ResponseCache
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.llm import LLMClient, LLMSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def completion(content: Any = "4", **message: Any) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": content, **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }


@asynccontextmanager
async def serving(handler: Handler, **settings: Any) -> AsyncIterator[LLMClient]:
    """A client of a server that answers every request with ``handler``."""
    app = web.Application()

    async def route(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app.router.add_route("*", "/v1/{path:.*}", route)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    cache = settings.pop("cache", None)
    options = {"timeout_s": 5.0, "max_retries": 2, **settings}
    try:
        async with LLMClient(
            LLMSettings(f"http://{host}:{port}", "secret", "nano", **options), cache, backoff_s=0.01
        ) as client:
            yield client
    finally:
        await runner.cleanup()


class Script:
    """Answers requests one after the other and remembers what was asked."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[Any] = []
        self.headers: list[Any] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json() if request.can_read_body else request.path)
        self.headers.append(dict(request.headers))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, web.Response):
            return reply
        return web.json_response(reply)


async def test_request_and_reply() -> None:
    script = Script(completion("4"))
    async with serving(script, price_per_million_input=1.0, price_per_million_output=2.0) as client:
        reply = await client.chat("2+2?", system="be brief", max_tokens=7, seed=3)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("4", 10, 5)
    assert reply.cost == pytest.approx(20e-6)
    sent = script.requests[0]
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert (sent["model"], sent["max_tokens"], sent["seed"], sent["temperature"]) == ("nano", 7, 3, 0.0)
    assert script.headers[0]["Authorization"] == "Bearer secret"


async def test_rate_limit_waits_as_long_as_it_is_told() -> None:
    script = Script(web.Response(status=429, headers={"Retry-After": "0.3"}), completion())
    async with serving(script) as client:
        started = time.monotonic()
        assert (await client.chat("q")).text == "4"
    assert time.monotonic() - started >= 0.3


async def test_server_error_is_retried() -> None:
    script = Script(web.Response(status=500, text="oops"), completion("ok"))
    async with serving(script) as client:
        assert (await client.chat("q")).text == "ok"
    assert len(script.requests) == 2


async def test_a_lasting_server_error_quotes_the_body() -> None:
    script = Script({"error": {"message": "model is loading"}})
    async with serving(script) as client:
        with pytest.raises(ProviderError, match=r"nano.*model is loading.*after 3 attempts"):
            await client.chat("q")
    assert len(script.requests) == 3


async def test_truncated_json_is_retried() -> None:
    script = Script(web.Response(text='{"choices": [{"mess'), completion("ok"))
    async with serving(script) as client:
        assert (await client.chat("q")).text == "ok"


async def test_a_body_shorter_than_promised_is_retried() -> None:
    calls = 0

    async def break_off(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls > 1:
            return web.json_response(completion("ok"))
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving(break_off) as client:
        assert (await client.chat("q")).text == "ok"


async def test_a_hanging_server_is_given_up() -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async with serving(hang, timeout_s=0.1, max_retries=1) as client:
        started = time.monotonic()
        with pytest.raises(ProviderError, match=r"timeout_s = 0\.1"):
            await client.chat("q")
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("status", [401, 403])
async def test_a_wrong_key_fails_at_once_with_the_cure(status: int) -> None:
    script = Script(web.Response(status=status, text='{"error": "bad key ' + "x" * 5000 + '"}'))
    async with serving(script) as client:
        with pytest.raises(ProviderError) as caught:
            await client.chat("q")
    message = str(caught.value)
    assert len(script.requests) == 1
    assert "OPENAI_API_KEY" in message and "127.0.0.1" in message and "nano" in message and "bad key" in message
    assert "secret" not in message
    assert len(message) < 800


async def test_an_unknown_model_names_address_and_model() -> None:
    script = Script(web.Response(status=404, text="no such model"))
    async with serving(script) as client:
        with pytest.raises(ProviderError, match=r"nano.*no such model.*model's name"):
            await client.chat("q")
    assert len(script.requests) == 1


async def test_connection_refused_asks_for_the_server() -> None:
    client = LLMClient(LLMSettings("http://127.0.0.1:1/v1", "", "nano", max_retries=1), backoff_s=0.01)
    async with client:
        with pytest.raises(ProviderError, match="is the server running"):
            await client.chat("q")


@pytest.mark.parametrize("address", ["localhost:8000/v1", "", "http://", "ftp://host/v1"])
def test_an_impossible_address_is_refused_with_the_cure(address: str) -> None:
    with pytest.raises(ConfigError, match="http://host:port"):
        LLMClient(LLMSettings(address, "", "nano"))


async def test_reasoning_models_null_content_and_missing_usage() -> None:
    thinking = completion(None, reasoning_content="hm")
    thinking["choices"][0]["finish_reason"] = "length"
    del thinking["usage"]
    async with serving(Script(thinking, completion("<think>hm</think>\n\n4"))) as client:
        cut = await client.chat("q")
        inline = await client.chat("q")
    assert (cut.text, cut.reasoning, cut.finish_reason) == ("", "hm", "length")
    assert (cut.prompt_tokens, cut.usage_known) == (0, False)
    assert (inline.text, inline.reasoning, inline.usage_known) == ("4", "hm", True)


async def test_only_deterministic_requests_are_cached() -> None:
    script = Script(completion())
    async with serving(script, cache=ResponseCache()) as client:
        first, second = await client.chat("q"), await client.chat("q")
        assert (first.cached, second.cached, len(script.requests)) == (False, True, 1)
        assert (second.text, second.prompt_tokens) == (first.text, first.prompt_tokens)
        await client.chat("q", temperature=1.0)
        await client.chat("q", temperature=1.0)
        assert len(script.requests) == 3
        await client.chat("q", temperature=1.0, seed=1)
        await client.chat("q", temperature=1.0, seed=1)
        await client.chat("q", temperature=1.0, seed=2)
        assert len(script.requests) == 5


async def test_concurrency_is_bounded() -> None:
    running = highest = 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0.02)
        running -= 1
        return web.json_response(completion())

    async with serving(slow, concurrency=3) as client:
        await asyncio.gather(*(client.chat(str(i)) for i in range(12)))
    assert highest == 3


async def test_check_lists_the_models() -> None:
    script = Script({"data": [{"id": "nano"}, {"id": "other"}]})
    async with serving(script) as client:
        assert await client.check() == ["nano", "other"]
    assert script.requests == ["/v1/models"]


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(LLMSettings("http://x", "secret", "m"))
