"""Lint: what cannot run is found by number, what can run raises no alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_as_judge.operators import catalog
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.lint.codes import CODES

INIT = """
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.answer = operator.AnswerGenerate(self.llm)
        self.ensemble = operator.ScEnsemble(self.llm)
        self.programmer = operator.Programmer(self.llm)
        self.review = operator.Review(self.llm)
        self.revise = operator.Revise(self.llm)
        self.test = operator.Test(self.llm)
        self.code = operator.CustomCodeGenerate(self.llm)
"""


def workflow(body: str, parameters: str = "self, problem", init: str = INIT, before: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.strip("\n").splitlines())
    return f"{before}\nclass Workflow:\n{init}\n    async def __call__({parameters}):\n{lines}\n"


def codes(source: str, **kwargs: str) -> set[str]:
    """All but the operators that this file's ``INIT`` builds for nothing."""
    return {finding.code for finding in lint(source, **kwargs)} - {"W205"}


SEED = """class Workflow:
    def __init__(self, name: str, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.answer_generate = operator.AnswerGenerate(self.llm)

    async def __call__(self, problem: str):
        result = await self.answer_generate(input=problem)
        return result['answer'], 0.0
"""


@pytest.mark.parametrize("name", ["aflow_gsm8k", "aflow_humaneval"])
def test_published_graphs_are_clean(name: str) -> None:
    source = (Path(__file__).parent / "graphs" / f"{name}.py").read_text(encoding="utf-8")
    assert lint(source) == []
    assert lint(source, entry_point="f" if "entry_point" in source else None) == []


def test_the_example_of_the_contract_is_clean() -> None:
    assert lint(SEED) == []


