"""Answers from a trained policy, for programs.

async with Solver("config/training.yaml") as solver:
    solution = await solver.solve("Tom has 3 apples. He buys 4 more. How many apples does Tom have now?")
    print(solution.answer, solution.workflow)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from llm_as_judge.assembly.policy import newest_checkpoint
from llm_as_judge.commands.solve_run import REPEATABLE, Draw, Solution, open_solver
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import DOMAINS, Domain, Question

__all__ = ["Draw", "Solution", "Solver"]


class Solver:
    """Policy, executor and sandbox, open within ``async with``; ``solve`` may be awaited many times at once.

    Args:
        config_path: a YAML file of settings; None is the default, the embedded models.
        overrides: ``name=value`` settings.
        checkpoint: folder of an adapter; None is the newest of the configured run, or no adapter where there is none.
    """

    def __init__(
        self,
        config_path: str | Path | None = None,
        overrides: Sequence[str] = (),
        *,
        checkpoint: str | Path | None = None,
        config: Config | None = None,
    ) -> None:
        self.config = config or load_config(config_path or "config/embedded.yaml", overrides)
        self.checkpoint = Path(checkpoint) if checkpoint else newest_checkpoint(self.config)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Solver:
        self._solver = await self._open.enter_async_context(open_solver(self.config, self.checkpoint))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def solve(
        self,
        problem: str,
        domain: Domain = "math",
        *,
        context: str = "",
        entry_point: str | None = None,
        public_tests: Sequence[str] = (),
        draw: Draw = REPEATABLE,
        repair: bool = False,
        fallback: bool = False,
    ) -> Solution:
        """A workflow for ``problem``, and its answer; ``answer`` is None where the workflow fails.

        ``entry_point`` is the name of the function that a code problem asks for, ``public_tests`` are assert statements
        that call it. With ``fallback`` the executor answers directly where the workflow fails. Raises ``ConfigError``,
        ``DataError`` for a problem that is empty or too long, ``InfrastructureError`` where the executor fails.
        """
        if domain not in DOMAINS:
            raise ConfigError(f"domain {domain!r}: there are {', '.join(DOMAINS)}")
        if not problem.strip():
            raise DataError("the problem is empty; give its text")
        question = Question("program", problem, domain, context, entry_point, tuple(public_tests))
        return await self._solver.solve(question, draw, repair=repair, fallback=fallback)
