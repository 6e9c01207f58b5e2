"""Workflows as capable models write them: fifty styles pass lint without a finding and run; lint and the sandbox agree
on constructors.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_as_judge.config.schema import EndpointConfig, SandboxConfig, WorkflowConfig
from llm_as_judge.llm.client import LLMReply
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Execution, Question
from llm_as_judge.workflow.run import WorkflowRunner
from llm_as_judge.workflow.shape import shape

STYLES = sorted((Path(__file__).parent / "graphs/styles").glob("*.py"))
QUESTION = Question("q", "What is 6 times 7?", "math")
CODE = Question("c", "Square a number.", "code", entry_point="f", public_tests=("assert f(2) == 4",))
SQUARE = "def f(x):\n    return x * x"
TAGS = {"answer": "42", "review_result": "True", "feedback": "right", "solution": "42", "solution_letter": "A"}


class Script:
    """Answers 42, or with a right program, in the form that the operator reads."""

    async def chat(self, prompt: str, **options: Any) -> LLMReply:
        text = "".join(f"<{tag}>{value}</{tag}>" for tag, value in TAGS.items())
        if "solve()" in prompt:
            text = "```python\ndef solve():\n    return 6 * 7\n```"
        if "function f" in prompt:
            text = f"```python\n{SQUARE}\n```"
        return LLMReply(text, "", "stop", 10, 5, 0.0, 0.0)


loop: asyncio.AbstractEventLoop
box: Sandbox


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """One sandbox on one loop for the whole file."""
    global loop, box
    loop, box = asyncio.new_event_loop(), Sandbox(SandboxConfig())
    yield
    loop.run_until_complete(box.aclose())
    loop.close()


def run(source: str, question: Question = QUESTION) -> Execution:
    runner = WorkflowRunner(Script(), box, WorkflowConfig(), EndpointConfig())
    return loop.run_until_complete(runner.run(source, question))


def test_there_are_forty_styles_and_more() -> None:
    assert len(STYLES) >= 40


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.stem)
def test_a_style_passes_lint_and_runs(path: Path) -> None:
    is_code = path.stem.startswith("code_")
    execution = run(path.read_text(encoding="utf-8"), CODE if is_code else QUESTION)
    assert (execution.outcome, execution.error, execution.findings) == ("finished", "", ())
    assert (SQUARE if is_code else "42") in (execution.answer or "")
    assert execution.calls


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.stem)
def test_a_style_has_the_shape_of_its_calls(path: Path) -> None:
    """All operators that a run calls are in the shape."""
    told = set(re.findall(r"[A-Z]\w+", shape(path.read_text(encoding="utf-8"))))
    execution = run(path.read_text(encoding="utf-8"), CODE if path.stem.startswith("code_") else QUESTION)
    assert {call.name for call in execution.calls} <= told


CONSTRUCTOR = """class Workflow:
    def __init__(self{parameters}):
        {body}

    async def __call__(self, problem):
        custom = operator.Custom(create_llm_instance())
        return (await custom(problem, ''))['response']
