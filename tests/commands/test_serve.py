"""``serve``: its handlers over a solver that fails on demand, and the official client against the embedded default."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer
from helpers.cli import CommandLine
from helpers.tables import tables
from helpers.web import post

from llm_as_judge.commands.serve_endpoint import ChatBody, Endpoint, read_request
from llm_as_judge.config.data import DataConfig
from llm_as_judge.embedded.server import MODEL_NAME
from llm_as_judge.errors import DataError, ProviderError
from llm_as_judge.llm.protocol import RequestError
from llm_as_judge.solver import Draw, Solution
from llm_as_judge.types import Execution, Question

TABLES = tables(__file__)

APPLES = "Tom has {} apples. He buys 4 more. How many apples does Tom have now?"
KEY = "sk-served"
GREEDY = {"seed": 0, "temperature": 0}


class Scripted:
    """A solver that behaves as the problem says."""

    config = SimpleNamespace(base_model=SimpleNamespace(key="m"), data=DataConfig())

    def __init__(self) -> None:
        self.asked: list[tuple[Question, Draw]] = []

    async def answer(
        self, question: Question, draw: Draw, *, on_workflow: Callable[[str], Awaitable[None]] | None, **_: bool
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
            case "wait if first":
                raise ProviderError("the second one fails")
            case "invalid":
                execution = Execution("invalid", None, error="E101 line 1")
                return Solution(None, "class Workflow: ...", execution, False)
        if on_workflow:
            await on_workflow("class Workflow: ...")
        return Solution(None, "class Workflow: ...", Execution("finished", "42"), False, 5, 6)


Served = tuple[TestClient[Any, Any], Scripted]


@pytest.fixture
async def scripted() -> AsyncIterator[Served]:
    solver = Scripted()
    app = Endpoint(solver, max_requests=4).app  # type: ignore[arg-type]
    async with TestClient(TestServer(app, handler_cancellation=True)) as client:
        yield client, solver


def body(text: str = APPLES.format(3), **more: Any) -> dict[str, Any]:
    return {"model": "nano", "messages": [{"role": "user", "content": text}], **more}


def chat(address: str, request: Any) -> tuple[int, Any]:
    return post(f"{address}/chat/completions", request, Authorization=f"Bearer {KEY}")


async def ask(client: TestClient[Any, Any], text: str, **more: Any) -> tuple[int, dict[str, Any]]:
    async with client.post("/v1/chat/completions", json=body(text, **{"model": "m", **more})) as reply:
        return reply.status, await reply.json()


async def test_the_fields_of_a_request_reach_the_solver(scripted: Served) -> None:
    client, solver = scripted
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


async def test_the_cause_of_a_failure_decides_the_status(scripted: Served) -> None:
    for text, status, kind, words in TABLES["causes"]:
        code, reply = await ask(scripted[0], text)
        assert (code, reply["error"]["type"]) == (status, kind), text
        assert words in reply["error"]["message"] and "secret" not in reply["error"]["message"]
    code, reply = await ask(scripted[0], "invalid")
    message = reply["choices"][0]["message"]
    assert code == 200 and message["content"] == "" and message["refusal"] == "invalid: E101 line 1"
    code, reply = await asyncio.wait_for(ask(scripted[0], "wait if first", n=2, seed=0), 10)
    assert code == 502 and "second one" in reply["error"]["message"], "a failing choice cancels the others"


async def test_a_stream_reports_failures_and_is_kept_open(scripted: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_as_judge.commands.serve_endpoint._ALIVE_S", 0.05)
    chat = "/v1/chat/completions"
    async with scripted[0].post(chat, json=body("provider down", model="m", stream=True)) as reply:
        lines = [line for line in (await reply.text()).splitlines() if line.startswith("data: ")]
    assert reply.status == 200 and json.loads(lines[-1][6:])["error"]["code"] == 502
    async with scripted[0].post(chat, json=body("wait", model="m", stream=True)) as reply:
        while not (line := await reply.content.readline()).startswith(b":"):
            assert line


async def test_requests_beyond_the_limit_are_refused_until_there_is_room(scripted: Served) -> None:
    client, solver = scripted
    waiting = [asyncio.create_task(ask(client, "wait", stream=bool(i))) for i in range(4)]
    while len(solver.asked) < 4:
        await asyncio.sleep(0.01)
    assert (await ask(client, "now"))[0] == 429
    for task in waiting:  # clients that disconnect
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    while (await (await client.get("/health")).json())["active"]:
        await asyncio.sleep(0.01)
    assert (await ask(client, "now", stop="2"))[1]["choices"][0]["message"]["content"] == "4"


def asking(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def test_wrong_fields_are_refused_by_name_by_both_servers(address: str) -> None:
    both = [*TABLES["both"], (asking("\ud800"), "surrogates")]
    nano = [*TABLES["nano"], (asking("é" * 5000), "tokens"), (asking("x " * 100_000), "200000 characters")]
    wrong = []
    for change, words in both + TABLES["own"]:
        try:
            read_request(body(**change), {"nano": "math"}, DataConfig())
            wrong.append((change, "accepted"))
        except RequestError as error:
            if words not in str(error) or len(str(error)) > 600 or error.status != (404 if "model" in change else 400):
                wrong.append((change, str(error)))
    for change, words in both + nano:
        status, reply = chat(address, body(**{"model": MODEL_NAME, **change}))
        if words not in reply["error"]["message"] or status != (404 if "model" in change else 400):
            wrong.append((change, str(reply)))
    assert not wrong


@pytest.fixture(scope="module")
def served(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    words = f"serve --untrained --port 0 --fallback --api-key {KEY} --max-requests 8 --set executor.base_url={address}"
    with subprocess.Popen(
        [sys.executable, "-m", "llm_as_judge", *words.split()], cwd=tmp_path_factory.mktemp("serve"), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        guard = threading.Timer(300, process.kill)
        guard.start()
        line = next(line for line in iter(process.stdout.readline, "") if "is served at" in line)
        guard.cancel()
        try:
            yield line.split()[4].rstrip(";")
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_the_official_client_gets_models_answers_and_streams(served: str) -> None:
    with openai.OpenAI(base_url=served, api_key=KEY, max_retries=0, timeout=300) as client:
        assert [model.id for model in client.models.list()] == ["nano", "nano:math", "nano:code", "nano:qa"]
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()
        made: Any = client.chat.completions
        reply = made.create(**body(**GREEDY))
        choice, spent = reply.choices[0], reply.choices[0].workflow["executor_tokens"]
        assert choice.message.content == "7" and choice.message.refusal is None and choice.finish_reason == "stop"
        assert "class Workflow" in choice.message.reasoning_content and choice.workflow["outcome"] == "finished"
        assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > spent > 0

        def written(**more: Any) -> list[str]:
            return [one.message.reasoning_content for one in made.create(**body(temperature=1.5, **more)).choices]

        first = written(n=4, seed=11)
        assert first == written(n=4, seed=11) and len(set(first)) > 1 and first[1] == written(seed=12)[0]
        chunks = list(made.create(**body(stream=True, stream_options={"include_usage": True}, **GREEDY)))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    reasoning = [i for i, delta in enumerate(deltas) if getattr(delta, "reasoning_content", None)]
    answers = [i for i, delta in enumerate(deltas) if delta.content]
    assert deltas[0].role == "assistant" and reasoning[0] < answers[0]
    assert "".join(delta.content or "" for delta in deltas) == "7"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0 and len({chunk.id for chunk in chunks}) == 1


def test_a_problem_that_is_too_long_is_refused_and_hostile_ones_are_only_problems(served: str) -> None:
    code, reply = chat(served, body("x " * 30_000))
    assert (code, reply["error"]["code"]) == (400, 400) and "tokens" in reply["error"]["message"]
    hostile = TABLES["hostile"]
    with ThreadPoolExecutor(4) as pool:
        assert [code for code, _ in pool.map(partial(chat, served), map(body, hostile))] == [200] * len(hostile)
    assert chat(served, body(**GREEDY))[1]["choices"][0]["message"]["content"] == "7"


def test_a_taken_port_and_an_empty_key_are_refused(
    here: Path, address: str, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["serve", "--untrained", "--set", f"executor.base_url={address}"]
    assert "--api-key is empty" in cli.refused(*command, "--host", "0.0.0.0", "--port", 0, "--api-key", "")
    monkeypatch.setattr("llm_as_judge.solver.Solver.__aenter__", None)  # refused before anything is loaded
    assert "cannot serve at a..b:0" in cli.refused(*command, "--host", "a..b", "--port", 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot serve at 127.0.0.1:{port}" in cli.refused(*command, "--port", port)


def test_the_page_names_every_status_and_field(root: Path) -> None:
    page = (root / "docs/using.md").read_text(encoding="utf-8")
    assert not [status for status in (400, 401, 404, 429, 502) if str(status) not in page]
    fields = set(ChatBody.model_fields) - {"response_format", "modalities", "stream_options", "max_completion_tokens"}
    assert not [name for name in fields if f"`{name}`" not in page]
