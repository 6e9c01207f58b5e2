"""What ``plan`` prints: the machines side by side, the tokens, and what had to be assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # it reads models' configurations
    from llm_as_judge.commands.plan_run import OnMachine, Plan

_TOKENS = {
    "generated": "written by the policy",
    "padded": "forwarded in padded rows",
    "unique": "forwarded with shared prefixes",
    "executor_input": "read by executor and judge",
    "executor_output": "written by executor and judge",
    "requests": "requests to them",
}


def plan_report(plan: Plan) -> Iterator[RenderableType]:
    yield Text(
        f"A policy of {plan.parameters / 1e9:.2f} billion parameters, {plan.workload.rollouts} workflows a step, "
        f"{plan.steps} steps"
    )
    yield _machines(plan)
    for name, found in plan.machines.items():
        if found.cards is None:
            yield Text(f"{name} is too small; what helps: {found.remedy}")
    yield _tokens(plan)
    yield Text(f"Assumed: {'; '.join(plan.assumed) or 'nothing'}.")


def _machines(plan: Plan) -> Table:
    table = Table(title="Memory, seconds of a step, and the run", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in plan.machines:
        table.add_column(name, justify="right", no_wrap=True)
    found = list(plan.machines.values())

    def row(label: str, cells: list[str]) -> None:
        table.add_row(label, *cells)

    row("fits", ["no" if one.cards is None else "yes" for one in found])
    for part in dict.fromkeys(part for one in found for part in one.parts):
        row(f"{part}, GB", [_memory(one, part) for one in found])
    for phase in dict.fromkeys(phase for one in found for phase in one.seconds):
        row(f"{phase}, s", [f"{one.seconds[phase]:.1f}" if phase in one.seconds else "-" for one in found])
    row("the run, hours", [f"{one.hours:.1f}" for one in found])
    row("the run, cost", [f"{one.cost:.2f}" for one in found])
    return table


def _memory(found: OnMachine, part: str) -> str:
    """With the card that it lies on, where there is a choice."""
    if part not in found.parts:
        return "-"
    card = "" if found.cards is None or part not in found.cards else f" (card {found.cards[part]})"
    return f"{found.parts[part]:.1f}{card}"


def _tokens(plan: Plan) -> Table:
    table = Table(title="Tokens", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for heading in ("a step", "the run"):
        table.add_column(heading, justify="right")
    for name, value in asdict(plan.workload.tokens()).items():
        table.add_row(_TOKENS.get(name, name), f"{value:,.0f}", f"{value * plan.steps:,.0f}")
    return table
