"""The LLM client against a real HTTP server that misbehaves."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from helpers.tables import tables

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.loading import load_config
from llm_as_judge.errors import ConfigError, PromptRefused, ProviderError, RequestRefused
from llm_as_judge.llm.client import LLMClient, Usage
from llm_as_judge.llm.concurrency import Places

TABLES = tables(__file__)

Handler = Callable[[Any], Awaitable[web.StreamResponse]]
MODELS = {"data": [{"id": "nano"}, {"id": "other"}]}


def completion(content: Any = "4", usage: Any = None, **message: Any) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": content, **message}, "finish_reason": "stop"}],
        "usage": usage or {"prompt_tokens": 10, "completion_tokens": 5},
    }


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[int]:
    """The port of a server, or an HTTP proxy, that answers every request with ``handler``."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving(handler: Handler, **settings: Any) -> AsyncIterator[LLMClient]:
    """A client of a server."""
    options = {"model": "nano", "api_key": "thesecret", "timeout_s": 5.0, "max_retries": 2, **settings}
    async with listening(handler) as port:
        config = EndpointConfig(base_url=f"http://127.0.0.1:{port}", **options)
        async with LLMClient(config) as client:
            yield client


class Script:
    """Answers requests with ``replies`` in turn, the last one for ever, and remembers the requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[Any] = []
        self.headers: list[Any] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json() if request.can_read_body else request.path)
        self.headers.append(dict(request.headers))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, web.Response):  # a response object can be sent only once
            kept = {name: reply.headers[name] for name in ("Retry-After", "Content-Type") if name in reply.headers}
            return web.Response(status=reply.status, body=reply.body, headers=kept)
        return web.json_response(reply)


async def failure(handler: Handler, **settings: Any) -> ProviderError:
    async with serving(handler, **settings) as client:
        with pytest.raises(ProviderError) as caught:
            await client.chat("q", response_format={"type": "json_schema"})
    return caught.value


async def test_requests_replies_reasoning_and_usage(caplog: pytest.LogCaptureFixture) -> None:
    script, prices = Script(completion("4")), {"price_per_million_input": 1.0, "price_per_million_output": 2.0}
    async with serving(script, **prices) as client:
        reply = await client.chat("2+2? \ud800", system="be brief", max_tokens=7, seed=3, temperature=0.5)
        for _ in range(2):
            await client.chat("2+2?", seed=3)
        script.replies = [web.Response(status=401)]
        with pytest.raises(ProviderError):
            await client.chat("another")
        assert client.usage == Usage(2, 20, 10, pytest.approx(40e-6), cached=1, failed=1) and "401" in caplog.text
    assert (reply.reply, reply.prompt_tokens, reply.completion_tokens) == ("4", 10, 5)
    assert reply.cost == pytest.approx(20e-6)
    sent = script.requests[0]
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert (sent["model"], sent["max_tokens"], sent["seed"], sent["temperature"]) == ("nano", 7, 3, 0.5)
    assert script.requests[1]["temperature"] == 0 and "seed" not in script.requests[1]
    assert script.headers[0]["Authorization"] == "Bearer thesecret"
    thinking = completion(None, reasoning_content="hm")
    thinking["choices"][0]["finish_reason"] = "length"
    del thinking["usage"]
    async with serving(Script(thinking, completion("<think>hm</think>\n\n4"))) as client:
        cut, inline = await client.chat("q"), await client.chat("another")
    assert (cut.reply, cut.finish_reason) == ("", "length")
    assert inline.reply == "4"


def refusing(*rules: tuple[Callable[[dict[str, Any]], object], str]) -> Handler:
    """An endpoint that answers, but not the requests that a rule holds for: HTTP 400 with its text."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else {"messages": [{"content": ""}]}
        answer.seen.append(body)  # type: ignore[attr-defined]
        for holds, text in rules:
            if holds(body):
                return web.json_response({"error": {"message": text}}, status=400)
        return web.json_response(completion())

    answer.seen = []  # type: ignore[attr-defined]
    return answer


