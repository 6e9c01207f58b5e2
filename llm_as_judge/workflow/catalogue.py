"""Ten plans for a workflow, each written out for every domain: the baselines, and what the nano policy starts from.

They are what a large model writes unasked; which of them suits which domain is not said anywhere. A comment restates
the domain and names the plan where the plans part, the operator peculiar to a plan is built first: a very small model
needs the plan said right before it acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from llm_as_judge.types import Domain
from llm_as_judge.workflow.shape import normalise_code

_THREE_ANSWERS = (
    "solutions = []",
    "for i in range(3):",
    "    result = await self.answer_generate(input=problem)",
    "    solutions.append(result['answer'])",
)


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    operators: Mapping[str, str]  # attribute -> operator
    body: tuple[str, ...]  # ``{entry}`` stands for the entry point of a code problem


PLANS: Mapping[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            "direct",
            {"custom": "Custom"},
            ("result = await self.custom(input=problem, instruction='')", "return result['response'], 0.0"),
        ),
        Plan(
            "think",
            {"reasoning": "Custom"},
            (
                "result = await self.reasoning(input=problem, instruction='Think step by step.')",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "answer",
            {"answer_generate": "AnswerGenerate"},
            ("result = await self.answer_generate(input=problem)", "return result['answer'], 0.0"),
        ),
        Plan(
            "program",
            {"programmer": "Programmer"},
            ("result = await self.programmer(problem=problem)", "return result['output'], 0.0"),
        ),
        Plan(
            "vote",
            {"sc_ensemble": "ScEnsemble", "answer_generate": "AnswerGenerate"},
            (
                *_THREE_ANSWERS,
                "result = await self.sc_ensemble(solutions=solutions, problem=problem)",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "ballot",
            {"md_ensemble": "MdEnsemble", "answer_generate": "AnswerGenerate"},
            (
                *_THREE_ANSWERS,
                "result = await self.md_ensemble(solutions=solutions, problem=problem)",
                "return result['solution'], 0.0",
            ),
        ),
        Plan(
            "review",
            {"review": "Review", "revise": "Revise", "answer_generate": "AnswerGenerate"},
            (
                "result = await self.answer_generate(input=problem)",
                "answer = result['answer']",
                "check = await self.review(problem=problem, solution=answer)",
                "if not check['review_result']:",
                "    result = await self.revise(problem=problem, solution=answer, feedback=check['feedback'])",
                "    answer = result['solution']",
                "return answer, 0.0",
            ),
        ),
        Plan(
            "format",
            {"format": "Format", "reasoning": "Custom"},
            (
                "result = await self.reasoning(input=problem, instruction='Think step by step.')",
                "result = await self.format(problem=problem, solution=result['response'])",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "code",
            {"code_generate": "CustomCodeGenerate"},
            (
                "result = await self.code_generate(problem=problem, entry_point={entry}, instruction='')",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "code_test",
            {"test": "Test", "code_generate": "CustomCodeGenerate"},
            (
                "result = await self.code_generate(problem=problem, entry_point={entry}, instruction='')",
                "result = await self.test(problem=problem, solution=result['response'], entry_point={entry})",
                "return result['solution'], 0.0",
            ),
        ),
    )
}


def plans_of(operators: Collection[str]) -> list[str]:
    """The names of the plans that call none but ``operators``."""
    return [name for name, plan in PLANS.items() if set(plan.operators.values()) <= set(operators)]


@dataclass(frozen=True, slots=True)
class Example:
    """A workflow for another problem of the same domain, to be shown to the policy."""

    problem: str
    workflow: str


#: A problem of each domain, and the plans that show most of what a workflow can be, the best first.
_EXAMPLES: Mapping[Domain, tuple[str, tuple[str, ...]]] = {
    "math": (
        "A baker packs 12 boxes of 8 rolls and sells three quarters of them. How many rolls are left?",
        ("vote", "answer", "program", "think"),
    ),
    "code": (
        "Write a function that returns the words that occur more than once in a text, sorted.\n"
        "entry_point: repeated_words",
        ("code_test", "code", "think"),
    ),
    "qa": (
        "Context: The Ilse rises near Altdorf and joins the Main at Ochsenfurt.\nQuestion: Where does the Ilse end?",
        ("review", "format", "answer", "think"),
    ),
}


def example(domain: Domain, operators: Collection[str]) -> list[Example]:
    """What is shown of a domain before there are workflows that did well: at most one, of the ``operators`` alone."""
    problem, names = _EXAMPLES[domain]
    for plan in (PLANS[name] for name in names):
        if set(plan.operators.values()) <= set(operators):
            return [Example(problem, normalise_code(workflow(plan, domain)))]
    return []


@cache
def _named(domain: Domain) -> Mapping[str, str]:
    """Normalised text of each plan for ``domain`` -> its name."""
    return {normalise_code(workflow(plan, domain)): plan.name for plan in PLANS.values()}


def name_of(source: str, domain: Domain) -> str:
    """The plan that ``source`` is but for comments and layout; ``""`` for none."""
    return _named(domain).get(normalise_code(source), "")


def workflow(plan: Plan, domain: Domain) -> str:
    """The plan as a workflow for problems of ``domain``."""
    entry = "entry_point" if domain == "code" else "'solve'"
    parameters = "problem: str, entry_point: str" if domain == "code" else "problem: str"
    built = [f"        self.{attribute} = operator.{name}(self.llm)" for attribute, name in plan.operators.items()]
    body = [f"        {line.format(entry=entry)}" for line in plan.body]
    lines = [
        "class Workflow:",
        "    def __init__(self, name: str, llm_config, dataset):",
        "        self.llm = create_llm_instance(llm_config)",
        f"        # {domain}: {plan.name}",
        *built,
        "",
        f"    async def __call__(self, {parameters}):",
        *body,
    ]
    return "\n".join(lines)
