"""Places at a server: bounded, first come first served, fewer where it is overloaded, and their use is counted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from test_llm import completion, serving

from llm_as_judge.errors import ProviderError
from llm_as_judge.llm.places import Load, Places


async def test_places_are_given_in_the_order_of_asking() -> None:
    places, order, most = Places(2), list[int](), 0

    async def work(number: int) -> None:
        nonlocal most
        async with places.one():
            order.append(number)
            most = max(most, places.width, places._used)
            await asyncio.sleep(0.01)

    await asyncio.gather(*map(work, range(7)))
    assert order == list(range(7)) and most == 2


async def test_use_and_waiting_are_counted_while_they_last() -> None:
    places = Places(2)

    async def work() -> None:
        async with places.one():
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0.1)
    half = places.load()
    assert half.requests == 2 and half.used_s == pytest.approx(0.2, abs=0.08)
    await asyncio.gather(*tasks)
    load = places.load()
    assert load.requests == 3
    assert load.used_s == pytest.approx(0.6, abs=0.2) and load.waited_s == pytest.approx(0.2, abs=0.1)
    await asyncio.sleep(0.05)
    assert places.load() == load
    assert Load(1, 2.0, 3.0) + Load(1, 1.0, 1.0) == Load(2, 3.0, 4.0)


async def test_who_gives_up_waiting_takes_no_place() -> None:
    places = Places(1)
    async with places.one():
        first, second = (asyncio.create_task(_use(places)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
    second.cancel()  # it was given the place and has not taken it yet
    await asyncio.wait([second])
    assert first.cancelled() and second.cancelled()
    await asyncio.wait_for(_use(places), 1)
    assert places._used == 0


async def _use(places: Places) -> None:
    async with places.one():
        await asyncio.sleep(0.01)


async def test_many_failures_of_one_moment_halve_the_places_once_and_answers_bring_them_back() -> None:
    places = Places(16)
    async with AsyncExitStack() as stack:
        begun = [await stack.enter_async_context(places.one()) for _ in range(16)]
    assert [places.overloaded(at) for at in begun] == [True] + [False] * 15
    assert places.width == 8
    for _ in range(9):
        places.answered()
    assert places.width == 9
    for _ in range(1000):
        places.answered()
    assert places.width == 16
    for _ in range(9):
        async with places.one() as at:
            pass
        places.overloaded(at)
        await asyncio.sleep(0.001)
    assert places.width == 1


async def test_a_server_that_takes_only_so_many_gets_about_as_many() -> None:
    """It refuses what is beyond four at once; 24 places are far too many."""
    at_once, refused, answered = 0, 0, 0

    async def busy(request: web.Request) -> web.Response:
        nonlocal at_once, refused, answered
        if at_once >= 4:
            refused += 1
            return web.Response(status=429)
        at_once += 1
        await asyncio.sleep(0.02)
        at_once -= 1
        answered += 1
        return web.json_response(completion())

    async with serving(busy, concurrency=24, max_retries=50) as client:
        await asyncio.gather(*(client.chat(f"a {i}") for i in range(40)))
        assert client._servers[0].places.width < 12
        refused = answered = 0
        await asyncio.gather(*(client.chat(f"b {i}") for i in range(150)))
    assert answered == 150
    assert refused < 75


class Counting:
    """Answers after ``seconds``, at once with an error where it is ``down``."""

    def __init__(self, seconds: float = 0.0, down: bool = False) -> None:
        self.seconds, self.down, self.asked = seconds, down, 0

    async def __call__(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.down:
            return web.Response(status=503)
        await asyncio.sleep(self.seconds)
        return web.json_response(completion())


async def test_each_request_goes_to_the_least_busy_of_several_addresses() -> None:
    fast, slow = Counting(0.02), Counting(0.1)
    async with serving(slow) as other, serving(fast, more_urls=(other.config.base_url,), concurrency=4) as client:

        async def ask(worker: int) -> None:
            for i in range(15):
                await client.chat(f"{worker} {i}")

        await asyncio.gather(*map(ask, range(4)))
        assert client.load().requests == 60
    assert fast.asked + slow.asked == 60
    assert 1.5 * slow.asked < fast.asked and slow.asked >= 4


async def test_where_one_address_fails_another_answers_and_is_preferred() -> None:
    down, well = Counting(down=True), Counting()
    async with serving(well) as other, serving(down, more_urls=(other.config.base_url,), max_retries=1) as client:
        for i in range(6):
            assert (await client.chat(f"{i}")).text == "4"
        assert (down.asked, well.asked) == (2, 6)
        assert client.usage.calls == 6 and client.usage.failed == 0
        with pytest.raises(ProviderError, match="503"):
            await client.check()  # each address is to answer


async def test_where_all_addresses_fail_the_last_error_is_told() -> None:
    first, second = Counting(down=True), Counting(down=True)
    async with serving(second) as other, serving(first, more_urls=(other.config.base_url,), max_retries=0) as client:
        with pytest.raises(ProviderError, match="503"):
            await client.chat("?")
        assert client.usage.failed == first.asked == second.asked == 1
