"""Operators and their catalog."""

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import astuple, fields, replace
from typing import Any

import pytest
from helpers.tables import tables
from helpers.workflows import CODE, DOUBLE, SQUARE
from scripted import ARGUMENTS, Chat, Ran, Runner, build

from llm_as_judge.answers.code import defining_block
from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import SandboxConfig
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox
from llm_as_judge.operators.prompts import FULL, SHORT, Prompts, prompts_of
from llm_as_judge.operators.replies import chosen_index, field, truth
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Exchange

TABLES = tables(__file__)

MALFORMED = TABLES["MALFORMED"]
ENSEMBLES = (("ScEnsemble", "response"), ("MdEnsemble", "solution"))
GENERATED = {"problem": "Sq.", "entry_point": "f", "instruction": "Be brief."}
EXAMPLE = f"Here:\n```python\n{SQUARE}\n```\nUse it so:\n```python\nprint(f(2))\n```"
SOLVED = {"problem": "6*7", "solution": "41"}
REVIEWED = "<feedback>Look again.</feedback><review_result>{}</review_result>"
REVISED = {**SOLVED, "feedback": "Too small."}
UNREAD = {"parse_ok": False}
#: Operator, reply, arguments and a part of the result.
CASES: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = TABLES["CASES"]
#: The same for a reply that was cut off: what is not closed does not count.
CUT_OFF: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = TABLES["CUT_OFF"]


class Cut(Chat):
    """A model whose reply was cut off."""

    async def chat(self, prompt: str) -> Exchange:
        return replace(await super().chat(prompt), finish_reason="length")


class Down:
    async def chat(self, prompt: str, **options: Any) -> Any:
        raise ProviderError("no reply")


async def time_out(source: str, **options: Any) -> Ran:
    return Ran("timeout")


def voting_for(solution: str) -> Callable[[str], str]:
    """A reply that names the letter at which ``solution`` is shown."""

    def reply(prompt: str) -> str:
        found = re.search(rf"^([A-Z]): {re.escape(solution)}$", prompt, re.MULTILINE)
        assert found, prompt
        return f"<thought>...</thought><solution_letter>{found.group(1)}</solution_letter>"

    return reply


async def test_every_documented_key_is_there_and_a_failing_provider_is_no_answer() -> None:
    types = {"str": str, "bool": bool}
    wrong = []
    for name, operator in catalog.OPERATORS.items():
        expected = {key: types[word] for key, word in catalog.result_keys(operator).items()}
        for reply in MALFORMED:
            result = await build(name, Chat(reply), question=CODE)(**ARGUMENTS[name])
            if {key: type(value) for key, value in result.items()} != expected:
                wrong.append((name, reply, result))
    assert not wrong
    for name in catalog.OPERATORS:
        if name != "Test":
            assert not (await build(name, Chat(""))(**ARGUMENTS[name]))["parse_ok"], name
        with pytest.raises(ProviderError):
            await build(name, Down(), question=CODE)(**ARGUMENTS[name])


async def test_replies_are_read_as_documented_and_arguments_and_tests_are_shown() -> None:
    wrong = []
    for model, cases in ((Chat, CASES), (Cut, CUT_OFF)):
        for name, reply, arguments, expected in cases:
            chat = model(reply)
            result = await build(name, chat)(**arguments)
            if not expected.items() <= result.items():
                wrong.append((name, reply, result))
            shown = [part for value in arguments.values() for part in (value if isinstance(value, list) else [value])]
            missing = [part for part in shown if isinstance(chat, Chat) and part not in chat.prompts[0]]
            wrong += [(name, "not in the prompt", part) for part in missing]
    assert not wrong
    question = replace(CODE, text='Complete.\n\ndef f(\n    x: int,\n) -> int:\n    """Square."""\n')
    for asked, shown in ((CODE, False), (question, True)):
        chat = Chat(SQUARE)
        await build("CustomCodeGenerate", chat, question=asked)(**GENERATED)
        assert ("Signature: def f( x: int, ) -> int:\n" in chat.prompts[0]) is shown
        assert "It must pass, for example: assert f(2) == 4\n" in chat.prompts[0]
        assert "f(3)" not in chat.prompts[0], "the others are for Test"


async def test_the_named_solution_wins_and_votes_run_at_once_in_fixed_orders() -> None:
    for name, key in ENSEMBLES:
        chat = Chat(by=voting_for("cherry"))
        result = await build(name, chat)(solutions=["apple", "banana", "cherry"], problem="Which?")
        assert result[key] == "cherry"
        for solutions in (["42"], ["42", " 42\n", "42"]):
            chat = Chat("")
            result = await build(name, chat)(solutions=solutions, problem="p")
            assert (result[key], result["parse_ok"], chat.prompts) == ("42", True, [])
        for count in (0, 27):
            with pytest.raises(ValueError, match=f"1 to 26 entries, got {count}"):
                await build(name, Chat(""))(solutions=[str(i) for i in range(count)], problem="p")
    chat = Chat("<solution_letter>Z</solution_letter>")
    result = await build("ScEnsemble", chat)(solutions=list(range(26)), problem="p")
    assert result["response"] == "25" and "\nZ: 25" in chat.prompts[0]
    first, second, two = (Chat(by=voting_for("b")) for _ in range(3))
    state = random.getstate()
    for chat in (first, second):
        await build("MdEnsemble", chat)(solutions=["a", "b", "c"], problem="p")
    assert (len(first.prompts), first.most_at_once) == (5, 5)
    assert len(set(first.prompts)) > 1 and first.prompts == second.prompts
    assert random.getstate() == state, "the order must not draw on the global generator"
    await build("MdEnsemble", two, vote_count=2)(solutions=["a", "b"], problem="p")
    assert len(two.prompts) == 2
    with pytest.raises(ValueError, match="vote_count must be >= 1, got 0"):
        build("MdEnsemble", two, vote_count=0)


