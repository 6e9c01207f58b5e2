"""The operators' signatures are AFlow's, the documentation comes from the classes, Layer 2 reaches every prompt."""

from __future__ import annotations

import pytest
from scripted import ARGUMENTS, CODE, Chat, build

from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog

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


def test_the_operators_are_aflows_ten() -> None:
    assert list(catalog.OPERATORS) == list(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_calls_and_keys_are_aflows(name: str) -> None:
    call, keys = CONTRACT[name]
    assert catalog.call_line(catalog.OPERATORS[name]) == call
    assert catalog.result_keys(catalog.OPERATORS[name]) == {**keys, "parse_ok": "bool", "error": "str"}


def test_only_the_vote_has_a_constructor_argument() -> None:
    arguments = {name: str(catalog.init_signature(catalog.OPERATORS[name])) for name in CONTRACT}
    assert arguments.pop("MdEnsemble").startswith("(vote_count: 'int' = 5)")
    assert {text.partition(" ->")[0] for text in arguments.values()} == {"()"}


def test_the_documentation_names_every_call_and_key() -> None:
    lines = catalog.docs().splitlines()
    assert len(lines) == len(CONTRACT)
    for line, (call, keys) in zip(lines, CONTRACT.values(), strict=True):
        assert line.startswith(f"{call} -> {', '.join(keys)}: ")


def test_the_documentation_of_some_is_of_these_in_their_order() -> None:
    assert [
        line.partition("(")[0] for line in catalog.docs(catalog.load_operators(["Test", "Custom"])).splitlines()
    ] == ["Test", "Custom"]


def test_an_unknown_operator_is_told_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"unknown operator 'Magic'. There are AnswerGenerate, Custom"):
        catalog.load_operators(["Custom", "Magic"])


@pytest.mark.parametrize("name", CONTRACT)
async def test_the_layer_2_line_comes_first_in_every_prompt(name: str) -> None:
    asked = []

    def enhance(operator: str, domain: str) -> str:
        asked.append((operator, domain))
        return "Mind the units."

    plain, enhanced = Chat(""), Chat("")
    await build(name, plain, question=CODE)(**ARGUMENTS[name])
    await build(name, enhanced, question=CODE, enhance=enhance)(**ARGUMENTS[name])
    assert plain.prompts
    assert enhanced.prompts == [f"Mind the units.\n{prompt}" for prompt in plain.prompts]
    assert set(asked) == {(name, "code")}
