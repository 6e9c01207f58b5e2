"""Graph folders in the forms that AFlow and its descendants publish: each runs as it stands, and lint has an error for
what cannot run. Nothing but what is known can be imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_styles import CODE, QUESTION, SQUARE, Script

from llm_as_judge.config.schema import EndpointConfig, SandboxConfig, WorkflowConfig
from llm_as_judge.errors import DataError
from llm_as_judge.llm.client import LLMReply
from llm_as_judge.operators import published
from llm_as_judge.operators.catalog import OPERATORS
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.sandbox.host import OperatorParameters, Sandbox
from llm_as_judge.types import Execution, Question
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.run import WorkflowRunner
from llm_as_judge.workflow.source import WorkflowSource, read_workflow

FOLDERS = Path(__file__).parent / "graphs/folders"
loop: asyncio.AbstractEventLoop
box: Sandbox


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    global loop, box
    loop, box = asyncio.new_event_loop(), Sandbox(SandboxConfig())
    yield
    loop.run_until_complete(box.aclose())
    loop.close()


class Heard(Script):
    """``Script`` that keeps the prompts."""

    def __init__(self, *replies: str) -> None:
        self.prompts: list[str] = []
        self.replies = list(replies)

    async def chat(self, prompt: str, **options: object) -> LLMReply:
        self.prompts.append(prompt)
        reply = await super().chat(prompt, **options)
        return replace(reply, text=self.replies.pop(0)) if self.replies else reply


def run(workflow: WorkflowSource, question: Question = QUESTION, llm: Script | None = None) -> Execution:
    runner = WorkflowRunner(llm or Script(), box, WorkflowConfig(), EndpointConfig()).beside(workflow.prompt)
    return loop.run_until_complete(runner.run(workflow.text, question))


def graph(body: str, *, imports: str = "", init: str = "", prompt: str = "") -> WorkflowSource:
    indent = "\n        "
    text = (
        "import workspace.X.workflows.template.operator as operator\n"
        "from scripts.async_llm import create_llm_instance\n"
        f"{imports}\n\n\nclass Workflow:\n    def __init__(self, name, llm_config, dataset):\n"
        "        self.llm = create_llm_instance(llm_config)\n"
        "        self.custom = operator.Custom(self.llm)\n"
        f"        {indent.join(init.splitlines())}\n\n"
        f"    async def __call__(self, problem: str):\n        {indent.join(body.splitlines())}\n"
    )
    return WorkflowSource(Path("graph.py"), text, prompt)


def fatal(workflow: WorkflowSource) -> set[str]:
    return {f.code for f in lint(workflow.text, prompt=workflow.prompt) if f.fatal}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDERS.iterdir()))
def test_a_published_folder_runs_unchanged(name: str) -> None:
    is_code = name.endswith("_code")
    execution = run(read_workflow(FOLDERS / name), CODE if is_code else QUESTION)
    assert (execution.outcome, execution.error) == ("finished", "")
    assert not [f for f in execution.findings if f.fatal]
    assert (SQUARE if is_code else "42") in (execution.answer or "")


def test_the_prompts_beside_a_graph_reach_the_executor() -> None:
    heard = Heard()
    run(read_workflow(FOLDERS / "metagpt_gsm8k"), llm=heard)
    assert sum("Work in small steps. Set {braces} aside." in prompt for prompt in heard.prompts) == 3


def test_an_ensemble_without_a_problem_is_asked_about_the_questions() -> None:
    heard = Heard("<answer>41</answer>", "<answer>42</answer>", "<solution_letter>B</solution_letter>")
    execution = run(read_workflow(FOLDERS / "drop_ensemble"), llm=heard)
    assert QUESTION.text in heard.prompts[-1]
    assert execution.answer == "42"
    assert execution.calls[-1].arguments == {"solutions": ["41", "42"], "problem": QUESTION.text}


ENSEMBLE = "self.sc = operator.ScEnsemble(self.llm)\nself.fmt = operator.Format(self.llm)"


def test_one_argument_of_format_is_the_solution_and_two_are_as_documented() -> None:
    for call in ("self.fmt('SOL')", "self.fmt(solution='SOL')", "self.fmt(problem, 'SOL', mode='x')"):
        heard = Heard()
        execution = run(graph(f"r = await {call}\nreturn r['solution']", init=ENSEMBLE), llm=heard)
        assert execution.outcome == "finished", execution.error
        assert execution.calls[0].arguments == {"problem": QUESTION.text, "solution": "SOL"}


def test_results_answer_to_both_spellings_and_keep_one() -> None:
    body = (
        "r = await self.sc(solutions=['7', '7'])\n"
        "assert r['response'] == r['solution'] == r['final_solution'] == r.get('solution') == '7'\n"
        "assert 'solution' in r and 'answer' not in r and r.get('answer', 1) == 1\n"
        "assert sorted(r) == ['error', 'parse_ok', 'response']\n"
        "return r['solution']"
    )
    execution = run(graph(body, init=ENSEMBLE))
    assert (execution.outcome, execution.answer, execution.error) == ("finished", "7", "")
    assert "solution" not in execution.calls[0].result


def test_a_key_of_no_spelling_is_missing() -> None:
    wrong = graph("r = await self.sc(solutions=['7'])\nreturn r['answer']", init=ENSEMBLE)
    assert fatal(wrong) == {"W207"}


@pytest.mark.parametrize(
    "cost",
    [
        "self.llm.get_usage_summary()['total_cost']",
        "self.llm.cost_manager.total_cost",
        "self.llm.cost_manager.get_total_cost()",
        "self.llm.cost_manager.get_costs().total_cost",
        "self.llm.usage_tracker.get_summary()['total_cost']",
    ],
)
def test_every_way_of_telling_the_cost_is_taken(cost: str) -> None:
    execution = run(graph(f"r = await self.custom(input=problem, instruction='')\nreturn r['response'], {cost}"))
    assert (execution.outcome, execution.error) == ("finished", "")


IMPORT = "import workspace.X.workflows.round_1.prompt as prompt_custom"
USE = "r = await self.custom(input=problem, instruction=prompt_custom.ASK)\nreturn r['response']"
FILL = "r = await self.custom(input=problem, instruction=prompt_custom.ASK.format({}))\nreturn r['response']"
BROKEN = {
    "no prompt.py": ("W210", graph(USE, imports=IMPORT)),
    "no such prompt": ("W210", graph(USE, imports=IMPORT, prompt="OTHER = ''")),
    "no such prompt by name": (
        "W210",
        graph("return ASK", imports="from workspace.X.workflows.round_1.prompt import ASK", prompt="OTHER = ''"),
    ),
    "a prompt.py that is not Python": ("W101", graph(USE, imports=IMPORT, prompt="ASK = '''\n")),
    "a format without its field": ("W303", graph(FILL.format("a=1"), imports=IMPORT, prompt="ASK = '{a} {b}'")),
    "a format without its place": ("W303", graph(FILL.format("1"), imports=IMPORT, prompt="ASK = '{} {}'")),
    "a format of braces": ("W303", graph(FILL.format("a=1"), imports=IMPORT, prompt="ASK = '{a} {'")),
    "a helper there is not": ("W109", graph("return problem", imports="from scripts.evaluator import Score")),
    "a module there is not": ("W109", graph("return problem", imports="from scripts.memory import Store")),
    "an operator there is not": ("W201", graph("return problem", imports="from scripts.operators import Solve")),
    "an operator of their own": ("W201", graph("return problem", init="self.x = operator.SelfAsk(self.llm)")),
    "an option of their own": ("W203", graph("r = await self.custom(problem, '', role='x')\nreturn r['response']")),
    "not awaited": ("W204", graph("r = self.custom(problem, '')\nreturn r['response']")),
    "an attribute of an operator": ("W202", graph("r = await self.custom.ask(problem)\nreturn r")),
    "a string as a result": ("W207", graph("r = (await self.custom(problem, ''))['response']\nreturn r['response']")),
    "the letters of a reply as results": (
        "W207",
        graph("r = await self.custom(problem, '')\nreturn ' '.join(x['answer'] for x in r['response'])"),
    ),
    "a result joined to text": ("W211", graph("r = await self.custom(problem, '')\nreturn 'So: ' + r")),
    "a file of their own": ("W303", graph("return problem", imports="HERE = __file__")),
    "a class of another name": ("W102", replace(graph("return problem"), text="class SolveGraph:\n    pass\n")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_run_has_an_error(name: str) -> None:
    code, workflow = BROKEN[name]
    assert fatal(workflow) == {code}
    assert run(workflow).outcome == "invalid"


FAILS = ["no prompt.py", "no such prompt", "a format without its field", "a helper there is not", "a file of their own"]


@pytest.mark.parametrize("name", [*FAILS, "a module there is not", "a string as a result", "a result joined to text"])
def test_what_lint_refuses_does_fail(name: str) -> None:
    """Without lint before it."""
    workflow = BROKEN[name][1]

    async def call(operator: str, init: object, arguments: object) -> dict[str, str]:
        return {"response": "42"}

    result = loop.run_until_complete(
        box.run_workflow(
            workflow.text,
            problem="P",
            entry_point=None,
            call_operator=call,
            operators={"Custom": OperatorParameters(("input", "instruction"))},
            prompt=workflow.prompt,
            config=WorkflowConfig(),
        )
    )
    assert result.outcome == "raised"


FILLED = graph(FILL.format("1, {'k': 2}, x=[3], w=4"), imports=IMPORT, prompt="ASK = '{0} {{}} {1[k]} {x[0]:>{w}}'")
RIGHT = {
    "a full format": FILLED,
    "a format of what is not known": graph(FILL.format("*[1, 2]"), imports=IMPORT, prompt="ASK = '{} {}'"),
    "a prompt that a loop makes": graph(USE, imports=IMPORT, prompt="for ASK in 'ab':\n    pass"),
    "prompts that are made": graph(USE, imports=IMPORT, prompt="def __getattr__(name):\n    return name"),
    "prompts taken from elsewhere": graph(USE, imports=IMPORT, prompt="from string import *\nASK = digits"),
    "a prompt that may be missing": graph(
        "try:\n    ask = prompt_custom.ASK\nexcept AttributeError:\n    ask = ''\nreturn ask + problem", imports=IMPORT
    ),
    "a broken prompt.py that nothing imports": graph("return problem", prompt="ASK = '''\n"),
    "statements beside the class": graph("return A(2)", imports="A = lambda b: str(b)\nC = [x for x in 'ab' if x]"),
    "an operator's name": graph("return f'{self.custom.name} {problem}'"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_can_run_has_no_error(name: str) -> None:
    assert fatal(RIGHT[name]) == set()
    assert run(RIGHT[name]).outcome == "finished", run(RIGHT[name]).error


@pytest.mark.parametrize(
    "module",
    (
        "numpy",
        "requests.operator",
        "openai",
        "own.prompt",
        "metagpt.roles",
        "llm_as_judge.llm.client",
        "examples.secrets",
    ),
)
def test_nothing_else_can_be_imported(module: str) -> None:
    body = f"try:\n    importlib.import_module('{module}')\nexcept ImportError:\n    return 'none'\nreturn 'there'"
    assert run(graph(body, imports="import importlib")).answer == "none"
    assert aflow.role(module) is None
    assert "W109" in fatal(graph("return problem", imports=f"import {module}"))


def test_a_module_is_made_for_what_a_text_imports_and_for_nothing_else() -> None:
    """Neither is known: an AFlow path that only the running code puts together."""
    module = "workspace.Y.workflows.template.operator"
    assert aflow.role(module) == "operators"
    body = f"try:\n    importlib.import_module('{module}')\nexcept ImportError:\n    return 'none'\nreturn 'there'"
    assert run(graph(body, imports="import importlib")).answer == "none"
    assert run(graph(body, imports=f"import importlib\nimport {module}")).answer == "there"


def test_known_modules_hold_only_what_is_listed() -> None:
    body = "return ' '.join(sorted(n for n in vars(m) if not n.startswith('__')))"
    execution = run(graph(body, imports="import scripts.async_llm as m"))
    assert (execution.answer or "").split() == sorted(aflow.NAMES)


def test_what_is_told_of_other_versions_is_of_operators_there_are() -> None:
    """Every other form names parameters of the operator, every spelling a key that it has not, for one it has."""
    told = {*published._FORMS, *published._SPELLINGS, *published._NAMES.values()}
    assert told <= set(OPERATORS)
    for name in told:
        keys = OPERATORS[name].RESULT
        assert all(other not in keys and own in keys for other, own in published.spellings(name).items())


def test_a_folder_a_file_and_what_is_neither(tmp_path: Path) -> None:
    folder = FOLDERS / "metagpt_gsm8k"
    assert read_workflow(folder) == read_workflow(folder / "graph.py")
    assert "STEPS_PROMPT" in read_workflow(folder).prompt
    (tmp_path / "alone.py").write_text("class Workflow: ...")
    assert read_workflow(tmp_path / "alone.py").prompt == ""
    with pytest.raises(DataError, match=r"no graph\.py in it"):
        read_workflow(tmp_path)