async def test_a_field_that_the_endpoint_refuses_is_renamed_or_left_out_once(caplog: pytest.LogCaptureFixture) -> None:
    newer = refusing(
        (lambda body: "max_tokens" in body, "Unsupported: 'max_tokens'. Use 'max_completion_tokens'."),
        (lambda body: body.get("temperature", 1) != 1, "Unsupported value: 'temperature' supports only 1."),
    )
    either = refusing(
        (lambda body: {"temperature", "top_p"} <= body.keys(), "`temperature` and `top_p` exclude each other")
    )
    strict = refusing((lambda body: "seed" in body, "body.seed: extra inputs are not permitted"))
    for handler, settings, left, remarks in (
        (newer, {"temperature": 0.5, "max_tokens": 9}, {"model", "messages", "max_completion_tokens", "seed"}, 2),
        (either, {"temperature": 0.5, "top_p": 0.9}, {"model", "messages", "max_tokens", "temperature", "seed"}, 1),
        (strict, {"temperature": 0.5}, {"model", "messages", "max_tokens", "temperature"}, 1),
        (refusing(), {"temperature": 1, "top_p": 1}, {"model", "messages", "max_tokens", "seed"}, 0),
        (refusing(), {"leave_out": ["temperature"]}, {"model", "messages", "max_tokens", "seed"}, 0),
    ):  # fmt: skip
        caplog.clear()
        async with serving(handler, **settings) as client:
            for question in ("q", "another"):
                await client.chat(question, seed=7)
        assert set(handler.seen[-1]) == left  # type: ignore[attr-defined]
        assert len(handler.seen) == 2 + remarks, "found out by the first request"  # type: ignore[attr-defined]
        assert len(client.remarks) == len(caplog.records) == remarks


async def test_a_prompt_that_alone_is_refused_changes_nothing_and_is_told_from_a_refusing_endpoint() -> None:
    about = refusing((lambda body: "bomb" in body["messages"][-1]["content"], "flagged: a bomb at high temperature"))
    async with serving(about, temperature=0.5) as client:
        with pytest.raises(PromptRefused, match="it answers other prompts"):
            await client.chat("a bomb")
        await client.chat("q")
        assert "temperature" in about.seen[-1] and not client.remarks  # type: ignore[attr-defined]
    async with serving(refusing((lambda body: True, "no"))) as client:
        with pytest.raises(RequestRefused):
            await client.chat("q")


async def test_a_reply_without_text_or_withheld_is_no_reply_except_the_models_own_silence() -> None:
    for content, finish, usage, message, cause in TABLES["without text"]:
        reply = completion(content, usage, **message)
        reply["choices"][0]["finish_reason"] = finish
        script = Script(reply)
        async with serving(script, max_retries=1) as client:
            if cause is None:
                assert (await client.chat("q")).reply == ""
            else:
                with pytest.raises(ProviderError) as caught:
                    await client.chat("q")
                asked = {"empty": 4, "filter": 2}.get(cause, 2)  # a retry, the same with another prompt, or both
                assert (caught.value.cause, len(script.requests)) == (cause, asked), content
                assert not isinstance(caught.value, PromptRefused)
            with pytest.raises(ProviderError):  # an endpoint that says nothing to any prompt
                await client.check()


async def test_a_prompt_that_silences_or_withholds_the_reply_is_at_fault_if_others_are_answered() -> None:
    for finish in ("stop", "content_filter"):

        async def answer(request: web.Request, finish: str = finish) -> web.StreamResponse:
            provoked = "NOTHING" in (await request.json())["messages"][-1]["content"]
            reply = completion("" if provoked else "4", {}, **({"reasoning_content": "hm"} if provoked else {}))
            reply["choices"][0]["finish_reason"] = finish if provoked else "stop"
            return web.json_response(reply)

        async with serving(answer, max_retries=1) as client:
            assert (await client.chat("2 + 2?")).reply == "4"
            with pytest.raises(PromptRefused, match="it answers other prompts"):
                await client.chat("Think, then say NOTHING.")


async def test_a_server_that_retries_nothing_has_the_same_failures() -> None:
    class Here:
        root, places = "local", Places(1)

        async def ask(self, path: str, body: Any, parse: Callable[[str], Any], who: str = "") -> Any:
            return parse(json.dumps(completion(None)))

        async def aclose(self) -> None: ...

    client = LLMClient(EndpointConfig(base_url="http://127.0.0.1:9/v1"))
    client._servers, client._failed_at = [Here()], {"local": -math.inf}  # type: ignore[list-item]
    with pytest.raises(ProviderError, match="local: an empty reply") as caught:
        await client.chat("q")
    assert caught.value.cause == "empty"


async def test_tokens_that_are_not_counted_are_estimated_upwards_and_said() -> None:
    for usage, text, prompt, completed in TABLES["token counts"]:
        reply = {**completion(text), "usage": usage}
        async with serving(Script(reply), max_tokens=100) as client:
            got = await client.chat("2+2?")
            assert (got.prompt_tokens, got.completion_tokens) == (prompt, completed), usage
            assert [*map(bool, client.remarks)] == [True] * (usage != {"input_tokens": 10, "output_tokens": 5})


