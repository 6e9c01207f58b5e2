"""What one call of an LLM endpoint costs the caller: our client beside the ``openai`` package on the same aiohttp.

Rounds of some thousand calls, interleaved, against a server in another process that answers at once; CPU seconds of
the calling process, the median. The package is asked as its documentation says, and by its bare ``post``. Our client
stays as long as the package costs half a millisecond more a call.

    python benchmarks/client.py [--json] [--rounds 7] [--calls 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import Claim, median_seconds, report

from llm_as_judge.config.schema import EndpointConfig
from llm_as_judge.llm.client import LLMClient

CONCURRENCY = 32
PROMPT = "Solve the following problem step by step. " * 10
SERVER = """
import asyncio, json
from aiohttp import web
choice = {"index": 0, "message": {"role": "assistant", "content": "The answer is 7. " * 10}, "finish_reason": "stop"}
usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "nano", "choices": [choice], "usage": usage}
text = json.dumps(reply)

async def answer(request):
    await request.read()
    return web.Response(text=text, content_type="application/json")

async def main():
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def repeat(ask: Callable[[str], Awaitable[str]], calls: int) -> None:
    for text in await asyncio.gather(*(ask(f"{PROMPT}{number}") for number in range(calls))):
        assert text.startswith("The answer")


def ours(address: str, calls: int) -> None:
    async def run() -> None:
        config = EndpointConfig(base_url=address, temperature=1.0, concurrency=CONCURRENCY)
        async with LLMClient(config) as client:

            async def ask(prompt: str) -> str:
                return (await client.chat(prompt)).text

            await repeat(ask, calls)

    asyncio.run(run())


def packaged(address: str, calls: int, bare: bool) -> None:
    import httpx2
    from openai import AsyncOpenAI, DefaultAioHttpClient

    async def run() -> None:
        client = AsyncOpenAI(base_url=address, api_key="sk", max_retries=0, http_client=DefaultAioHttpClient())
        slots = asyncio.Semaphore(CONCURRENCY)

        async def ask(prompt: str) -> str:
            message = {"role": "user", "content": prompt}
            request = {"model": "nano", "messages": [message], "temperature": 1.0, "top_p": 1.0, "max_tokens": 2048}
            async with slots:
                if bare:
                    response = await client.post("/chat/completions", body=request, cast_to=httpx2.Response)
                    return str(json.loads(response.content)["choices"][0]["message"]["content"])
                reply = await client.chat.completions.create(**request)
                return str(reply.choices[0].message.content)

        async with client:
            await repeat(ask, calls)

    asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    calls = options.calls
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
            seconds = median_seconds(
                {
                    "our client": lambda: ours(address, calls),
                    "openai: chat.completions.create": lambda: packaged(address, calls, bare=False),
                    "openai: post": lambda: packaged(address, calls, bare=True),
                },
                options.rounds,
            )
        finally:
            server.kill()
    spent = {name: 1000 * value / calls for name, value in seconds.items()}
    saved = spent["openai: chat.completions.create"] - spent["our client"]
    rows = {name: f"{value:.3f} ms CPU a call" for name, value in spent.items()}
    claims = {"milliseconds a call that our client saves": Claim(saved, 0.5)}
    report(f"{options.rounds} rounds of {calls} calls, {CONCURRENCY} at once", rows, claims, options.json)


if __name__ == "__main__":
    main()
