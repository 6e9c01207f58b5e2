"""The operators' signatures are AFlow's, the documentation comes from the classes, and prompts fit their executor."""

import hashlib
from dataclasses import astuple, fields

import pytest
from scripted import ARGUMENTS, CODE, Chat, Runner, build

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox
from llm_as_judge.operators.prompts import FULL, SHORT, Prompts, prompts_of

#: AFlow's call and keys of each operator.
CONTRACT = {
    "Custom": ("Custom(input, instruction)", {"response": "str"}),
    "AnswerGenerate": ("AnswerGenerate(input)", {"thought": "str", "answer": "str"}),
    "CustomCodeGenerate": ("CustomCodeGenerate(problem, entry_point, instruction)", {"response": "str"}),
    "ScEnsemble": ("ScEnsemble(solutions, problem)", {"response": "str"}),
    "MdEnsemble": ("MdEnsemble(solutions, problem)", {"solution": "str"}),
    "Programmer": ("Programmer(problem, analysis='None')", {"code": "str", "output": "str"}),
    "Test": ("Test(problem, solution, entry_point, test_loop=3)", {"result": "bool", "solution": "str"}),
    "Format": ("Format(problem, solution)", {"response": "str"}),
    "Review": ("Review(problem, solution)", {"review_result": "bool", "feedback": "str"}),
    "Revise": ("Revise(problem, solution, feedback)", {"solution": "str"}),
}
MARK = "ZQX17"


def test_names_calls_and_keys_are_aflows() -> None:
    common = {"parse_ok": "bool", "error": "str"}
    found = {name: (catalog.call_line(o), catalog.result_keys(o)) for name, o in catalog.OPERATORS.items()}
    assert found == {name: (call, {**keys, **common}) for name, (call, keys) in CONTRACT.items()}
    assert list(found) == list(CONTRACT)
    init = {name: list(catalog.init_signature(o).parameters) for name, o in catalog.OPERATORS.items()}
    assert {name: given for name, given in init.items() if given} == {"MdEnsemble": ["vote_count"]}


def test_the_documentation_names_every_call_and_key_of_the_chosen_operators() -> None:
    for names in (list(CONTRACT), ["Test", "Custom"]):
        lines = catalog.docs(catalog.load_operators(names)).splitlines()
        for line, name in zip(lines, names, strict=True):
            call, keys = CONTRACT[name]
            assert line.startswith(f"{call} -> {', '.join(keys)}: ")
    with pytest.raises(ConfigError, match=r"unknown operator 'Magic'. There are AnswerGenerate, Custom"):
        catalog.load_operators(["Custom", "Magic"])


async def test_the_layer_2_line_comes_first_in_every_prompt() -> None:
    for name in CONTRACT:
        plain, enhanced = Chat(""), Chat("")
        await build(name, plain, question=CODE)(**ARGUMENTS[name])
        await build(name, enhanced, question=CODE, enhance="{} for {}".format)(**ARGUMENTS[name])
        assert plain.prompts
        assert enhanced.prompts == [f"{name} for code\n{prompt}" for prompt in plain.prompts]


def test_the_embedded_executor_has_the_prompts_it_was_trained_on() -> None:
    """A change here needs another training of the executor."""
    assert prompts_of(EndpointConfig(provider="embedded")) is SHORT
    assert prompts_of(EndpointConfig(provider="openai")) is FULL
    digest = hashlib.sha256("\0".join(astuple(SHORT)).encode()).hexdigest()
    assert digest == "a24231bcb4bbd7f09985431f714cf1e31d756d62badc7edd53f868151e1946c9"


async def prompts(name: str, style: Prompts) -> list[str]:
    """What the operator sends if nothing succeeds; the problem is marked."""
    chat, arguments = Chat("def f(x):\n    return 1"), dict(ARGUMENTS[name])
    arguments["input" if "input" in arguments else "problem"] = MARK
    tools = Toolbox(chat, Runner(), CODE, prompts=style)  # type: ignore[arg-type]
    await catalog.OPERATORS[name](tools)(**arguments)
    return chat.prompts


async def test_every_prompt_is_complete_and_the_full_one_has_the_problem_last() -> None:
    wrong = []
    for name in CONTRACT:
        for prompt in [*await prompts(name, FULL), *await prompts(name, SHORT)]:
            if MARK not in prompt or "{" in prompt or "\n\n\n" in prompt:
                wrong.append((name, prompt))
        for prompt in await prompts(name, FULL) if name != "Custom" else ():
            forms = prompt.count("and nothing else")
            if not prompt.endswith(f"Problem:\n{MARK}") or forms != (0 if name == "Format" else 1):
                wrong.append((name, prompt))
    assert not wrong
    assert all(getattr(FULL, field.name) for field in fields(FULL))