"""
GIVEN = [
    "", ", name, llm_config, dataset", ", name: str, llm_config: dict, dataset: str = 'x'", ", a, b, c",
    ", llm", ", llm_config", ", config", ", model", ", llm, name", ", name, llm", ", llm_config, dataset",
    ", dataset, llm_config, name", ", llm, *, dataset", ", *, llm_config", ", *, name='x', llm_config=None",
    ", llm=None", ", verbose=False, tries=3", ", llm, verbose=False", ", name, llm_config, dataset, extra=None",
    ", *args", ", **kwargs", ", *args, **kwargs", ", llm, *args", ", llm, **kwargs", ", name, *args, **kwargs",
    ", llm_client, dataset", ", executor_llm", ", name, /, llm_config, dataset", ", llm_config, tools=()",
]  # fmt: skip
NOT_GIVEN = [", tools", ", llm, tools", ", name, llm_config, dataset, tools", ", *, key", ", a, b", ", a, b, c, d"]


@pytest.mark.parametrize("parameters", GIVEN)
def test_a_constructor_that_gets_all_it_asks_for_is_valid(parameters: str) -> None:
    execution = run(CONSTRUCTOR.format(parameters=parameters, body="pass"))
    assert (execution.outcome, execution.error, execution.findings) == ("finished", "", ())


@pytest.mark.parametrize("parameters", NOT_GIVEN)
def test_a_constructor_that_asks_for_more_is_refused_by_lint_and_by_the_sandbox(parameters: str) -> None:
    source = CONSTRUCTOR.format(parameters=parameters, body="pass")
    execution = run(source)
    assert execution.outcome == "invalid" and [f.code for f in execution.findings] == ["W106"]
    # A base class hides the constructor from lint, and not from the sandbox.
    hidden = source.replace("class Workflow:", "class Base:") + "\n\nclass Workflow(Base):\n    pass\n"
    execution = run(hidden)
    assert execution.outcome == "raised" and "Workflow.__init__ asks for" in execution.error


@pytest.mark.parametrize(
    ("parameters", "check"),
    [
        (", name, llm_config, dataset", "name == 'workflow' and llm_config == {} and dataset == ''"),
        (", llm", "llm.get_usage_summary()['total_cost'] == 0"),
        (", dataset, llm, name", "name == 'workflow' and dataset == '' and llm.get_usage_summary()"),
        (", verbose=False, tries=3, depth=2", "(verbose, tries, depth) == (False, 3, 2)"),
        (", *args, **kwargs", "args == ('workflow', {}, '') and kwargs == {}"),
        (", **kwargs", "kwargs == {'name': 'workflow', 'llm_config': {}, 'dataset': ''}"),
        (", llm, **kwargs", "llm.get_usage_summary() and sorted(kwargs) == ['dataset', 'llm_config', 'name']"),
    ],
)
def test_each_parameter_gets_what_its_name_says(parameters: str, check: str) -> None:
    execution = run(CONSTRUCTOR.format(parameters=parameters, body=f"assert {check}, locals()"))
    assert (execution.outcome, execution.error) == ("finished", "")


def test_a_code_problems_entry_point_reaches_a_call_with_keywords() -> None:
    source = CONSTRUCTOR.format(parameters="", body="pass").replace("problem):", "problem, **kwargs):")
    source = source.replace("return (await custom(problem, ''))['response']", "return kwargs['entry_point']")
    execution = run(source.replace("        custom = operator.Custom(create_llm_instance())\n", ""), CODE)
    assert (execution.answer, execution.findings) == ("f", ())


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("W209", "return await self.llm(problem)"),
        ("W209", "return await self.llm.generate(problem)"),
        ("W207", "r = await self.custom(problem, '')\n        return r.response"),
    ],
)
def test_what_fails_in_every_run_is_refused_before_it(code: str, line: str) -> None:
    source = f"""class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem):
        await self.custom(problem, '')
        {line}
"""
    execution = run(source)
    assert execution.outcome == "invalid" and [f.code for f in execution.findings] == [code]
    hidden = source.replace("class Workflow:", "class Base:") + "\n\nclass Workflow(Base):\n    pass\n"
    assert run(hidden).outcome == "raised"


def test_an_import_of_what_the_sandbox_lacks_is_refused_and_one_that_may_fail_told() -> None:
    assert loop.run_until_complete(box.run_code("import numpy")).error.startswith("ModuleNotFoundError")
    source = CONSTRUCTOR.format(parameters="", body="pass")
    assert [f.code for f in run(f"import numpy\n{source}").findings] == ["W109"]
    execution = run(f"try:\n    import numpy\nexcept ImportError:\n    numpy = None\n{source}")
    assert (execution.outcome, [f.code for f in execution.findings]) == ("finished", ["W108"])


def test_a_base_class_that_is_not_there_is_refused() -> None:
    source = CONSTRUCTOR.format(parameters="", body="pass").replace("class Workflow:", "class Workflow(BaseWorkflow):")
    assert [f.code for f in run(source).findings] == ["W303"]
