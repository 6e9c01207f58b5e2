"""A server of the OpenAI protocol that only takes time: log-normal seconds a call, so many calls at once.

The seconds of a call come from its text, so that equal calls take equally long whenever they come. ``GET /served``
gives the intervals in which calls were served, in seconds of the system's monotonic clock. Given completions in a JSON
file (``token_ids``, ``logprobs``), it samples these for ``/v1/completions``, at once.

    python benchmarks/endpoint.py --median 0.2 --sigma 1.0 --slots 24 [--completions FILE]
"""

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any
from urllib.request import urlopen

from aiohttp import web


def seconds(body: bytes, median: float, sigma: float) -> float:
    """Draw log-normal seconds by the content."""
    share = (int.from_bytes(hashlib.sha256(body).digest()[:6], "big") + 0.5) / 2**48
    return median * math.exp(sigma * NormalDist().inv_cdf(share))


async def serve(median: float, sigma: float, slots: int, completions: list[dict[str, Any]]) -> None:
    logging.getLogger("aiohttp.server").disabled = True  # callers hang up at the end of a run
    places = asyncio.Semaphore(slots)
    served: list[tuple[float, float]] = []
    turn = itertools.count()
    message = {"role": "assistant", "content": "The answer is 7."}
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    reply = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    async def chat(request: web.Request) -> web.Response:
        body = await request.read()
        async with places:
            begun = time.monotonic()
            await asyncio.sleep(seconds(body, median, sigma))
            served.append((begun, time.monotonic()))
        return web.Response(text=reply, content_type="application/json")

    async def complete(request: web.Request) -> web.Response:
        await request.read()
        found = completions[next(turn) % len(completions)]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": found["token_ids"],
            "logprobs": {"token_logprobs": found["logprobs"]},
            "finish_reason": "stop",
        }
        return web.json_response({"choices": [choice]})

    async def intervals(request: web.Request) -> web.Response:
        return web.json_response(served)

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "sleeper"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/served", intervals)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the parent is gone


@contextlib.contextmanager
def endpoint(median: float, sigma: float, slots: int, completions: Path | None = None) -> Iterator[str]:
    """Serve in a process of its own; gives the address, without ``/v1``."""
    command = [sys.executable, __file__, "--median", str(median), "--sigma", str(sigma), "--slots", str(slots)]
    command += ["--completions", str(completions)] if completions else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def served_s(address: str, begin: float, end: float) -> float:
    """Sum the seconds of service between two times, of all places together."""
    with urlopen(f"{address}/served") as reply:
        intervals = json.load(reply)
    return math.fsum(max(0.0, min(b, end) - max(a, begin)) for a, b in intervals)


def most_at_once(address: str) -> int:
    """Count the most calls that were served at one time."""
    with urlopen(f"{address}/served") as reply:
        intervals = json.load(reply)
    changes = sorted([(a, 1) for a, _ in intervals] + [(b, -1) for _, b in intervals])
    return max(itertools.accumulate((change for _, change in changes)), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--median", type=float, required=True)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--completions", type=Path)
    given = parser.parse_args()
    completions = json.loads(given.completions.read_text()) if given.completions else []
    asyncio.run(serve(given.median, given.sigma, given.slots, completions))


if __name__ == "__main__":
    main()
