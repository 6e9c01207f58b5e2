"""The LLM client against a real HTTP server that misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import EndpointConfig
from llm_as_judge.errors import ConfigError, PromptTooLong, ProviderError, RequestRefused
from llm_as_judge.llm.cache import ResponseCache
from llm_as_judge.llm.client import LLMClient, Usage

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
    options = {"model": "nano", "api_key": "secret", "timeout_s": 5.0, "max_retries": 2, **settings}
    try:
        config = EndpointConfig(base_url=f"http://{host}:{port}", **options)
        async with LLMClient(config, cache, backoff_s=0.01) as client:
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
            again = {name: reply.headers[name] for name in ("Retry-After",) if name in reply.headers}
            return web.Response(status=reply.status, body=reply.body, headers=again)  # one can be sent but once
        return web.json_response(reply)


async def test_request_and_reply() -> None:
    script = Script(completion("4"))
    async with serving(script, price_per_million_input=1.0, price_per_million_output=2.0) as client:
        reply = await client.chat("2+2?", system="be brief", max_tokens=7, seed=3, temperature=0.5)
        await client.chat("2+2?", seed=3)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("4", 10, 5)
    assert reply.cost == pytest.approx(20e-6)
    sent = script.requests[0]
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert (sent["model"], sent["max_tokens"], sent["seed"], sent["temperature"]) == ("nano", 7, 3, 0.5)
    assert script.requests[1]["temperature"] == 0 and "seed" not in script.requests[1]
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
    client = LLMClient(EndpointConfig(base_url="http://127.0.0.1:1/v1", max_retries=1), backoff_s=0.01)
    async with client:
        with pytest.raises(ProviderError, match="is the server running"):
            await client.chat("q")


@pytest.mark.parametrize("address", ["http://:8000/v1", "http://host:99999/v1", "http://host:x/v1"])
def test_an_impossible_address_is_refused_with_the_cure(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--set executor\.base_url.*write http://HOST:PORT/v1"):
        load_config(None, [f"executor.base_url={address}"])


def test_a_key_in_an_address_is_refused_unseen() -> None:
    with pytest.raises(ConfigError, match="http://host:port") as caught:
        LLMClient(EndpointConfig(base_url="https://a:b@host/v1"))
    assert "a:b" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-a\nb", "schlüssel", "a\r\nX-Header: b"])
def test_a_key_that_no_header_can_hold_is_refused_unseen(key: str) -> None:
    with pytest.raises(ConfigError, match="api_key") as caught:
        LLMClient(EndpointConfig(api_key=key))
    assert key not in str(caught.value)


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


MODELS = {"data": [{"id": "nano"}, {"id": "other"}]}


async def test_check_makes_one_real_completion_with_the_configured_model() -> None:
    script = Script(MODELS, completion())
    async with serving(script, cache=ResponseCache(), max_tokens=9, reasoning_effort="low") as client:
        assert await client.check() == ["nano", "other"]
        assert await client.check() == []  # the script lists no models any more; the completion is not cached
    assert script.requests[0] == "/v1/models"
    assert (script.requests[1]["model"], script.requests[1]["max_tokens"]) == ("nano", 9)
    assert script.requests[1]["reasoning_effort"] == "low"
    assert len([request for request in script.requests if isinstance(request, dict)]) == 2


async def test_check_takes_a_server_without_a_list_of_models() -> None:
    async with serving(Script(web.Response(status=404), completion())) as client:
        assert await client.check() == []


async def test_check_names_address_model_and_what_is_served_instead() -> None:
    async with serving(Script(MODELS, web.Response(status=404, text="no such model")), model="nona") as client:
        with pytest.raises(
            ProviderError, match=r"http://127.*model nona.*no such model.*it serves nano, other"
        ) as caught:
            await client.check()
    assert caught.value.cause == "model"


async def test_usage_counts_calls_tokens_cost_cached_and_failed_ones() -> None:
    script = Script(completion(), completion(), web.Response(status=401))
    prices = {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
    async with serving(script, cache=ResponseCache(), **prices) as client:
        await client.chat("q")
        await client.chat("q")
        await client.chat("another")
        with pytest.raises(ProviderError):
            await client.chat("a third")
        assert client.usage == Usage(2, 20, 10, pytest.approx(40e-6), cached=1, failed=1)


QUOTA = '{"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}'


@pytest.mark.parametrize(
    ("status", "text", "cause", "requests"),
    [
        (401, "bad key", "key", 1),
        (403, "not yours", "key", 1),
        (402, "pay first", "quota", 1),
        (429, QUOTA, "quota", 1),
        (429, "slow down", "overload", 3),
        (404, "no such model", "model", 1),
        (500, "oops", "server", 3),
        (400, "max_tokens must be positive", "request", 1),
        (200, "<html>", "reply", 3),
    ],
)
async def test_a_failure_names_its_cause(status: int, text: str, cause: str, requests: int) -> None:
    script = Script(web.Response(status=status, text=text))
    async with serving(script) as client:
        with pytest.raises(ProviderError) as caught:
            await client.chat("q")
    assert (caught.value.cause, len(script.requests)) == (cause, requests)


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 16384 tokens. However, you requested 20000 tokens",
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        '{"error": {"code": "context_length_exceeded"}}',
        "the prompt has 1300 tokens; this model reads at most 1023",
        "the request exceeds the available context size",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
async def test_a_prompt_beyond_the_context_is_told_from_a_request_refused(text: str) -> None:
    async with serving(Script(web.Response(status=400, text=text))) as client:
        with pytest.raises(PromptTooLong):
            await client.chat("q", response_format={"type": "json_schema"})
    async with serving(Script(web.Response(status=400, text="response_format is not supported"))) as client:
        with pytest.raises(RequestRefused):
            await client.chat("q", response_format={"type": "json_schema"})


@pytest.mark.parametrize(
    "told",
    ["Incorrect API key provided: secret.", "key sk-proj-Abc123***xyz9 expired", "Authorization: Bearer eyJhbGc.x-y"],
)
async def test_a_key_that_a_provider_quotes_is_in_no_message_and_no_log(
    told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="llm_as_judge")
    async with serving(Script(web.Response(status=500, text=told), web.Response(status=401, text=told))) as client:
        with pytest.raises(ProviderError) as caught:
            await client.chat("q")
    said = f"{caught.value} {caplog.text}"
    assert "***" in said and "next attempt" in said
    assert not [part for part in ("secret", "Abc123", "xyz9", "eyJ") if part in said]
