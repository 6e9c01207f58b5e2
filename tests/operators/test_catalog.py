"""The operators' signatures are AFlow's, their prompts complete, and replies are read without guessing."""

import hashlib
from dataclasses import astuple, fields

import pytest
from helpers.tables import tables
from helpers.workflows import CODE
from scripted import ARGUMENTS, Chat, Runner, build

from llm_as_judge.answers.code import defining_block
from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox
from llm_as_judge.operators.prompts import FULL, SHORT, Prompts, prompts_of
from llm_as_judge.operators.reading import chosen_letter, field, truth

TABLES = tables(__file__)

#: AFlow's call and keys of each operator.
CONTRACT = TABLES["CONTRACT"]
MARK = "ZQX17"


def test_names_calls_and_keys_are_aflows_and_documented() -> None:
    common = {"parse_ok": "bool", "error": "str"}
    found = {name: (catalog.call_line(o), catalog.result_keys(o)) for name, o in catalog.OPERATORS.items()}
    assert found == {name: (call, {**keys, **common}) for name, (call, keys) in CONTRACT.items()}
    assert list(found) == list(CONTRACT)
    init = {name: list(catalog.init_signature(o).parameters) for name, o in catalog.OPERATORS.items()}
    assert {name: given for name, given in init.items() if given} == {"MdEnsemble": ["vote_count"]}
    for names in (list(CONTRACT), ["Test", "Custom"]):
        lines = catalog.docs(catalog.load_operators(names)).splitlines()
        for line, name in zip(lines, names, strict=True):
            call, keys = CONTRACT[name]
            assert line.startswith(f"{call} -> {', '.join(keys)}: ")
    with pytest.raises(ConfigError, match=r"unknown operator 'Magic'. There are AnswerGenerate, Custom"):
        catalog.load_operators(["Custom", "Magic"])


async def test_every_prompt_is_complete_with_layer_2_first() -> None:
    for name in CONTRACT:
        plain, enhanced = Chat(""), Chat("")
        await build(name, plain, question=CODE)(**ARGUMENTS[name])
        await build(name, enhanced, question=CODE, enhance="{} for {}".format)(**ARGUMENTS[name])
        assert plain.prompts
        assert enhanced.prompts == [f"{name} for code\n{prompt}" for prompt in plain.prompts]
    # A change here needs another training of the executor.
    assert prompts_of(EndpointConfig(provider="embedded")) is SHORT
    assert prompts_of(EndpointConfig(provider="openai")) is FULL
    digest = hashlib.sha256("\0".join(astuple(SHORT)).encode()).hexdigest()
    assert digest == "a24231bcb4bbd7f09985431f714cf1e31d756d62badc7edd53f868151e1946c9"
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


async def prompts(name: str, style: Prompts) -> list[str]:
    """What the operator sends if nothing succeeds; the problem is marked."""
    chat, arguments = Chat("def f(x):\n    return 1"), dict(ARGUMENTS[name])
    arguments["input" if "input" in arguments else "problem"] = MARK
    tools = Toolbox(chat, Runner(), CODE, prompts=style)  # type: ignore[arg-type]
    await catalog.OPERATORS[name](tools)(**arguments)
    return chat.prompts


ANSWERS = TABLES["ANSWERS"]
VERDICTS = TABLES["VERDICTS"]
LETTERS = TABLES["LETTERS"]


def test_answers_verdicts_letters_and_code_are_read() -> None:
    assert {text: field(text, "answer") for text in ANSWERS} == ANSWERS
    assert {text: truth(text) for text in VERDICTS} == VERDICTS
    assert {text: chosen_letter(text, 4) for text in LETTERS} == LETTERS
    solution = "def f():\n    x = 1\n\n    return x"
    assert field(f"Corrected solution:\n{solution}", "solution") == solution, "a labelled solution goes to the end"
    assert field("<feedback>good</feedback><review_result>Tr", "review_result", cut=True) is None
    assert field("<feedback>good</feedback><review_result>Tr", "feedback", cut=True) == "good"
    assert field("Answer: 4", "answer", cut=True) is None
    texts = (
        SOURCE, f"```python\n{SOURCE}\n```", f"```\n{SOURCE}\n```\nThis works.",
        f"Sure! Here is it:\n\n```Python\n{SOURCE}\n```\n\nExample:\n\n```python\nassert f(2) == 4\n```",
        f"```python\nx = 1\n```\nBetter:\n```python\n{SOURCE}\n```", f"```python\n{SOURCE}",
        f"Here is the function:\n{SOURCE}\n\nThis function squares a number.",
        f"{SOURCE}\n\n- It uses one multiplication",
    )  # fmt: skip
    assert [text for text in texts if defining_block(text, "f") != SOURCE] == []
    for text in ("I cannot do that.", "def f(:\n    pass\nThis is it"):
        assert defining_block(text, "f") == text, "what is not code is left as it is"


SOURCE = "import math\n\n\ndef f(x):\n    # The square\n    return x * x"
