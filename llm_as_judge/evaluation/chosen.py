"""Methods that are chosen on training problems, so that only they run on the held-out ones.

The full comparison runs every plan on every held-out problem, which a slow or dear executor forbids. Here six plans run
on a few training problems, and the best of them, the best of each domain, a single call and a random plan for each
problem are then measured.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random

from llm_as_judge.evaluation.baselines import Matrix, Row, row
from llm_as_judge.evaluation.comparison import BEST_SINGLE
from llm_as_judge.evaluation.evaluate import Given, evaluate
from llm_as_judge.evaluation.records import Ledger
from llm_as_judge.evaluation.voting import DRAFTS
from llm_as_judge.rl.rollout import RolloutParts
from llm_as_judge.types import Problem, Question
from llm_as_judge.workflow.shapes import SHAPES, workflow

#: The plans to choose from.
CANDIDATES = ("direct", "answer", "answer_review", "program", "code", "code_test")
#: Opens the ledger of a method with the given plans.
Log = Callable[[str, Sequence[str]], AbstractContextManager[Ledger]]
SINGLE, BY_DOMAIN, RANDOM = "single call", "best workflow of each domain on training problems", "random policy"


async def chosen_rows(
    training: Matrix, problems: Sequence[Problem], parts: RolloutParts, log: Log, untried: str = "answer"
) -> list[Row]:
    """The rows on ``problems``; a domain without training problems gets the plan ``untried``."""
    domains = list(dict.fromkeys(problem.question.domain for problem in problems))
    plans = list(training.evaluations)
    by_domain = training.best(lambda record: record.domain)
    methods: Mapping[str, Mapping[str, str]] = {
        SINGLE: {domain: DRAFTS[domain] for domain in domains},
        BEST_SINGLE: dict.fromkeys(domains, training.best()[""]),
        BY_DOMAIN: {domain: by_domain.get(domain, untried) for domain in domains},
        RANDOM: {},
    }
    rows = []
    for name, plan_of in methods.items():

        def text(question: Question, plan_of: Mapping[str, str] = plan_of) -> str:
            plan = plan_of.get(question.domain) or Random(f"plan/{question.id}").choice(plans)
            return workflow(SHAPES[plan], question.domain)

        with log(name, [f"{domain}: {plan}" for domain, plan in plan_of.items()] or plans) as ledger:
            records = await evaluate(problems, Given(text), parts, log=ledger)
        rows.append(row(name, [[record] for record in records], plan_of or dict.fromkeys(domains, "any")))
    return rows