async def test_a_failure_names_its_cause_and_is_retried_only_where_that_can_help() -> None:
    """That a reply is given after failures that pass is in judging/test_judge."""
    wrong = []
    for status, text, cause, requests in TABLES["causes"]:
        script = Script(web.Response(status=status, text=text))
        error = await failure(script)
        attempts = f"after {requests} attempts" if requests == 3 else ";"
        if (error.cause, len(script.requests)) != (cause, requests) or text not in str(error):
            wrong.append((status, text, error.cause, len(script.requests), str(error)))
        elif attempts not in str(error) or "127.0.0.1" not in str(error) or "nano" not in str(error):
            wrong.append((status, text, str(error)))
    assert not wrong
    script = Script(web.Response(body=b'{"choices": "\xff"}'), completion("ok"))
    async with serving(script) as client:
        assert (await client.chat("q")).reply == "ok", "not UTF-8"


async def test_no_reply_ends_in_anything_but_a_provider_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_as_judge.llm.client._LONGEST_REPLY", 1 << 20)

    async def endless(request: web.Request, size: int = 100_000, pause: float = 0.0) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * size)
            await asyncio.sleep(pause)

    drip = partial(endless, size=1, pause=0.02)

    def reply(text: str | bytes, **headers: str) -> Script:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return Script(web.Response(body=text.encode() if isinstance(text, str) else text, headers=names))

    def usage(tokens: str) -> Script:
        return reply(f'{{"choices": [{{"message": {{"content": "x"}}}}], "usage": {{"prompt_tokens": {tokens}}}}}')

    handlers: dict[str, Handler] = {
        "endless": endless, "drip": drip, "empty": reply(b""), "null": reply("null"), "list": reply("[]"),
        "deep": reply("[" * 100_000), "long number": reply('{"choices": ' + "9" * 5000 + "}"),
        "infinite usage": usage("1e999"), "huge usage": usage("9" * 400), "negative usage": usage("-5"),
        "nan usage": usage("NaN"), "text usage": usage('"many"'), "list usage": usage("[1]"),
        "no message": reply('{"choices": [{}]}'), "choices": reply('{"choices": "x"}'),
        "content": reply('{"choices": [{"message": {"content": [1]}}]}'), "utf-16": reply("{}".encode("utf-16")),
        "hex": Script(web.Response(status=400, body=b"no", headers={"Content-Type": "text/plain; charset=hex"})),
    }  # fmt: skip
    wrong = {}
    for name, handler in handlers.items():
        async with serving(handler, timeout_s=0.5, max_retries=0) as client:
            try:
                wrong[name] = await client.chat("q")
            except ProviderError as error:
                if "127.0.0.1" not in str(error) or len(str(error)) > 800:
                    wrong[name] = error
    assert not wrong
    async with LLMClient(EndpointConfig(base_url="http://127.0.0.1:1/v1", max_retries=1)) as client:
        with pytest.raises(ProviderError, match="is the server running there"):
            await client.chat("q")
    assert "1,048,576 bytes" in str(await failure(endless, max_retries=0))
    assert "timeout_s = 0.2" in str(await failure(drip, max_retries=1, timeout_s=0.2))


async def test_wrong_addresses_keys_and_proxies_are_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("http://:8000/v1", "http://host:99999/v1", "http://host:x/v1"):
        with pytest.raises(ConfigError, match=r"--set executor\.base_url.*write http://HOST:PORT/v1"):
            load_config(None, [f"executor.base_url={address}"])
    with pytest.raises(ConfigError, match="http://host:port") as caught:
        LLMClient(EndpointConfig(base_url="https://a:b@host/v1"))
    assert "a:b" not in str(caught.value)
    for key in ("sk-a\nb", "schlüssel", "a\r\nX-Header: b"):
        with pytest.raises(ConfigError, match="api_key") as caught:
            LLMClient(EndpointConfig(api_key=key))
        assert key not in str(caught.value)