GOOD = {
    "positional": "r = await self.custom(problem, 'x')\nreturn r['response']",
    "subscript of await": "return (await self.custom(input=problem, instruction=''))['response'], 0.0",
    "get": "r = await self.custom(problem, '')\nreturn r.get('response', ''), 0.0",
    "parse_ok": "r = await self.custom(problem, '')\nreturn r['response'] if r['parse_ok'] else r['error']",
    "fstring": "r = await self.custom(problem, '')\nreturn f\"{r['response']}\", 0.0",
    "gather": """
import asyncio
a, b = await asyncio.gather(self.custom(problem, '1'), self.answer(input=problem))
return a['response'] + b['answer'], 0.0""",
    "gather comprehension": """
import asyncio
rs = await asyncio.gather(*[self.answer(input=problem) for _ in range(3)])
texts = [r['answer'] for r in rs]
best = await self.ensemble(solutions=texts, problem=problem)
return best['response']""",
    "tasks": """
import asyncio
tasks = [asyncio.create_task(self.answer(input=problem)) for _ in range(3)]
done = []
for task in tasks:
    done.append((await task)['answer'])
return done[0]""",
    "stored calls": """
call = self.answer(input=problem)
other = self.answer(input=problem)
a, b = await call, await other
return a['answer'] + b['answer']""",
    "calls in a list": """
calls = []
for _ in range(3):
    calls.append(self.answer(input=problem))
results = [await c for c in calls]
return results[-1]['answer']""",
    "constant loop": """
for _ in range(3):
    r = await self.answer(input=problem)
return r['answer']""",
    "named constant loop": """
n = 3
for i in range(n):
    r = await self.answer(input=problem)
return r['answer']""",
    "literal loop": """
hints = ['a', 'b']
for i, hint in enumerate(hints):
    r = await self.custom(problem, hint)
return r['response']""",
    "while counter": """
i = 0
while i < 3:
    r = await self.answer(input=problem)
    i += 1
return r['answer']""",
    "while true": """
tries = 0
while True:
    r = await self.answer(input=problem)
    tries += 1
    if r['answer'] or tries > 3:
        break
return r['answer']""",
    "while true return": """
while True:
    r = await self.answer(input=problem)
    if r['answer']:
        return r['answer']""",
    "review": """
answer = (await self.answer(input=problem))['answer']
check = await self.review(problem=problem, solution=answer)
if not check['review_result']:
    answer = (await self.revise(problem, answer, check['feedback']))['solution']
return answer""",
    "both branches": """
if len(problem) > 100:
    r = await self.answer(input=problem)
    out = r['answer']
else:
    r = await self.custom(problem, '')
    out = r['response']
return out""",
    "elif else": """
if 'a' in problem:
    x = 'a'
elif 'b' in problem:
    x = 'b'
else:
    x = 'c'
return x""",
    "early return": """
r = await self.answer(input=problem)
if r['answer']:
    return r['answer'], 0.0
p = await self.programmer(problem=problem)
return p['output'], 0.0""",
    "same condition twice": """
long = len(problem) > 9
if long:
    r = await self.answer(input=problem)
x = 1
if long:
    return r['answer']
return 'short'""",
    "complementary returns": """
ok = 'x' in problem
if ok:
    return 'a'
if not ok:
    return 'b'""",
    "flag": """
found = False
if 'x' in problem:
    found, other = True, 1
    x = 'a'
    found = True
if found:
    return x
return 'b'""",
    "try except": """
try:
    r = await self.programmer(problem=problem, analysis='None')
    out = r['output']
except Exception as error:
    out = str(error)
return out""",
    "try else finally": """
try:
    r = await self.programmer(problem)
except Exception:
    return 'failed'
else:
    out = r['output']
finally:
    done = True
return out if done else ''""",
    "raise ends a path": """
if problem:
    x = problem
else:
    raise ValueError('empty')
return x""",
    "with": """
import contextlib
with contextlib.nullcontext() as c:
    r = await self.answer(input=problem)
return r['answer'], c""",
    "match": """
match len(problem):
    case 0:
        x = 'none'
    case n if n > 5:
        x = str(n)
    case _:
        x = 'some'
return x""",
    "nested function": """
async def attempt(hint):
    r = await self.custom(problem, hint + suffix)
    return r['response']
suffix = '!'
return await attempt('a')""",
    "lambda and comprehension": """
rs = [await self.answer(input=problem) for _ in range(2)]
best = max(rs, key=lambda r: len(r['answer']))
return best['answer'], sum(1 for r in rs if r['answer'] for _ in [0])""",
    "walrus": """
if (r := await self.answer(input=problem))['answer']:
    return r['answer']
return 'none'""",
    "keyword dict": "args = {'input': problem}\nr = await self.answer(**args)\nreturn r['answer']",
    "best of": """
best = None
for _ in range(3):
    r = await self.answer(input=problem)
    if best is None or len(r['answer']) < len(best):
        best = r['answer']
return best""",
    "same name of two results": """
r = await self.answer(input=problem)
if not r['answer']:
    r = await self.custom(problem, '')
return r.get('answer') or r.get('response')""",
    "reassigned result": """
result = await self.answer(input=problem)
result = await self.ensemble([result['answer']], problem)
return result['response']""",
    "global helper": "return helper(problem)",
    "usage summary": """
r = await self.answer(input=problem)
return r['answer'], self.llm.get_usage_summary()['total_cost']""",
    "docstring only": "'''doc'''\nreturn problem",
    "loop else": """
for _ in range(2):
    r = await self.answer(input=problem)
    if r['answer']:
        break
else:
    return 'none'
return r['answer']""",
    "delete and rebind": "x = 'a'\ndel x\nx = 'b'\nreturn x",
    "result changed in place": "r = await self.answer(input=problem)\nr['answer'] += '!'\nreturn r['answer']",
    "number": "return 42, 0.0",
    "own attribute": "self.count = 1\nself.count += 1\nreturn str(self.count)",
    "other method": "return await self.solve(problem)",
}
HELPERS = "def helper(p):\n    return p.strip()\n"
METHOD = INIT + "\n    async def solve(self, p):\n        r = await self.answer(input=p)\n        return r['answer']\n"


