"""Workflows as AFlow, its descendants and capable models write them: they run as they stand, or lint has an error."""

import re
from pathlib import Path

import pytest
from helpers.tables import tables
from helpers.workflows import CODE, QUESTION, SQUARE, linted, workflow
from running import Run, Script

from llm_as_judge.errors import DataError
from llm_as_judge.operators.catalog import OPERATORS, PUBLISHED
from llm_as_judge.sandbox.guest import aflow
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.user_file import WorkflowSource, read_workflow

TABLES = tables(__file__)


def graph(body: str, *, imports: str = "", prompt: str = "", **more: str) -> WorkflowSource:
    own = (
        "import workspace.X.workflows.template.operator as operator\nfrom scripts.async_llm import create_llm_instance"
    )
    return WorkflowSource(Path("graph.py"), workflow(body, before=f"{own}\n{imports}", **more), prompt)


def fatal(source: WorkflowSource) -> set[str]:
    return {f.code for f in linted(source.text, prompt=source.prompt) if f.fatal}


def test_each_runs_unchanged_and_has_the_shape_of_its_calls(run: Run, graphs: Path) -> None:
    wrong = []
    for path in [*graphs.glob("folders/*"), *graphs.glob("*.py"), *graphs.glob("styles/*.py")]:
        source = read_workflow(path)
        is_code = "entry_point" in source.text
        execution = run(source.text, CODE if is_code else QUESTION, prompt=source.prompt)
        clean = (execution.outcome, execution.error, execution.findings) == ("finished", "", ())
        answered = (SQUARE if is_code else "42") in (execution.answer or "")
        in_shape = {call.name for call in execution.calls} <= set(re.findall(r"[A-Z]\w+", lint(source.text).shape))
        if not (clean and answered and in_shape and execution.calls):
            wrong.append((path.name, lint(source.text).shape, execution))
    assert not wrong


def test_the_examples_have_no_findings() -> None:
    examples = (Path(__file__).parents[2] / "examples").glob("*.py")
    found = {path.name: linted(path.read_text("utf-8")) for path in examples}
    assert found and not any(found.values())


def test_prompts_and_shorter_forms_reach_the_executor(run: Run, graphs: Path) -> None:
    llm, source = Script(), read_workflow(graphs / "folders/metagpt_gsm8k")
    run(source.text, llm=llm, prompt=source.prompt)
    assert sum("Work in small steps. Set {braces} aside." in prompt for prompt in llm.prompts) == 3
    llm = Script("<answer>41</answer>", "<answer>42</answer>", "<solution_letter>B</solution_letter>")
    source = read_workflow(graphs / "folders/drop_ensemble")
    execution = run(source.text, llm=llm, prompt=source.prompt)
    assert QUESTION.text in llm.prompts[-1] and execution.answer == "42"
    assert execution.calls[-1].arguments == {"solutions": ["41", "42"], "problem": QUESTION.text}


ENSEMBLE = "self.sc = operator.ScEnsemble(self.llm)\nself.fmt = operator.Format(self.llm)"


def test_calls_results_and_costs_of_other_versions_work(run: Run) -> None:
    for call in ("self.fmt('SOL')", "self.fmt(solution='SOL')", "self.fmt(problem, 'SOL', mode='x')"):
        execution = run(graph(f"r = await {call}\nreturn r['solution']", init=ENSEMBLE).text)
        assert execution.outcome == "finished", execution.error
        assert execution.calls[0].arguments == {"problem": QUESTION.text, "solution": "SOL"}
    body = (
        "r = await self.sc(solutions=['7', '7'])\n"
        "assert r['response'] == r['solution'] == r['final_solution'] == r.get('solution') == '7'\n"
        "assert 'solution' in r and 'answer' not in r and r.get('answer', 1) == 1\n"
        "assert sorted(r) == ['error', 'parse_ok', 'response']\n"
        "return r['solution'], ("
        "self.llm.get_usage_summary()['total_cost'], self.llm.cost_manager.total_cost, "
        "self.llm.cost_manager.get_total_cost(), self.llm.cost_manager.get_costs().total_cost, "
        "self.llm.usage_tracker.get_summary()['total_cost'])"
    )
    execution = run(graph(body, init=ENSEMBLE).text)
    assert (execution.outcome, execution.answer, execution.error) == ("finished", "7", "")
    assert "solution" not in execution.calls[0].result
    assert fatal(graph("r = await self.sc(solutions=['7'])\nreturn r['answer']", init=ENSEMBLE)) == {"W207"}


