"""``--repair`` binds variables that may be unbound and touches nothing else."""

from __future__ import annotations

import pytest

from llm_as_judge.workflow.catalogue import PLANS, workflow
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.repair import initialise_unbound

HEAD = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem: str):
"""


def with_body(*lines: str) -> str:
    return HEAD + "\n".join(f"        {line}" for line in lines) + "\n"


def repaired(source: str) -> str:
    return initialise_unbound(source, lint(source))


BRANCH = with_body(
    "if len(problem) > 3:",
    "    result = await self.custom(input=problem, instruction='')",
    "    answer = result['response']",
    "return answer, 0.0",
)
LOOP = with_body(
    "for part in problem.split():",
    "    answer = part",
    "return answer, 0.0",
)


@pytest.mark.parametrize(("source", "code"), [(BRANCH, "W301"), (LOOP, "W302")])
def test_the_variable_is_bound_first_and_lint_is_content(source: str, code: str) -> None:
    assert code in [f.code for f in lint(source)]
    text = repaired(source)
    assert text.splitlines()[6] == '        answer = ""'
    assert not {"W301", "W302"} & {f.code for f in lint(text)}


def test_every_other_line_stays_as_it_is() -> None:
    lines = repaired(BRANCH).splitlines()
    del lines[6]
    assert lines == BRANCH.splitlines()


def test_several_variables_are_bound_once_each() -> None:
    source = with_body("if problem:", "    a = b = 'x'", "print(a)", "print(a)", "return b, 0.0")
    lines = [line.strip() for line in repaired(source).splitlines()]
    assert (lines.count('a = ""'), lines.count('b = ""')) == (1, 1)


async def test_the_repaired_workflow_runs_where_the_other_fails() -> None:
    async def answer(source: str) -> object:
        namespace: dict[str, object] = {}
        exec(source.replace("class Workflow:\n", "class Workflow:\n    custom = None\n"), namespace)
        made = namespace["Workflow"]
        return await made.__call__(object.__new__(made), "")  # type: ignore[attr-defined, call-overload]

    with pytest.raises(UnboundLocalError):
        await answer(BRANCH)
    assert await answer(repaired(BRANCH)) == ("", 0.0)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def f(",
        "x = 1",
        with_body("return problem, 0.0"),
        with_body("return self.custom(input=problem), 0.0"),  # other mistakes are not its business
        *(workflow(plan, "code") for plan in PLANS.values()),
    ],
)
def test_a_text_without_unbound_variables_is_left_alone(source: str) -> None:
    assert repaired(source) == source


def test_a_text_indented_by_tabs_is_repaired_too() -> None:
    source = BRANCH.replace("    ", "\t")
    assert not {"W101", "W301"} & {f.code for f in lint(repaired(source))}
