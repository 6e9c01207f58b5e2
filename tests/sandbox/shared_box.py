"""One sandbox on one event loop, shared by several tests; texts of workflows for it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from helpers import workflows

from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.sandbox.host import CodeResult, CodeVerdict, Sandbox

T = TypeVar("T")


class SharedBox:
    def __init__(self, config: SandboxConfig) -> None:
        self.loop = asyncio.new_event_loop()
        self.sandbox = Sandbox(config)

    def wait(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)

    def run(self, source: str, **kwargs: Any) -> CodeResult:
        return self.wait(self.sandbox.run_code(source, **kwargs))

    def verdict(self, solution: str, tests: str, entry_point: str = "f", **kwargs: Any) -> CodeVerdict:
        return self.wait(self.sandbox.verdict(solution, tests, entry_point, **kwargs))

    def verdicts(self, pairs: Iterable[tuple[str, str]]) -> list[CodeVerdict]:
        """Of pairs of a solution ``f`` and its tests, judged at the same time."""

        async def judge() -> list[CodeVerdict]:
            return list(await asyncio.gather(*(self.sandbox.verdict(s, t, "f") for s, t in pairs)))

        return self.wait(judge())

    def others(
        self, pairs: Iterable[tuple[str, str]], passed: bool, mode: str = "split", weak: bool = False
    ) -> list[tuple[tuple[str, str], CodeVerdict]]:
        """The pairs with another verdict, and that verdict."""
        pairs = list(pairs)
        found = zip(pairs, self.verdicts(pairs), strict=True)
        return [(pair, v) for pair, v in found if (v.passed, v.mode, v.weak) != (passed, mode, weak)]


@contextmanager
def shared_box(**settings: Any) -> Iterator[SharedBox]:
    box = SharedBox(SandboxConfig.model_validate(settings))
    box.wait(box.sandbox.start())
    yield box
    box.wait(box.sandbox.aclose())
    box.loop.close()


def in_sandbox(work: Callable[[Sandbox], Awaitable[T]], *, max_code_runs: int | None = None, **settings: Any) -> T:
    """Result of ``work`` in a sandbox of its own with these settings."""

    async def main() -> T:
        async with Sandbox(SandboxConfig.model_validate(settings), max_code_runs=max_code_runs) as sandbox:
            return await work(sandbox)

    return asyncio.run(main())


def workflow(*body: str, **more: str) -> str:
    """A workflow whose ``__call__`` has these lines, from line 8 on."""
    return workflows.workflow("\n".join(body), before="import asyncio, json, os, socket, struct, time", **more)