def test_what_cannot_run_has_an_error_and_does_fail(run: Run) -> None:
    """Besides what ``test_contract.py`` forbids."""
    wrong = []
    for name, ((code, given),) in ((name, row.items()) for name, row in TABLES["BROKEN"].items()):
        source = graph(**given)
        failed = run(source.text, prompt=source.prompt, linted=False)
        if fatal(source) != {code} or failed.outcome != "raised":
            wrong.append((name, fatal(source), failed))
    assert not wrong


def test_what_can_run_has_no_error_and_nothing_else_can_be_imported(run: Run) -> None:
    right = {name: graph(**given) for name, given in TABLES["RIGHT"].items()}
    runs = {name: run(source.text, prompt=source.prompt) for name, source in right.items()}
    assert not [(n, execution) for n, execution in runs.items() if execution.outcome != "finished" or fatal(right[n])]
    wrong = []
    attempt = "try:\n    importlib.import_module('{}')\nexcept ImportError:\n    return 'none'\nreturn 'there'"
    deep = "a." * 25 + "workflows.operator"  # its packages would take quadratic memory
    modules = "numpy requests.operator openai own.prompt metagpt.roles llm_as_judge.llm.client".split()
    for module in (*modules, deep):
        answer = run(graph(attempt.format(module), imports="import importlib").text).answer
        refused = "W109" in fatal(graph("return problem", imports=f"import {module}"))
        if answer != "none" or aflow.role(module) is not None or not refused:
            wrong.append((module, answer, refused))
    assert not wrong


def test_other_forms_and_spellings_are_of_operators_and_keys_that_exist() -> None:
    for name, published in PUBLISHED.items():
        keys = OPERATORS[name].RESULT
        assert all(other not in keys and own in keys for other, own in published.spellings.items())


GIVEN = TABLES["GIVEN"]
NOT_GIVEN = [", tools", ", llm, tools", ", name, llm_config, dataset, tools", ", *, key", ", a, b", ", a, b, c, d"]
VALUES = TABLES["VALUES"]


def constructed(parameters: str, check: str) -> str:
    return workflow(parameters=parameters, init=f"self.custom = operator.Custom(self.llm)\n{check}")


def test_a_constructor_gets_what_its_parameters_name_and_may_not_ask_for_more(run: Run) -> None:
    wrong = []
    for parameters, check in [*((p, "True") for p in GIVEN), *VALUES.items()]:
        execution = run(constructed(parameters, f"assert {check}, locals()"))
        if (execution.outcome, execution.error, execution.findings) != ("finished", "", ()):
            wrong.append((parameters, execution))
    assert not wrong
    for parameters in NOT_GIVEN:
        refused, failed = (run(constructed(parameters, "pass"), linted=linted) for linted in (True, False))
        assert [f.code for f in refused.findings] == ["W106"], parameters
        assert "Workflow.__init__ asks for" in failed.error, parameters


def test_a_workflow_is_read_from_a_folder_or_a_file(graphs: Path, tmp_path: Path) -> None:
    folder = graphs / "folders/metagpt_gsm8k"
    assert read_workflow(folder) == read_workflow(folder / "graph.py")
    assert "STEPS_PROMPT" in read_workflow(folder).prompt
    (tmp_path / "alone.py").write_text("class Workflow: ...")
    assert read_workflow(tmp_path / "alone.py").prompt == ""
    with pytest.raises(DataError, match=r"no graph\.py in it"):
        read_workflow(tmp_path)
