"""One-off jobs on a configuration: evaluate a file of problems, solve one problem, run one workflow file."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from llm_as_judge.config.loading import resolve_model
from llm_as_judge.config.schema import Config
from llm_as_judge.evaluation.evaluate import Sampled, evaluate_policy, summarise
from llm_as_judge.rl.checkpoint import latest
from llm_as_judge.rl.policy import Policy
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import Execution, Question
from llm_as_judge.views.terminal import Line, result_table
from llm_as_judge.workbench import (
    Workbench,
    held_out_sampling,
    heldout_problems,
    load_policy,
    make_engine,
    problems_from,
)
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.repair import initialise_unbound

_FALLBACK = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str{entry}):
        result = await self.custom(input=problem, instruction="")
        return result['response'], 0.0
"""


def newest_checkpoint(config: Config) -> Path | None:
    """The last checkpoint of the configured run, or None before its first one."""
    output = config.output
    return latest(output.output_dir / resolve_model(config).key / output.run_name)


def _policy_name(checkpoint: Path | None) -> str:
    return f"policy with the adapter {checkpoint}" if checkpoint else "policy without an adapter (untrained)"


def _sampled(config: Config, bench: Workbench, policy: Policy) -> Sampled:
    return held_out_sampling(config, bench, policy, make_engine(config, policy, config.output.output_dir))


def run_evaluation(
    config: Config, *, data: Path | None, checkpoint: Path | None, limit: int | None, console: Console
) -> dict[str, Any]:
    """``llm-as-judge evaluate``: official metrics, written to ``results/evaluation/<model>_results.json`` too."""

    async def run() -> dict[str, Any]:
        problems = problems_from(data, limit) if data else heldout_problems(config)[:limit]
        async with Workbench(config) as bench:
            policy = load_policy(config, checkpoint)
            parts, sampled = bench.rollout_parts(bench.official), _sampled(config, bench, policy)
            rollouts = await evaluate_policy(problems, sampled, parts)
            sandbox = str(bench.sandbox.describe())
        summary = summarise(rollouts, sampled.special_tokens)
        console.print(_policy_name(checkpoint), highlight=False)
        console.print(
            result_table(
                [Line("policy", summary.overall, summary.domains, summary.valid_rate, summary.tokens)],
                summary.overall.n,
            )
        )
        name = next((p.question.dataset for p in problems if p.question.dataset), "custom")
        metrics = {"accuracy": summary.overall.value, **summary.as_json()}
        result = {
            "model": resolve_model(config).key,
            "checkpoint": str(checkpoint) if checkpoint else None,
            "datasets": [{"dataset": name, "metrics": metrics}],
            "sandbox": sandbox,
        }
        folder = config.output.results_dir / "evaluation"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{result['model']}_results.json").write_text(json.dumps(result, indent=2) + "\n")
        return result

    return asyncio.run(run())


def solve(
    config: Config,
    question: Question,
    *,
    checkpoint: Path | None,
    repair: bool,
    fallback: bool,
    console: Console,
) -> dict[str, Any]:
    """``llm-as-judge solve``: the policy writes a workflow for the question, which is run and traced."""

    async def run() -> dict[str, Any]:
        async with Workbench(config) as bench:
            sampled = _sampled(config, bench, load_policy(config, checkpoint))
            completion = sampled.engine.generate(
                [sampled.encode(question)], 1,
                temperature=sampled.temperature, max_new_tokens=sampled.max_new_tokens, seed=sampled.seed,
            )[0][0]  # fmt: skip
            source = extract_code(completion.text, sampled.special_tokens)
            repaired = fell_back = False
            if repair:
                mended = initialise_unbound(source, lint(source, entry_point=question.entry_point))
                source, repaired = mended, mended != source
            execution = await bench.runner.run(source, question)
            if fallback and execution.outcome != "finished":
                fell_back = True
                entry = ", entry_point: str" if question.entry_point else ""
                execution = await bench.runner.run(_FALLBACK.format(entry=entry), question)
        console.print(_policy_name(checkpoint), highlight=False)
        return {
            "checkpoint": str(checkpoint) if checkpoint else None,
            "answer": execution.answer,
            "outcome": execution.outcome,
            "error": execution.error,
            "repaired": repaired,
            "fallback": fell_back,
            "executor_tokens": execution.tokens,
            "workflow": source,
            "trace": [dataclasses.asdict(call) for call in execution.calls],
        }

    return asyncio.run(run())


def run_workflow_file(config: Config, source: str, question: Question) -> Execution:
    """``llm-as-judge workflow run``."""

    async def run() -> Execution:
        async with Workbench(config) as bench:
            return await bench.runner.run(source, question)

    return asyncio.run(run())
