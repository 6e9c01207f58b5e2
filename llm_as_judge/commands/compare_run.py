"""``llm-as-judge compare``: the policy beside other ways to answer the same problems with the same executor.

Every workflow's record is kept by the content of what decides it, so that a comparison that was interrupted goes on,
and a second one costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llm_as_judge.assembly.policy import adapter_digest
from llm_as_judge.assembly.problems import heldout_problems, open_problems
from llm_as_judge.assembly.progress import Progress, Silent
from llm_as_judge.assembly.recording import plan_records, policy_results, recording
from llm_as_judge.assembly.services import Services, open_services
from llm_as_judge.commands.peers_run import PEERS, Contest, Found
from llm_as_judge.config.schema import Config
from llm_as_judge.data.problems import read_problems
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.baselines import Row, measure, plan_author
from llm_as_judge.evaluation.comparison import TRAINED, UNTRAINED, Compared, compare, front
from llm_as_judge.evaluation.evaluate import evaluate
from llm_as_judge.evaluation.halving import Search, successive_halving
from llm_as_judge.evaluation.records import Ledger, Record
from llm_as_judge.files import write_json
from llm_as_judge.llm.client import Usage
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl.checkpoint import step_of, verify
from llm_as_judge.runlog import read_events, steps_of
from llm_as_judge.types import DOMAINS, Problem
from llm_as_judge.views.charts import comparison_chart
from llm_as_judge.views.comparison import comparison_table
from llm_as_judge.workflow.shapes import SHAPES, shapes_of, workflow

#: Training problems of each domain that a search may use.
_MOST = 2000


@dataclass(frozen=True, slots=True)
class Comparison:
    """``as_json`` is what the file of results holds; ``search`` is None where nobody said how long it may take."""

    config: Config
    checkpoint: Path | None
    problems: int
    rows: Sequence[Compared]
    search: Search | None
    peers: Mapping[str, Any]  # what each of them found, for JSON
    usage: Usage  # of the executor, now
    sandbox: str
    file: Path
    picture: Path

    @property
    def table(self) -> str:
        return comparison_table(self.rows)

    @property
    def fronts(self) -> dict[str, list[Row]]:
        """The Pareto front by executor tokens and, where the executor has a price, by cost."""
        fronts = {"tokens": front(self.rows, "tokens")}
        return fronts | ({"cost": front(self.rows, "cost")} if any(one.row.cost > 0 for one in self.rows) else {})

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.config.base_model.key,
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "adapter": adapter_digest(self.checkpoint),
            "executor": self.config.executor.model,
            "problems": self.problems,
            "rows": [row.as_json() for row in self.rows],
            "pareto_front": {kind: [row.name for row in rows] for kind, rows in self.fronts.items()},
            "search": self.search.as_json() if self.search else None,
            "peers": self.peers,
            "table": self.table,
            "picture": str(self.picture),
            "sandbox": self.sandbox,
            "usage": asdict(self.usage),
        }


async def run_comparison(
    config: Config,
    *,
    data: Path | None = None,
    checkpoint: Path | None = None,
    limit: int | None = None,
    tokens: int | None = None,
    peers: Sequence[str] = (),
    progress: Progress | None = None,
) -> Comparison:
    """All rows on the problems of ``data``, by default the held-out ones; the adapter in ``checkpoint`` is the trained
    policy, without one there is none.

    ``tokens`` of the executor are for each search on training problems, by default as many as the training took;
    ``peers`` of ``PEERS`` search besides. Raises ``ConfigError`` where they do and nobody knows how many tokens.
    """
    told = progress or Silent()
    problems = read_problems(data, limit) if data else heldout_problems(config.data, limit)
    source = data.name.partition(".")[0] if data else "heldout"
    plans = shapes_of(load_operators(config.workflow.operators))
    budget = tokens or (training_tokens(config, checkpoint) if checkpoint else None)
    if budget is None and peers:
        raise ConfigError(f"--peers {','.join(peers)}: how many tokens may the search take? Give --tokens N")
    if budget is None:
        told.say("no search for the best single workflow: how many tokens may it take? Give --tokens N")
    async with open_services(config, told, judging=any(PEERS[peer].judged for peer in peers)) as services:
        matrix = await measure(
            problems,
            services.official,
            lambda done: told.advance("workflows alone", done, len(plans)),
            plans,
            lambda plan: _ledger(config, source, problems, plan),
        )
        adapters = {UNTRAINED: None} | ({TRAINED: checkpoint} if checkpoint else {})
        policies = {
            name: await policy_results(name, config, source, problems, adapter, services, told)
            for name, adapter in adapters.items()
        }
        search, found = None, dict[str, Found]()
        if budget:
            training = _training(config)
            search = await _search(config, plans, training, budget, services, told)
            contest = Contest(config, source, problems, training, budget, services, told)
            found = {peer: await PEERS[peer].search(contest) for peer in peers}
        sandbox, usage = str(services.sandbox.describe()), services.usage()["executor"]
    measured = {one.name: one.records for one in found.values()}
    rows = compare(matrix, policies, search.winner if search else None, measured)
    file = config.output.results_dir / "comparison" / f"{config.base_model.key}_{source}.json"
    picture = file.with_suffix(".png")
    ways = {name: one.as_json() for name, one in found.items()}
    result = Comparison(config, checkpoint, len(problems), rows, search, ways, usage, sandbox, file, picture)
    comparison_chart(rows, result.fronts, picture)
    write_json(file, result.as_json())
    return result


def _ledger(config: Config, source: str, problems: Sequence[Problem], plan: str) -> AbstractContextManager[Ledger]:
    texts = [workflow(SHAPES[plan], domain) for domain in DOMAINS]
    return recording(plan_records(config, source, problems, plan, texts))


def _training(config: Config) -> list[Problem]:
    """Training problems in the order in which a run draws them, each once."""
    sampler = open_problems(config, measured=False).sampler
    drawn = sampler.sample(len(sampler.peek(_MOST)))
    return list({problem.question.id: problem for problem in drawn}.values())


async def _search(
    config: Config,
    plans: Sequence[str],
    problems: Sequence[Problem],
    budget: int,
    services: Services,
    progress: Progress,
) -> Search:
    spent: dict[str, int] = {}

    async def trial(plan: str, count: int) -> Sequence[Record]:
        with _ledger(config, "training", problems, plan) as ledger:
            records = (await evaluate(problems[:count], plan_author(plan), services.official, log=ledger)).records
        spent[plan] = sum(record.tokens for record in records)
        progress.advance("search, executor tokens", min(sum(spent.values()), budget), budget)
        return records

    return await successive_halving(plans, trial, budget, len(problems))


def training_tokens(config: Config, checkpoint: Path) -> int | None:
    """Executor tokens of the training that ``checkpoint`` is of, up to it; None where no log tells them."""
    log = config.output.log_dir / checkpoint.parent.parent.name / f"{checkpoint.parent.name}.jsonl"
    try:
        run = verify(checkpoint)
    except DataError:  # an adapter that was exported, or is another's
        return None
    if not run or run not in {event["id"] for event in read_events(log) if event["kind"] == "run"}:
        return None
    steps = [step for step in steps_of(log) if step["step"] <= step_of(checkpoint)]
    return round(sum(step["executor_tokens"] * step["rollouts"] for step in steps)) or None
