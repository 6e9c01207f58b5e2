"""Workflows written by hand, and the shape of any workflow: which operators it calls in which order.

The templates serve as baselines, tests and examples. A shape (``3xAnswerGenerate>ScEnsemble``) is read off
the text, so that equal ideas in other words count as one; branches are not told from straight lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from llm_as_judge.workflow.lint.kinds import Knowledge, operator_built

_QA = "problem: str"
_CODE = "problem: str, entry_point: str"


def _workflow(operators: Mapping[str, str], parameters: str, *body: str) -> str:
    built = [f"        self.{attribute} = operator.{name}(self.llm)" for attribute, name in operators.items()]
    return "\n".join(
        (
            "class Workflow:",
            "    def __init__(self, name: str, llm_config, dataset):",
            "        self.llm = create_llm_instance(llm_config)",
            *built,
            "",
            f"    async def __call__(self, {parameters}):",
            *(f"        {line}" for line in body),
            "",
        )
    )


def _aflow(dataset: str, operator: str, attribute: str, parameters: str, arguments: str) -> str:
    """AFlow's ``workspace/<dataset>/workflows/round_1/graph.py``."""
    return f'''from typing import Literal
import workspace.{dataset}.workflows.template.operator as operator
import workspace.{dataset}.workflows.round_1.prompt as prompt_custom
from scripts.async_llm import create_llm_instance

from scripts.evaluator import DatasetType


class Workflow:
    def __init__(
        self,
        name: str,
        llm_config,
        dataset: DatasetType,
    ) -> None:
        self.name = name
        self.dataset = dataset
        self.llm = create_llm_instance(llm_config)
        self.{attribute} = operator.{operator}(self.llm)

    async def __call__(self, {parameters}):
        """
        Implementation of the workflow
        """
        solution = await self.{attribute}({arguments})
        return solution['response'], self.llm.get_usage_summary()["total_cost"]
'''


TEMPLATES: Mapping[str, str] = {
    "answer_direct": _workflow(
        {"custom": "Custom"},
        _QA,
        'result = await self.custom(input=problem, instruction="")',
        "return result['response'], 0.0",
    ),
    "answer_generate": _workflow(
        {"answer_generate": "AnswerGenerate"},
        _QA,
        "result = await self.answer_generate(input=problem)",
        "return result['answer'], 0.0",
    ),
    "custom_think": _workflow(
        {"custom": "Custom"},
        _QA,
        'result = await self.custom(input=problem, instruction="Think step by step.")',
        "return result['response'], 0.0",
    ),
    "programmer": _workflow(
        {"programmer": "Programmer"},
        _QA,
        "result = await self.programmer(problem=problem)",
        "return result['output'], 0.0",
    ),
    "sc_ensemble": _workflow(
        {"answer_generate": "AnswerGenerate", "sc_ensemble": "ScEnsemble"},
        _QA,
        "solutions = []",
        "for _ in range(3):",
        "    result = await self.answer_generate(input=problem)",
        "    solutions.append(result['answer'])",
        "chosen = await self.sc_ensemble(solutions=solutions, problem=problem)",
        "return chosen['response'], 0.0",
    ),
    "review_revise": _workflow(
        {"answer_generate": "AnswerGenerate", "review": "Review", "revise": "Revise"},
        _QA,
        "result = await self.answer_generate(input=problem)",
        "answer = result['answer']",
        "check = await self.review(problem=problem, solution=answer)",
        "if not check['review_result']:",
        "    revised = await self.revise(problem=problem, solution=answer, feedback=check['feedback'])",
        "    answer = revised['solution']",
        "return answer, 0.0",
    ),
    "code_generate": _workflow(
        {"code_generate": "CustomCodeGenerate"},
        _CODE,
        'result = await self.code_generate(problem=problem, entry_point=entry_point, instruction="")',
        "return result['response'], 0.0",
    ),
    "code_test": _workflow(
        {"code_generate": "CustomCodeGenerate", "test": "Test"},
        _CODE,
        'draft = await self.code_generate(problem=problem, entry_point=entry_point, instruction="")',
        "result = await self.test(problem=problem, solution=draft['response'], entry_point=entry_point)",
        "return result['solution'], 0.0",
    ),
    "aflow_gsm8k": _aflow("GSM8K", "Custom", "custom", "problem: str", 'input=problem, instruction=""'),
    "aflow_humaneval": _aflow(
        "HumanEval",
        "CustomCodeGenerate",
        "custom_code_generate",
        "problem: str, entry_point: str",
        'problem=problem, entry_point=entry_point, instruction=""',
    ),
}