@pytest.mark.parametrize("name", GOOD)
def test_correct_workflows_raise_no_alarm(name: str) -> None:
    source = workflow(GOOD[name], before=HELPERS, init=METHOD)
    findings = [f for f in lint(source) if f.code != "W205"]
    assert findings == []


BAD = {
    "typo in key": ("W207", "r = await self.answer(input=problem)\nreturn r['anser']"),
    "key of await": ("W207", "return (await self.answer(input=problem))['response']"),
    "key of another operator": ("W207", "r = await self.code(problem, 'f', '')\nreturn r['code']"),
    "key in loop": (
        "W207",
        "for _ in range(3):\n    r = await self.answer(input=problem)\n    x = r['text']\nreturn x",
    ),
    "key after gather": (
        "W207",
        "import asyncio\na, b = await asyncio.gather(self.answer(problem), self.custom(problem, ''))\n"
        "return b['answer']",
    ),
    "key in comprehension": (
        "W207",
        "import asyncio\nrs = await asyncio.gather(*[self.answer(problem) for _ in range(3)])\n"
        "return ' '.join([r['response'] for r in rs])",
    ),
    "get": ("W208", "r = await self.answer(input=problem)\nreturn r.get('anser', '')"),
    "unknown operator": ("W201", "op = operator.Magic(self.llm)\nreturn 'x'"),
    "not built": ("W202", "r = await self.programer(problem=problem)\nreturn r['output']"),
    "missing argument": ("W203", "r = await self.custom(input=problem)\nreturn r['response']"),
    "unknown argument": ("W203", "r = await self.answer(input=problem, instruction='x')\nreturn r['answer']"),
    "too many": ("W203", "r = await self.answer(problem, 'x')\nreturn r['answer']"),
    "given twice": ("W203", "r = await self.custom(problem, input=problem)\nreturn r['response']"),
    "wrong name": ("W203", "r = await self.answer(problem=problem)\nreturn r['answer']"),
    "bad argument of a constructor": ("W203", "m = operator.MdEnsemble(self.llm, votes=3)\nreturn 'x'"),
    "not awaited, subscripted": ("W204", "r = self.answer(input=problem)\nreturn r['answer']"),
    "not awaited, at once": ("W204", "return self.answer(input=problem)['answer']"),
    "not awaited, bare": ("W204", "self.answer(input=problem)\nreturn 'x'"),
    "not awaited, in a call": (
        "W204",
        "r = await self.custom(self.answer(input=problem), '')\nreturn r['response']",
    ),
    "not awaited, as text": ("W204", "return f'{self.answer(input=problem)}'"),
    "unbound branch": ("W301", "if problem:\n    x = 'a'\nreturn x"),
    "unbound elif": ("W301", "if problem == 'a':\n    x = 'a'\nelif problem == 'b':\n    x = 'b'\nreturn x"),
    "unbound in try": (
        "W301",
        "try:\n    r = await self.answer(input=problem)\nexcept Exception:\n    pass\nreturn r['answer']",
    ),
    "unbound in handler": ("W301", "try:\n    x = str(1)\nexcept Exception:\n    return x\nreturn x"),
    "unbound before": ("W301", "y = x\nx = 'a'\nreturn y"),
    "unbound by break": (
        "W301",
        "while True:\n    if problem:\n        break\n    x = 'a'\nreturn x",
    ),
    "unbound in loop's branch": ("W301", "for c in 'abc':\n    if c == problem:\n        x = c\nreturn x"),
    "unbound after the condition changed": (
        "W301",
        "ok = bool(problem)\nif ok:\n    x = 'a'\nok = True\nif ok:\n    return x\nreturn 'b'",
    ),
    "unbound on the other side of a flag": (
        "W301",
        "ok = False\nif problem:\n    ok = True\n    x = 'a'\nif not ok:\n    return x\nreturn 'b'",
    ),
    "unbound match": ("W301", "match problem:\n    case 'a':\n        x = 'a'\nreturn x"),
    "unbound with suppress": (
        "W301",
        "import contextlib\nwith contextlib.suppress(Exception):\n    x = problem[0]\nreturn x",
    ),
    "error name after handler": ("W301", "try:\n    pass\nexcept Exception as e:\n    pass\nreturn str(e)"),
    "deleted": ("W301", "x = 'a'\ndel x\nreturn x"),
    "loop may not run": ("W302", "for part in problem.split():\n    x = part\nreturn x"),
    "undefined": ("W303", "return solution"),
    "undefined module": ("W303", "rs = await asyncio.gather(self.answer(problem))\nreturn rs[0]['answer']"),
    "no return": ("W304", "r = await self.answer(input=problem)"),
    "no return on a path": ("W304", "if problem:\n    return 'a'"),
    "no return in handler": ("W304", "try:\n    return problem[0]\nexcept Exception:\n    print('x')"),
    "loop may end": ("W305", "for part in problem.split():\n    if part:\n        return part"),
    "unreachable": ("W206", "return problem\nr = await self.answer(input=problem)"),
    "model called": ("W209", "return await self.llm(problem)"),
    "model's method called": ("W209", "return await self.llm.generate(prompt=problem)"),
    "attribute of a result": ("W207", "r = await self.answer(input=problem)\nreturn r.answer"),
    "prompt there is not": ("W210", "import workspace.X.workflows.round_1.prompt as p\nreturn p.ASK"),
    "result and text": ("W211", "r = await self.answer(input=problem)\nreturn problem + r"),
    "whole result": ("W401", "r = await self.answer(input=problem)\nreturn r, 0.0"),
    "whole awaited result": ("W401", "return await self.answer(input=problem)"),
    "unawaited answer": ("W401", "return self.answer(input=problem)"),
    "None": ("W401", "return None, 0.0"),
    "bare return": ("W401", "return"),
    "bool": ("W401", "return True"),
    "list": ("W401", "solutions = []\nsolutions.append(problem)\nreturn solutions, 0.0"),
    "dict": ("W401", "return {'answer': problem}, 0.0"),
    "import": ("W108", "import subprocess\nreturn problem"),
    "third party": ("W109", "import numpy as np\nreturn problem"),
}
WARNINGS = {"W208", "W302", "W305", "W206", "W108"}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_has_its_number(name: str) -> None:
    code, body = BAD[name]
    findings = [f for f in lint(workflow(body)) if f.code != "W205"]
    assert {f.code for f in findings} == {code}, findings
    assert any(f.fatal for f in findings) == (code not in WARNINGS)


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("W101", "class Workflow:\n    def"),
        ("W101", "class Workflow:\n    def __init__(self):\n        await x"),
        ("W101", "x = '\x00'"),
        ("W101", "(" * 500),
        ("W102", "x = 1"),
        ("W102", ""),
        ("W104", SEED.replace("__call__", "call")),
        ("W104", SEED.replace("async def", "def").replace("await ", "").replace("result['answer']", "'x'")),
        ("W105", SEED.replace("problem: str", "problem, entry_point, test")),
        ("W105", SEED.replace("self, problem: str", "self").replace("input=problem", "input=''")),
        ("W106", SEED.replace("name: str, llm_config, dataset", "llm_config, tools")),
    ],
)
def test_a_broken_frame_is_found(code: str, source: str) -> None:
    findings = lint(source)
    assert code in {f.code for f in findings}
    assert any(f.fatal for f in findings)