async def test_programmer_feeds_an_error_back_and_gives_up_after_three_tries() -> None:
    chat = Chat("def solve():\n    return 1 / 0", "def solve():\n    return 42")
    result = await build("Programmer", chat)(problem="6*7", analysis="Multiply.")
    assert "Analysis: Multiply." in chat.prompts[0] and "failed" not in chat.prompts[0]
    assert "Error: ZeroDivisionError: division by zero" in chat.prompts[1] and "return 1 / 0" in chat.prompts[1]
    assert (result["output"], result["parse_ok"], len(chat.prompts)) == ("42", True, 2)
    for program, error, run_code in (
        ("def solve():\n    pass", "solve() returned None", Runner()),
        ("def solve(", "SyntaxError", Runner()),
        ("def solve(): ...", "timeout", time_out),
    ):
        chat = Chat(program)
        result = await build("Programmer", chat, run_code=run_code)(problem="p")
        assert len(chat.prompts) == 3 and f"Error: {error}" in chat.prompts[1] and "Analysis" not in chat.prompts[0]
        assert (result["output"], result["code"], result["parse_ok"]) == ("", program, False)


async def test_test_runs_public_tests_if_there_are_any_and_repairs_what_fails() -> None:
    chat, runner = Chat(""), Runner()
    test = build("Test", chat, question=CODE, run_code=runner)
    result = await test(problem="Square.", solution=f"```python\n{SQUARE}\n```", entry_point="f")
    assert result["result"] is True and result["solution"] == SQUARE
    assert (chat.prompts, len(runner.sources)) == ([], 2), "one run for each public test"
    chat = Chat(f"```python\n{SQUARE}\n```")
    result = await build("Test", chat, question=CODE)(problem="Square it.", solution=DOUBLE, entry_point="f")
    assert (result["result"], result["solution"], len(chat.prompts)) == (True, SQUARE, 1)
    for part in ("Square it.", DOUBLE, "Test: assert f(3) == 9", "Error: got 6, expected 9", "function f:"):
        assert part in chat.prompts[0]
    for given, loops in (({"test_loop": 0}, 0), ({"test_loop": 1}, 1), ({}, 3)):
        chat, runner = Chat(DOUBLE), Runner()
        test = build("Test", chat, question=CODE, run_code=runner)
        result = await test(problem="p", solution=DOUBLE, entry_point="f", **given)
        assert (result["result"], result["solution"], len(chat.prompts)) == (False, DOUBLE, loops)
        assert len(runner.sources) == 2 * (loops + 1), "the last repair is tested too"
        assert result["error"] == "assert f(3) == 9: got 6, expected 9"
    wrong = []
    for code, name, passes in (
        (SQUARE, "f", True), ("f = 3", "f", False), ("def g(): pass", "f", False), ("", "f", False),
        (SQUARE, "What is 6 times 7?", False),
    ):  # fmt: skip
        operator = build("Test", Chat(""), question=replace(CODE, public_tests=()))
        result = await operator(problem="p", solution=code, entry_point=name, test_loop=0)
        wrong += [] if result["result"] is passes else [(code, name)]
    assert not wrong
    operator = build("Test", Chat(""), question=CODE, run_code=time_out)
    result = await operator(problem="p", solution=SQUARE, entry_point="f", test_loop=0)
    assert result["error"] == "assert f(2) == 4: timeout", "code that does not end"


async def test_a_program_is_asked_for_and_repaired_as_one() -> None:
    question = replace(CODE, entry_point="__main__", public_tests=("assert __main__('3') == '9'",))
    chat = Chat("```python\nprint(int(input()) ** 2)\n```")
    written = await build("CustomCodeGenerate", chat, question=question)(
        problem="p", entry_point="__main__", instruction=""
    )
    async with Sandbox(SandboxConfig(mode="unsafe")) as sandbox:  # a program replaces standard streams and threads
        test = build("Test", chat, question=question, run_code=sandbox.run_code)
        result = await test(problem="p", solution="print(input())", entry_point="__main__")
    assert written["parse_ok"] and result["result"] and result["solution"] == written["response"]
    assert "the Python program" in chat.prompts[0] and "got '3', expected '9'" in chat.prompts[1]
    assert not any("function __main__" in prompt for prompt in chat.prompts)


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
    assert {text: chosen_index(text, 4) for text in LETTERS} == LETTERS
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