def shape(source: str) -> str:
    """The operators called in ``__call__``, in the order of the text, joined by ``>``.

    A loop over a constant number of things multiplies (``3x``), over others gives ``nx``; the same operator
    several times running counts up. ``""`` for a workflow that calls none, ``invalid`` for no workflow.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "invalid"
    methods = {
        node.name: node
        for workflow in tree.body
        if isinstance(workflow, ast.ClassDef) and workflow.name == "Workflow"
        for node in workflow.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    if "__call__" not in methods:
        return "invalid"
    built: dict[str, str] = {}
    for node in ast.walk(methods["__init__"]) if "__init__" in methods else ():
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=attribute)], value=ast.Call(func=func)):
                built[attribute] = operator_built(func, Knowledge()) or ""
    return _text(_Shape({a: n for a, n in built.items() if n}).of(methods["__call__"].body))


Unit = tuple[str, str]  # count and operator, or count and a group in brackets


class _Shape:
    def __init__(self, built: Mapping[str, str]) -> None:
        self._built = built
        self._lengths: dict[str, int] = {}  # variables that hold a literal list

    def of(self, nodes: Iterable[ast.AST]) -> list[Unit]:
        units: list[Unit] = []
        for node in nodes:
            for unit in self._node(node):
                if units and units[-1][1] == unit[1]:
                    units[-1] = (_sum(units[-1][0], unit[0]), unit[1])
                else:
                    units.append(unit)
        return units

    def _node(self, node: ast.AST) -> list[Unit]:
        match node:
            case ast.For(iter=iterable, body=body) | ast.AsyncFor(iter=iterable, body=body):
                rounds = _times(self._count(iterable), self.of(body))
                return [*self.of([iterable]), *rounds, *self.of(node.orelse)]
            case ast.While(test=test, body=body):
                return _times("n", self.of([test, *body]))
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = self.of([element])
                for generator in node.generators:
                    inner = [*self.of([generator.iter]), *_times(self._count(generator.iter), inner)]
                return inner
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=elements)):
                self._lengths[name] = len(elements)
        units = self.of(ast.iter_child_nodes(node))
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(), attr=attribute)) if attribute in self._built:
                units.append(("1", self._built[attribute]))
        return units

    def _count(self, iterable: ast.expr) -> str:
        match iterable:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(stop))]):
                return str(stop)
            case ast.Call(
                func=ast.Name(id="range"),
                args=[ast.Constant(value=int(start)), ast.Constant(value=int(stop))],
            ):
                return str(max(0, stop - start))
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                return self._count(inner)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return str(len(elements))
            case ast.Name(id=name) if self._lengths.get(name):
                return str(self._lengths[name])
        return "n"


def _sum(first: str, second: str) -> str:
    return "n" if "n" in (first, second) else str(int(first) + int(second))


def _times(count: str, units: list[Unit]) -> list[Unit]:
    if not units or count == "0":
        return []
    if len(units) > 1:
        return units if count == "1" else [(count, f"({_text(units)})")]
    own, name = units[0]
    return [("n" if "n" in (count, own) else str(int(count) * int(own)), name)]


def _text(units: list[Unit]) -> str:
    return ">".join(name if count == "1" else f"{count}x{name}" for count, name in units)