def test_code_problems_should_take_the_entry_point() -> None:
    source = workflow("return problem")
    assert codes(source) == set()
    assert codes(source, entry_point="f") == {"W107"}
    for parameters in (
        "self, problem, entry_point",
        "self, problem, entry_point='f'",
        "self, problem, *, entry_point",
    ):
        assert codes(workflow("return entry_point", parameters), entry_point="f") == set()


def test_an_operator_built_for_nothing_is_mentioned() -> None:
    source = SEED.replace(
        "operator.AnswerGenerate(self.llm)\n",
        "operator.AnswerGenerate(self.llm)\n        self.test = operator.Test(self.llm)\n",
    )
    (finding,) = lint(source)
    assert (finding.code, finding.fatal, finding.line) == ("W205", False, 5)


def test_only_allowed_operators_exist() -> None:
    findings = lint(SEED, operators=load_operators(["Custom"]))
    assert {f.code for f in findings if f.fatal} == {"W201"}
    assert lint(SEED, operators=load_operators(["AnswerGenerate"])) == []


@pytest.mark.parametrize(
    "imports",
    [
        "import operator",
        "from scripts import operators as operator",
        "from workspace.MATH.workflows.template import operator",
        "import workspace.MATH.workflows.template.operator as operator",
    ],
)
def test_aflow_imports_are_understood(imports: str) -> None:
    assert lint(f"{imports}\n{SEED}") == []
    assert codes(f"{imports}\n{SEED}".replace("['answer']", "['anser']")) == {"W207"}


