"""Requests in flight, bounded and spread over several addresses."""

import asyncio
from typing import Any

import pytest
from aiohttp import web
from test_client import completion, serving

from llm_as_judge.errors import ProviderError
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.llm.concurrency import Load, Places


class Server:
    """Answers after ``seconds``; refuses what is beyond ``limit`` at once, and everything when it is ``down``."""

    def __init__(self, seconds: float = 0.0, limit: int = 1000, down: bool = False) -> None:
        self.seconds, self.limit, self.down = seconds, limit, down
        self.asked = self.answered = self.refused = self.at_once = self.highest = 0

    async def __call__(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.down:
            return web.Response(status=503)
        if self.at_once >= self.limit:
            self.refused += 1
            return web.Response(status=429)
        self.at_once += 1
        self.highest = max(self.highest, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        self.answered += 1
        return web.json_response(completion())


async def test_concurrency_is_bounded_and_a_cancelled_request_takes_no_place() -> None:
    server = Server(0.05)
    async with serving(server, concurrency=3) as client:
        await asyncio.gather(*(client.chat(str(i)) for i in range(12)))
        load = client.load()
    assert server.highest == 3 and load.requests == 12
    assert load.used_s >= 12 * 0.05 and load.waited_s >= (3 + 6 + 9) * 0.05
    assert Load(1, 2.0, 3.0) + Load(1, 1.0, 1.0) == Load(2, 3.0, 4.0)
    places = Places(1)

    async def use() -> None:
        async with places.one():
            await asyncio.sleep(0.01)

    async with places.one():
        waiting = [asyncio.create_task(use()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait([waiting[0]])
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])
    assert all(task.cancelled() for task in waiting)
    await asyncio.wait_for(use(), 1)
    assert places.pressure == 0


async def test_refusals_halve_the_limit_once_and_no_request_is_lost() -> None:
    places, begun = Places(16), asyncio.get_running_loop().time()
    for _ in range(16):
        places.overloaded(begun)
    assert places.width == 8
    for _ in range(9):
        places.answered()
    assert int(places.width) == 9
    for _ in range(1000):
        places.answered()
    assert places.width == 16
    server = Server(0.02, limit=4)
    async with serving(server, concurrency=24, max_retries=8) as client:
        await asyncio.gather(*(client.chat(f"a {i}") for i in range(40)))
        server.refused = server.answered = 0
        await asyncio.gather(*(client.chat(f"b {i}") for i in range(150)))
    assert server.answered == 150 and server.refused < 75


async def test_the_least_busy_address_is_asked_and_another_one_if_it_fails() -> None:
    slow, fast = Server(60), Server()
    async with serving(fast) as other, serving(slow, more_urls=(other.config.base_url,), concurrency=4) as client:
        held = asyncio.create_task(client.chat("held"))
        while not slow.asked:
            await asyncio.sleep(0.01)
        for i in range(10):
            await client.chat(f"{i}")
        assert (slow.asked, fast.asked, client.load().requests) == (1, 10, 11)
        held.cancel()
    down, well = Server(down=True), Server()
    async with serving(well) as other, serving(down, more_urls=(other.config.base_url,), max_retries=1) as client:
        for i in range(6):
            assert (await client.chat(f"{i}")).reply == "4"
        assert (down.asked, well.asked) == (2, 6)
        assert client.usage.calls == 6 and client.usage.failed == 0
        with pytest.raises(ProviderError, match="503"):
            await client.check()  # every address must answer
    async with serving(down) as other, serving(down, more_urls=(other.config.base_url,), max_retries=0) as client:
        with pytest.raises(ProviderError, match="503"):
            await client.chat("?")
        assert client.usage.failed == 1


async def test_equal_requests_at_the_same_time_are_sent_once_and_end_with_their_last_caller() -> None:
    arrived, release, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    sent = list[int]()

    async def handler(request: web.Request) -> web.Response:
        sent.append((await request.json())["seed"])
        arrived.set()
        while not release.is_set() and not left.is_set():
            await asyncio.sleep(0.01)
            if request.transport is None:
                left.set()
        return web.json_response(completion())

    def ask(client: LLMClient, seed: int) -> asyncio.Task[Any]:
        return asyncio.create_task(client.chat("q", temperature=1.0, seed=seed))

    async with serving(handler) as client:
        one, two, other = ask(client, 1), ask(client, 1), ask(client, 2)
        await arrived.wait()
        one.cancel()  # the second caller still gets the reply
        await asyncio.sleep(0.05)
        release.set()
        assert (await two).reply == (await other).reply == "4"
        assert sorted(sent) == [1, 2]
        assert (client.usage.calls, client.usage.cached) == (2, 1)
        release.clear()
        arrived.clear()
        alone = ask(client, 3)
        await arrived.wait()
        alone.cancel()
        await asyncio.wait_for(left.wait(), 5)
