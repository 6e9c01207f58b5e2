"""Places at a server: bounded, first come first served, fewer where it is overloaded, and their use is counted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from test_llm import completion, serving

from llm_as_judge.places import Load, Places


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
        assert client._transport.places.width < 12
        refused = answered = 0
        await asyncio.gather(*(client.chat(f"b {i}") for i in range(150)))
    assert answered == 150
    assert refused < 75