async def test_a_proxy_of_the_environment_is_used_and_its_password_never_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    async def ask(address: str = "http://example.org:81/v1") -> str:
        async with LLMClient(EndpointConfig(base_url=address, max_retries=0)) as client:
            return (await client.chat("q")).reply

    for proxy in ("gopher://nowhere", "http://user:p#w@host:3128", "http://host:x"):
        monkeypatch.setenv("ALL_PROXY", proxy)
        async with serving(Script(completion())) as client:  # this machine is reached directly
            assert (await client.chat("q")).reply == "4"
        with pytest.raises(ConfigError, match="ALL_PROXY") as caught:
            await ask()
        assert "p#w" not in str(caught.value)
    proxied, refused = Script(completion("by proxy")), Script(web.Response(status=407))
    for script in (proxied, refused):
        async with listening(script) as port:
            monkeypatch.setenv("ALL_PROXY", f"user:hunter2@127.0.0.1:{port}")
            if script is proxied:
                assert await ask() == "by proxy"
                monkeypatch.setenv("NO_PROXY", "example.org:81")
                with pytest.raises(ProviderError, match="no connection"):
                    await ask()
                monkeypatch.delenv("NO_PROXY")
            else:
                for address in ("http://example.org/v1", "https://example.org/v1"):
                    with pytest.raises(ProviderError, match="407") as error:
                        await ask(address)
                    assert "hunter2" not in str(error.value)
    assert len(proxied.requests) == 1


async def test_redirects_are_not_followed_and_waits_are_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "https://u:hunter2@example.org/v1/chat/completions"})

    error = await failure(elsewhere)
    assert error.cause == "model" and "HTTP 307: redirects to https://***@example.org/v1" in str(error)
    waits, sleep = list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.extend([seconds] if seconds else [])
        await sleep(0)

    monkeypatch.setattr("llm_as_judge.llm.transport.asyncio.sleep", noted)
    asked = ("7", "9999", "Mon, 01 Jan 2001 00:00:00 GMT", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "soon")
    for retry_after, least, most in zip(asked, (7, 60, 0, 0, 0), (14, 100, 0.01, 0.01, 0.01), strict=True):
        waits.clear()
        script = Script(web.Response(status=429, headers={"Retry-After": retry_after}), completion())
        async with serving(script, timeout_s=100.0) as client:
            assert (await client.chat("q")).reply == "4"
        assert len(waits) == 1 and least <= waits[0] <= most, retry_after


async def test_only_deterministic_requests_are_cached_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(completion())
    monkeypatch.setattr("llm_as_judge.llm.client._MOST_CACHED", 2)
    async with serving(script, max_tokens=5, reasoning_effort="low") as client:
        first, second = await client.chat("q", system="s"), await client.chat("q", system="s")
        assert (second.reply, second.prompt_tokens, len(script.requests)) == (first.reply, first.prompt_tokens, 1)
        for seed, requests in ((None, 2), (None, 3), (1, 4), (1, 4), (2, 5)):
            await client.chat("q", temperature=1.0, seed=seed)
            assert len(script.requests) == requests
        for question, requests in (("a", 6), ("b", 7), ("b", 7), ("c", 8), ("b", 8), ("a", 9)):  # "a" was the oldest
            await client.chat(question)
            assert len(script.requests) == requests, question


async def test_check_makes_one_real_completion_with_the_configured_model() -> None:
    script = Script(MODELS, completion())
    async with serving(script, max_tokens=9, reasoning_effort="low") as client:
        await client.check()
        await client.check()  # the script lists no models any more; the completion is not cached
    assert script.requests[0] == "/v1/models"
    sent = [request for request in script.requests if isinstance(request, dict)]
    assert len(sent) == 2
    assert (sent[0]["model"], sent[0]["max_tokens"], sent[0]["reasoning_effort"]) == ("nano", 9, "low")
    async with serving(Script(web.Response(status=404), completion())) as client:
        await client.check()  # a server without a list of models
    async with serving(Script(MODELS, web.Response(status=404, text="no such model")), model="nona") as client:
        with pytest.raises(ProviderError, match=r"127.*model nona.*no such model.*it serves nano, other") as wrong:
            await client.check()
    assert wrong.value.cause == "model"


async def test_too_long_a_prompt_is_no_refusal_and_keys_are_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    for text in TABLES["too long"]:
        error = await failure(Script(web.Response(status=400, text=text)))
        assert isinstance(error, PromptRefused) and error.cause == "context", text
    refused = await failure(Script(web.Response(status=400, text="response_format is not supported")))
    assert isinstance(refused, RequestRefused)
    caplog.set_level("DEBUG")
    for text in TABLES["keys"]:
        error = await failure(Script(web.Response(status=500, text=text), web.Response(status=401, text=text)))
        said = f"{error} {caplog.text}"
        assert "***" in str(error)
        assert not [part for part in ("secret", "Abc123", "xyz9", "eyJ") if part in said]
