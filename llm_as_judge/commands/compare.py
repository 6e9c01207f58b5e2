"""``llm-as-judge compare``: the policy and other methods on the same problems with the same executor.

Records are reused, so an interrupted comparison continues and a repeated one runs nothing again.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llm_as_judge.assembly.progress import SILENT, Progress
from llm_as_judge.commands import cli
from llm_as_judge.errors import ConfigError
from llm_as_judge.files import write_json
from llm_as_judge.types import Problem

if TYPE_CHECKING:
    from llm_as_judge.config.schema import Config
    from llm_as_judge.evaluation.baselines import Matrix


async def run_comparison(
    config: "Config", *, data: Path | None = None, checkpoint: Path | None = None, limit: int | None = None,
    choose_on: int | None = None, progress: Progress = SILENT,
) -> dict[str, Any]:  # fmt: skip
    """Compare all methods on the problems of ``data`` (default: held-out ones), with the policy of ``checkpoint``.

    The best single workflow is chosen on as many training problems or, with ``choose_on``, on that many, and only
    chosen workflows run on ``problems``. Returns the content of the results file.
    """
    from llm_as_judge.assembly.check import check_before
    from llm_as_judge.assembly.policy import adapter_digest
    from llm_as_judge.assembly.problems import heldout_problems, open_problems
    from llm_as_judge.assembly.recording import method_ledger, policy_results, tell_untrained
    from llm_as_judge.assembly.services import open_services
    from llm_as_judge.data.problems import measured_problems
    from llm_as_judge.evaluation import comparison
    from llm_as_judge.evaluation.baselines import measure, row
    from llm_as_judge.evaluation.evaluate import evaluate
    from llm_as_judge.evaluation.intervals import mean
    from llm_as_judge.evaluation.voting import DRAFTS, TEMPERATURE, best_constants, constant_author, self_consistency
    from llm_as_judge.operators.catalog import load_operators
    from llm_as_judge.views.charts import comparison_chart
    from llm_as_judge.views.terminal import comparison_table
    from llm_as_judge.workflow.shapes import shapes_of

    problems = measured_problems(data, limit, config.data) if data else heldout_problems(config.data, limit)
    source = data.name.partition(".")[0] if data else "heldout"
    if config.generation.engine == "vllm" and config.local_roles() != config.local_roles(served=False):
        raise ConfigError(
            "compare with executor.model=policy needs one process for all policies: set generation.engine=local, or "
            "serve the executor and set executor.provider=openai"
        )
    usable = shapes_of(load_operators(config.workflow.operators))
    if choose_on is not None and not {*DRAFTS.values()} <= {*usable}:
        raise ConfigError("--choose-on needs AnswerGenerate and CustomCodeGenerate in workflow.operators")
    shapes = [shape for shape in usable if choose_on is None or shape in comparison.CANDIDATES]
    sampler = open_problems(config, measured=False).sampler  # in the order of a training run
    training = list({p.question.id: p for p in sampler.sample(choose_on or len(problems))}.values())
    log = partial(method_ledger, config, source, problems)
    async with open_services(config, progress, judging=bool(config.judge.own)) as services:
        await check_before([*problems, *training], services.sandbox, services.official.judge)
        await tell_untrained(config, [training, problems], services, progress)

        async def measured(source: str, problems: "Sequence[Problem]") -> "Matrix":
            advance = partial(progress.advance, f"single workflows, {source}")
            own_log = partial(method_ledger, config, source, problems)
            return await measure(problems, services.official, advance, shapes, own_log)

        tried = await measured("training", training)
        matrix = await measured(source, problems) if choose_on is None else None
        chosen = await comparison.chosen_rows(tried, problems, services.official, log) if choose_on else []
        constants = await best_constants(training, services.official.judge)
        with log("constant", sorted(constants.items())) as ledger:
            constant = await evaluate(problems, constant_author(constants), services.official, log=ledger)
        # A warm-up's adapter is where training starts from; without it, the policy is untrained.
        bare = config.model_copy(update={"model": config.model.model_copy(update={"adapter": None})})
        results = partial(policy_results, source=source, problems=problems, services=services, progress=progress)
        policies = {comparison.UNTRAINED: await results(comparison.UNTRAINED, bare)}
        if config.model.adapter:
            policies[comparison.WARMED_UP] = await results(comparison.WARMED_UP, config)
        if checkpoint:
            policies[comparison.TRAINED] = await results(comparison.TRAINED, config, checkpoint)
        rollouts = [rollout for group in [*policies.values()][-1] for rollout in group.rollouts]
        tokens = mean([r.weighed_tokens for r in rollouts if r.execution.outcome != "fault"])  # at equal cost
        warmer = replace(services.official, runner=services.runner.at_temperature(TEMPERATURE))
        drafts, voted = await self_consistency(
            problems, warmer, services.sandbox.run_code, tokens,
            lambda n: log("votes", [TEMPERATURE, n, *sorted(DRAFTS.items())]),
        )  # fmt: skip
        sandbox, usage = str(services.sandbox.describe()), services.usage()
    plans: dict[str, str] = {p.question.domain: f"{drafts} x {DRAFTS[p.question.kind]}" for p in problems}
    further = [*chosen, row(comparison.CONSTANT, constant, constants), row(comparison.SELF_CONSISTENCY, voted, plans)]
    rows = comparison.compare(matrix, policies, tried.best()[""], further)
    file = config.output.results_dir / "comparison" / f"{config.base_model.key}_{source}.json"
    picture = file.with_suffix(".png")
    fronts = {"tokens": comparison.front(rows, "tokens")}
    if any(one.row.cost > 0 for one in rows):  # the executor has a price
        fronts["cost"] = comparison.front(rows, "cost")
    comparison_chart(rows, fronts["tokens"], picture)
    result = {
        "model": config.base_model.key,
        "checkpoint": str(checkpoint) if checkpoint else None,
        "adapter": adapter_digest(checkpoint),
        "executor": config.executor_models,
        "problems": len(problems),
        "rows": [row.as_json() for row in rows],
        "pareto_front": {kind: [row.name for row in members] for kind, members in fronts.items()},
        "table": comparison_table(rows),
        "file": str(file),
        "picture": str(picture),
        "sandbox": sandbox,
        "usage": usage["executor"],
        **({"usage_by_executor": usage} if config.executors else {}),
    }
    write_json(file, result)
    return result


@cli.grouped
def compare(
    options: cli.ConfigOptions,
    adapter: cli.AdapterOptions,
    data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Problems: file, folder or hub:owner/name (default: configured ones)."),
    ] = None,
    limit: cli.Limit = None,
    choose_on: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, metavar="N", help="Choose among six workflows on N training problems; run only those."
        ),
    ] = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(metavar="PART,...", help="Parts left out: layer1, layer2, buffer, problem, rewards, reward.TERM."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --ablate: runs per part, each with its own seed (3).")
    ] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Compare the policy with other methods or ablations."""
    if seeds and ablate is None:
        raise ConfigError(f"--seeds {seeds} counts the runs of --ablate; for another seed: --set seed=N")
    from llm_as_judge.commands.ablate import run_ablation
    from llm_as_judge.views.terminal import TerminalProgress

    settings, console = options.load(repairs=adapter.repairs), cli.make_console(as_json)
    with TerminalProgress(console) as progress:
        if ablate is not None:
            given: dict[str, object] = {
                "--checkpoint": adapter.checkpoint, "--untrained": adapter.untrained,
                "--repairs": adapter.repairs, "--data": data, "--limit": limit, "--choose-on": choose_on,
            }  # fmt: skip
            if wrong := [name for name, value in given.items() if value]:
                raise ConfigError(f"--ablate trains its own policies: give it without {' and '.join(wrong)}")
            result = cli.run(run_ablation(settings, cli.split_names(ablate), seeds or 3, progress=progress))
        else:
            checkpoint = adapter.choose(settings)
            progress.say(cli.policy_name(checkpoint, settings))
            result = cli.run(
                run_comparison(
                    settings, data=data, checkpoint=checkpoint, limit=limit, choose_on=choose_on, progress=progress
                )
            )
    cli.show(console, f"figures {result['file']}")
    cli.print_result(result, as_json, result["table"])