def test_an_operator_imported_by_name_is_understood() -> None:
    source = "from workspace.MATH.workflows.template.operator import AnswerGenerate as A\n"
    source += SEED.replace("operator.AnswerGenerate", "A")
    assert lint(source) == []
    assert codes(source.replace("['answer']", "['anser']")) == {"W207"}


def test_every_call_line_of_the_catalog_can_be_written() -> None:
    for name, cls in catalog.OPERATORS.items():
        arguments = ", ".join(f"{parameter}=problem" for parameter in catalog.signature(cls).parameters)
        for key in cls.RESULT:
            init = INIT + f"        self.x = operator.{name}(self.llm)\n"
            assert codes(workflow(f"r = await self.x({arguments})\nreturn str(r[{key!r}])", init=init)) == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("problem: str)", "problem: str, hint: Optional[str] = None)"),
        ("problem: str):", "problem: str) -> Tuple[str, float]:"),
        ("class Workflow:\n", "class Workflow:\n    cache: Dict[str, str] = {}\n\n"),
        ("class Workflow:\n", "def clean(text):\n    return re.sub(' ', '', text)\n\n\nclass Workflow:\n"),
    ],
)
def test_names_are_looked_up_in_annotations_and_helpers_too(old: str, new: str) -> None:
    source = SEED.replace(old, new)
    assert [f.code for f in lint(source)] == ["W303"]
    for imports in ("import re\nfrom typing import Dict, Optional, Tuple", "import re\nfrom typing import *"):
        assert lint(f"{imports}\n{source}") == []
    if "re." not in new:
        assert lint(f"from __future__ import annotations\n{source}") == []


def test_a_static_method_has_no_self() -> None:
    method = "    @staticmethod\n    def clean(text: str) -> str:\n        return text.strip().rstrip('.')\n\n"
    source = SEED.replace("    async def", f"{method}    async def").replace(
        "result['answer'],", "self.clean(result['answer']),"
    )
    assert lint(source) == []


def test_an_import_for_type_checkers_is_not_looked_up() -> None:
    assert lint(f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from models import LLM\n{SEED}") == []


def test_every_code_is_tested_and_has_a_meaning() -> None:
    tested = {code for code, _ in BAD.values()}
    tested |= {"W101", "W102", "W104", "W105", "W106", "W107", "W205"}
    assert tested == set(CODES)
    assert all(meaning for meaning, _ in CODES.values())


def test_messages_say_what_to_write_instead() -> None:
    (finding,) = [f for f in lint(workflow("return await self.answer(input=problem)")) if f.fatal]
    assert "['answer']" in finding.message
    (finding,) = [f for f in lint(workflow(BAD["missing argument"][1])) if f.fatal]
    assert "Custom(input, instruction): missing a required argument: 'instruction'" in finding.message
