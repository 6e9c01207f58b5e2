"""The endpoint of ``serve`` over a solver that fails on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from llm_as_judge.commands.serve_endpoint import Endpoint, ServeOptions
from llm_as_judge.errors import DataError, ProviderError
from llm_as_judge.solver import Draw, Solution
from llm_as_judge.types import Execution, Question


class Scripted:
    """Behaves as the problem says."""

    def __init__(self) -> None:
        self.asked: list[tuple[Question, Draw]] = []

    async def answer(
        self, question: Question, draw: Draw, *, repair: bool, fallback: bool, on_workflow: Callable[[str], None]
    ) -> Solution:
        self.asked.append((question, draw))
        match question.text:
            case "provider down":
                raise ProviderError("http://x/v1 does not answer")
            case "too long":
                raise DataError("the problem makes a prompt of 9 tokens")
            case "bug":
                raise ZeroDivisionError("a secret detail")
            case "wait":
                await asyncio.sleep(60)
            case "wait if first" if draw.seed == 0:
                await asyncio.sleep(60)
        on_workflow("class Workflow: ...")
        if question.text == "invalid":
            return Solution(None, "class Workflow: ...", Execution("invalid", None, error="E101 line 1"), False, False)
        if question.text == "wait if first":
            raise ProviderError("the second one fails")
        return Solution(None, "class Workflow: ...", Execution("finished", "42"), False, False, 5, 6)


@pytest.fixture
async def served() -> AsyncIterator[tuple[TestClient[Any, Any], Scripted]]:
    solver = Scripted()
    app = Endpoint(solver, "m", ServeOptions(max_requests=4)).application()  # type: ignore[arg-type]
    async with TestClient(TestServer(app, handler_cancellation=True)) as client:
        yield client, solver


async def ask(client: TestClient[Any, Any], text: str, **more: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    async with client.post("/v1/chat/completions", json=body) as reply:
        return reply.status, await reply.json()


async def test_the_fields_of_a_request_reach_the_solver(served: Any) -> None:
    client, solver = served
    fields = {"context": "Anna lives in Paris.", "temperature": 0.5, "top_p": 0.9, "seed": 7}
    assert (await ask(client, "where?", model="m:qa", **fields))[0] == 200
    assert solver.asked[-1] == (Question("request", "where?", "qa", "Anna lives in Paris."), Draw(0.5, 0.9, 7))
    code = {"domain": "code", "entry_point": "f", "public_tests": ["assert f(2) == 5"]}
    assert (await ask(client, "add 3", **code))[0] == 200
    question = Question("request", "add 3", "code", entry_point="f", public_tests=("assert f(2) == 5",))
    assert solver.asked[-1] == (question, Draw())
    turns = [("system", "Be short."), ("user", "2+2?"), ("assistant", "4"), ("user", "And 3 more?")]
    messages = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in turns]
    assert (await ask(client, "", messages=messages))[0] == 200
    assert solver.asked[-1][0].text == "Be short.\n\nUser: 2+2?\n\nAssistant: 4\n\nUser: And 3 more?"


async def test_the_cause_of_a_failure_decides_the_status(served: Any) -> None:
    for text, status, kind, words in (
        ("provider down", 502, "server_error", "does not answer"),
        ("too long", 400, "invalid_request_error", "9 tokens"),
        ("bug", 500, "server_error", "log says why"),
    ):
        code, reply = await ask(served[0], text)
        assert (code, reply["error"]["type"]) == (status, kind), text
        assert words in reply["error"]["message"] and "secret" not in reply["error"]["message"]
    code, reply = await ask(served[0], "invalid")
    message = reply["choices"][0]["message"]
    assert code == 200 and message["content"] == "" and message["refusal"] == "invalid: E101 line 1"


async def test_a_failure_within_a_stream_is_an_event(served: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "provider down"}], "stream": True}
    async with served[0].post("/v1/chat/completions", json=body) as reply:
        lines = [line for line in (await reply.text()).splitlines() if line.startswith("data: ")]
    assert reply.status == 200 and json.loads(lines[-1][6:])["error"]["code"] == 502
    openai = pytest.importorskip("openai", reason="the openai client is a peer: make peers installs it")
    address = str(served[0].make_url("/v1"))
    async with openai.AsyncOpenAI(base_url=address, api_key="x", max_retries=0) as client:
        with pytest.raises(openai.APIError, match="does not answer"):
            async for _ in await client.chat.completions.create(**body):
                pass


async def test_a_failing_choice_cancels_the_others(served: Any) -> None:
    code, reply = await asyncio.wait_for(ask(served[0], "wait if first", n=2, seed=0), 10)
    assert code == 502 and "second one" in reply["error"]["message"]


async def test_requests_beyond_the_limit_are_refused_until_there_is_room(served: Any) -> None:
    client, solver = served
    waiting = [asyncio.create_task(ask(client, "wait")) for _ in range(4)]
    while len(solver.asked) < 4:
        await asyncio.sleep(0.01)
    assert (await ask(client, "now"))[0] == 429
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    while (await (await client.get("/health")).json())["active"]:
        await asyncio.sleep(0.01)
    assert (await ask(client, "now", stop="2"))[1]["choices"][0]["message"]["content"] == "4"


async def test_a_waiting_stream_is_kept_open_by_comments(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_as_judge.commands.serve_endpoint._ALIVE_S", 0.05)
    body = {"model": "m", "messages": [{"role": "user", "content": "wait"}], "stream": True}
    async with served[0].post("/v1/chat/completions", json=body) as reply:
        while not (line := await reply.content.readline()).startswith(b":"):
            assert line
