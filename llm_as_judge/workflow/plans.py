"""Ten plans for a workflow, each written out for every domain: the baselines, and what the nano policy starts from.

They are what a large model writes unasked; which of them suits which domain is not said anywhere. The first line
restates the domain and names the plan: a very small model needs the plan said before it starts to write code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from llm_as_judge.experience.buffer import normalise_code
from llm_as_judge.types import Domain

_ATTRIBUTES = {
    "Custom": "custom", "AnswerGenerate": "answer_generate", "CustomCodeGenerate": "code_generate",
    "ScEnsemble": "sc_ensemble", "MdEnsemble": "md_ensemble", "Programmer": "programmer", "Test": "test",
    "Format": "format", "Review": "review", "Revise": "revise",
}  # fmt: skip
_THREE_ANSWERS = (
    "solutions = []",
    "for i in range(3):",
    "    result = await self.answer_generate(input=problem)",
    "    solutions.append(result['answer'])",
)


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    operators: tuple[str, ...]
    body: tuple[str, ...]  # ``{entry}`` stands for the entry point of a code problem


PLANS: Mapping[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            "direct",
            ("Custom",),
            ("result = await self.custom(input=problem, instruction='')", "return result['response'], 0.0"),
        ),
        Plan(
            "think",
            ("Custom",),
            (
                "result = await self.custom(input=problem, instruction='Think step by step.')",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "answer",
            ("AnswerGenerate",),
            ("result = await self.answer_generate(input=problem)", "return result['answer'], 0.0"),
        ),
        Plan(
            "program",
            ("Programmer",),
            ("result = await self.programmer(problem=problem)", "return result['output'], 0.0"),
        ),
        Plan(
            "vote",
            ("AnswerGenerate", "ScEnsemble"),
            (
                *_THREE_ANSWERS,
                "result = await self.sc_ensemble(solutions=solutions, problem=problem)",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "ballot",
            ("AnswerGenerate", "MdEnsemble"),
            (
                *_THREE_ANSWERS,
                "result = await self.md_ensemble(solutions=solutions, problem=problem)",
                "return result['solution'], 0.0",
            ),
        ),
        Plan(
            "review",
            ("AnswerGenerate", "Review", "Revise"),
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
            ("Custom", "Format"),
            (
                "result = await self.custom(input=problem, instruction='Think step by step.')",
                "result = await self.format(problem=problem, solution=result['response'])",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "code",
            ("CustomCodeGenerate",),
            (
                "result = await self.code_generate(problem=problem, entry_point={entry}, instruction='')",
                "return result['response'], 0.0",
            ),
        ),
        Plan(
            "code_test",
            ("CustomCodeGenerate", "Test"),
            (
                "result = await self.code_generate(problem=problem, entry_point={entry}, instruction='')",
                "result = await self.test(problem=problem, solution=result['response'], entry_point={entry})",
                "return result['solution'], 0.0",
            ),
        ),
    )
}


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
    built = [f"        self.{_ATTRIBUTES[name]} = operator.{name}(self.llm)" for name in plan.operators]
    body = [f"        {line.format(entry=entry)}" for line in plan.body]
    lines = [
        f"# {domain}: {plan.name}",
        "class Workflow:",
        "    def __init__(self, name: str, llm_config, dataset):",
        "        self.llm = create_llm_instance(llm_config)",
        *built,
        "",
        f"    async def __call__(self, {parameters}):",
        *body,
    ]
    return "\n".join(lines)
