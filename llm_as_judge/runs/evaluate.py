"""``llm-as-judge evaluate``: how good the policy is on a file of problems, or on the configured held-out ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.config.schema import Config
from llm_as_judge.data.problems import read_problems
from llm_as_judge.evaluation.evaluate import Summary, evaluate
from llm_as_judge.files import write_json
from llm_as_judge.runs.policy import load_author
from llm_as_judge.runs.problems import heldout_problems
from llm_as_judge.runs.progress import Progress, Silent
from llm_as_judge.runs.services import open_services


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """``as_json`` is what ``results/evaluation/<model>_results.json`` holds."""

    model: str
    checkpoint: Path | None
    dataset: str
    summary: Summary
    sandbox: str

    def as_json(self) -> dict[str, Any]:
        metrics = {"accuracy": self.summary.overall.value, **self.summary.as_json()}
        return {
            "model": self.model,
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "datasets": [{"dataset": self.dataset, "metrics": metrics}],
            "sandbox": self.sandbox,
        }


async def run_evaluation(
    config: Config,
    *,
    data: Path | None = None,
    checkpoint: Path | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> EvaluationResult:
    """One workflow for each problem, judged by tests and rules; the results are written too."""
    progress = progress or Silent()
    problems = read_problems(data, limit) if data else heldout_problems(config.data)[:limit]
    async with open_services(config) as services:
        author, watch = load_author(config, checkpoint), progress

        def advance(done: int) -> None:
            watch.advance("problems", done, len(problems))

        evaluation = await evaluate(problems, author, services.official, advance)
        sandbox = str(services.sandbox.describe())
    dataset = next((p.question.dataset for p in problems if p.question.dataset), "custom")
    result = EvaluationResult(config.base_model.key, checkpoint, dataset, evaluation.summary, sandbox)
    write_json(config.output.results_dir / "evaluation" / f"{result.model}_results.json", result.as_json())
    return result
