"""Workflows as capable models write them pass lint and run; lint and the sandbox agree on constructors."""

import re
from pathlib import Path

from running import CODE, QUESTION, SQUARE, Run

from llm_as_judge.workflow.structure import shape

STYLES = sorted((Path(__file__).parent / "graphs/styles").glob("*.py"))


def test_each_style_is_clean_runs_and_has_the_shape_of_its_calls(run: Run) -> None:
    wrong = []
    for path in STYLES:
        source, is_code = path.read_text(encoding="utf-8"), path.stem.startswith("code_")
        execution = run(source, CODE if is_code else QUESTION)
        clean = (execution.outcome, execution.error, execution.findings) == ("finished", "", ())
        answered = (SQUARE if is_code else "42") in (execution.answer or "")
        in_shape = {call.name for call in execution.calls} <= set(re.findall(r"[A-Z]\w+", shape(source)))
        if not (clean and answered and in_shape and execution.calls):
            wrong.append((path.stem, execution))
    assert STYLES and not wrong


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
VALUES = {
    ", name, llm_config, dataset": "name == 'workflow' and llm_config == {} and dataset == ''",
    ", llm": "llm.get_usage_summary()['total_cost'] == 0",
    ", dataset, llm, name": "name == 'workflow' and dataset == '' and llm.get_usage_summary()",
    ", verbose=False, tries=3, depth=2": "(verbose, tries, depth) == (False, 3, 2)",
    ", *args, **kwargs": "args == ('workflow', {}, '') and kwargs == {}",
    ", **kwargs": "kwargs == {'name': 'workflow', 'llm_config': {}, 'dataset': ''}",
    ", llm, **kwargs": "llm.get_usage_summary() and sorted(kwargs) == ['dataset', 'llm_config', 'name']",
}


def hidden(source: str) -> str:
    """The same workflow as a base class, into which lint does not look."""
    return source.replace("class Workflow:", "class Base:") + "\n\nclass Workflow(Base):\n    pass\n"


def test_a_constructor_gets_what_its_parameters_name(run: Run) -> None:
    wrong = []
    for parameters, check in [*((p, "True") for p in GIVEN), *VALUES.items()]:
        execution = run(CONSTRUCTOR.format(parameters=parameters, body=f"assert {check}, locals()"))
        if (execution.outcome, execution.error, execution.findings) != ("finished", "", ()):
            wrong.append((parameters, execution))
    assert not wrong


def test_a_constructor_that_asks_for_more_is_refused_by_lint_and_by_the_sandbox(run: Run) -> None:
    wrong = []
    for parameters in NOT_GIVEN:
        source = CONSTRUCTOR.format(parameters=parameters, body="pass")
        refused, failed = run(source), run(hidden(source))
        if [f.code for f in refused.findings] != ["W106"] or "Workflow.__init__ asks for" not in failed.error:
            wrong.append((parameters, refused, failed))
    assert not wrong


def test_an_import_of_what_the_sandbox_lacks_is_refused_unless_it_may_fail(run: Run) -> None:
    source = CONSTRUCTOR.format(parameters="", body="pass")
    assert [f.code for f in run(f"import numpy\n{source}").findings] == ["W109"]
    execution = run(f"try:\n    import numpy\nexcept ImportError:\n    numpy = None\n{source}")
    assert (execution.outcome, [f.code for f in execution.findings]) == ("finished", ["W108"])
    undefined = source.replace("class Workflow:", "class Workflow(BaseWorkflow):")
    assert [f.code for f in run(undefined).findings] == ["W303"]
