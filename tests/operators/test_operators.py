"""Each operator with a scripted model: what it asks, and what it makes of good and bad replies."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scripted import ARGUMENTS, CODE, DOUBLE, SQUARE, Chat, Ran, Reply, Runner, build

from llm_as_judge.errors import ProviderError
from llm_as_judge.operators import catalog

MALFORMED = (
    "", " \n ", "None", "null", "no tags at all", "<answer>", "<answer></answer>", "<thought>only this", "</solution>",
    "<solution_letter>Z</solution_letter>", "<solution_letter>", "<review_result>perhaps</review_result>",
    "```python\n", "```", "{input} {0} {}", "<answer><answer><answer>", "\x00",
)  # fmt: skip
ENSEMBLES = (("ScEnsemble", "response"), ("MdEnsemble", "solution"))


class Cut:
    """A model whose reply was cut off."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def chat(self, prompt: str, **options: Any) -> Reply:
        return Reply(self.text, "length")


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


async def test_every_documented_key_is_there_whatever_the_model_says() -> None:
    types = {"str": str, "bool": bool}
    wrong = []
    for name, operator in catalog.OPERATORS.items():
        expected = {key: types[word] for key, word in catalog.result_keys(operator).items()}
        for reply in MALFORMED:
            result = await build(name, Chat(reply), question=CODE)(**ARGUMENTS[name])
            if {key: type(value) for key, value in result.items()} != expected:
                wrong.append((name, reply, result))
    assert not wrong


async def test_an_empty_reply_is_marked_and_a_failing_provider_is_not_an_answer() -> None:
    for name in catalog.OPERATORS:
        if name != "Test":
            assert not (await build(name, Chat(""))(**ARGUMENTS[name]))["parse_ok"], name
        with pytest.raises(ProviderError):
            await build(name, Down(), question=CODE)(**ARGUMENTS[name])


async def test_custom_sends_the_instruction_and_the_input() -> None:
    for instruction, prompt in (("Calculate.", "Calculate.\n6*7"), ("", "6*7")):
        chat = Chat(" 42 \n")
        result = await build("Custom", chat)(input="6*7", instruction=instruction)
        assert chat.prompts == [prompt] and (result["response"], result["parse_ok"]) == ("42", True)


class TestAnswerGenerate:
    async def test_thought_and_answer_are_kept_apart(self) -> None:
        chat = Chat("<thought>six sevens</thought>\n<answer> 42 </answer>")
        result = await build("AnswerGenerate", chat)(input=r"\frac{1}{2} {input}")
        assert (result["thought"], result["answer"], result["parse_ok"]) == ("six sevens", "42", True)
        assert r"\frac{1}{2} {input}" in chat.prompts[0], "braces in the problem are text"

    async def test_without_tags_the_whole_reply_is_the_answer(self) -> None:
        result = await build("AnswerGenerate", Chat(" It is 42.\n"))(input="x")
        assert (result["answer"], result["parse_ok"]) == ("It is 42.", False)
        assert result["error"] == "no <answer> in the reply"

    async def test_a_reply_cut_off_before_its_answer_has_none(self) -> None:
        for text in ("7 and 6 make 13", "<thought>6 * 7", "<thought>t</thought><answer>4"):
            result = await build("AnswerGenerate", Cut(text))(input="x")
            assert (result["answer"], result["parse_ok"]) == ("", False)
        assert (await build("AnswerGenerate", Cut("<answer>42</answer> and"))(input="x"))["answer"] == "42"


class TestCustomCodeGenerate:
    async def test_the_code_of_the_function_is_returned(self) -> None:
        example = f"Here:\n```python\n{SQUARE}\n```\nUse it so:\n```python\nprint(f(2))\n```"
        for reply in (example, SQUARE, f"```py\n{SQUARE}", f"```\n{SQUARE}\n```", f"\n{SQUARE}\n\n"):
            chat = Chat(reply)
            result = await build("CustomCodeGenerate", chat)(problem="Sq.", entry_point="f", instruction="Be brief.")
            assert (result["response"], result["parse_ok"]) == (SQUARE, True), reply
            assert chat.prompts[0].startswith("Be brief.\nWrite the Python function f ")
        result = await build("CustomCodeGenerate", Chat("I cannot."))(problem="p", entry_point="f", instruction="")
        assert (result["parse_ok"], result["error"]) == (False, "no f in the reply")

    async def test_signature_and_one_public_test_are_shown_if_there_are_any(self) -> None:
        question = replace(CODE, text='Complete.\n\ndef f(\n    x: int,\n) -> int:\n    """Square."""\n')
        for asked, shown in ((CODE, False), (question, True)):
            chat = Chat(SQUARE)
            await build("CustomCodeGenerate", chat, question=asked)(problem="p", entry_point="f", instruction="")
            assert ("Signature: def f( x: int, ) -> int:\n" in chat.prompts[0]) is shown
            assert "It must pass, for example: assert f(2) == 4\n" in chat.prompts[0]
            assert "f(3)" not in chat.prompts[0], "the others are for Test"


class TestEnsembles:
    async def test_the_named_solution_wins(self) -> None:
        for name, key in ENSEMBLES:
            chat = Chat(by=voting_for("cherry"))
            result = await build(name, chat)(solutions=["apple", "banana", "cherry"], problem="Which?")
            assert result[key] == "cherry" and all("Which?" in prompt for prompt in chat.prompts)

    async def test_agreement_costs_no_call(self) -> None:
        for name, key in ENSEMBLES:
            for solutions in (["42"], ["42", " 42\n", "42"]):
                chat = Chat("")
                result = await build(name, chat)(solutions=solutions, problem="p")
                assert (result[key], result["parse_ok"], chat.prompts) == ("42", True, [])

    async def test_no_solutions_or_more_than_letters_are_refused(self) -> None:
        for name, _ in ENSEMBLES:
            for count in (0, 27):
                with pytest.raises(ValueError, match=f"1 to 26 entries, got {count}"):
                    await build(name, Chat(""))(solutions=[str(i) for i in range(count)], problem="p")
        chat = Chat("<solution_letter>Z</solution_letter>")
        result = await build("ScEnsemble", chat)(solutions=list(range(26)), problem="p")
        assert result["response"] == "25" and "\nZ: 25" in chat.prompts[0]

    async def test_without_a_usable_letter_the_most_frequent_is_taken_and_marked(self) -> None:
        for said in ("", "Z", "none of them", "42"):
            chat = Chat(f"<solution_letter>{said}</solution_letter>")
            result = await build("ScEnsemble", chat)(solutions=["41", "42", "42"], problem="6*7")
            assert (result["response"], result["parse_ok"]) == ("42", False), said
        result = await build("MdEnsemble", Chat("I cannot say."))(solutions=["a", "b", "b"], problem="p")
        assert (result["solution"], result["parse_ok"], result["error"]) == ("b", False, "no vote could be read")

    async def test_votes_run_at_once_in_different_but_fixed_orders(self) -> None:
        first, second = Chat(by=voting_for("b")), Chat(by=voting_for("b"))
        state = random.getstate()
        for chat in (first, second):
            await build("MdEnsemble", chat)(solutions=["a", "b", "c"], problem="p")
        assert (len(first.prompts), first.most_at_once) == (5, 5)
        assert len(set(first.prompts)) > 1 and first.prompts == second.prompts
        assert random.getstate() == state, "the order must not draw on the global generator"

    async def test_unreadable_votes_are_skipped(self) -> None:
        said = iter(["", "no tags", voting_for("c"), "<solution_letter>Q</solution_letter>", voting_for("c")])

        def reply(prompt: str) -> str:
            say = next(said)
            return say if isinstance(say, str) else say(prompt)

        result = await build("MdEnsemble", Chat(by=reply))(solutions=["a", "b", "c"], problem="p")
        assert (result["solution"], result["parse_ok"]) == ("c", True)

    async def test_the_constructor_sets_the_number_of_votes(self) -> None:
        chat = Chat(by=voting_for("b"))
        await build("MdEnsemble", chat, vote_count=2)(solutions=["a", "b"], problem="p")
        assert len(chat.prompts) == 2
        with pytest.raises(ValueError, match="vote_count must be >= 1, got 0"):
            build("MdEnsemble", chat, vote_count=0)


class TestProgrammer:
    async def test_the_program_is_run_and_its_value_is_the_output(self) -> None:
        for value, output in (("6 * 7", "42"), ("0", "0"), ("False", "False"), ("''", ""), ("[1, 2]", "[1, 2]")):
            chat, runner = Chat(f"```python\ndef solve():\n    return {value}\n```"), Runner()
            result = await build("Programmer", chat, run_code=runner)(problem="6*7")
            assert (result["code"], result["output"]) == (f"def solve():\n    return {value}", output)
            assert result["parse_ok"] and runner.sources == [result["code"]] and len(chat.prompts) == 1

    async def test_an_error_is_fed_back_and_the_next_program_counts(self) -> None:
        chat = Chat("def solve():\n    return 1 / 0", "def solve():\n    return 42")
        result = await build("Programmer", chat)(problem="6*7")
        assert "failed" not in chat.prompts[0]
        assert "Error: ZeroDivisionError: division by zero" in chat.prompts[1] and "return 1 / 0" in chat.prompts[1]
        assert (result["output"], result["parse_ok"], len(chat.prompts)) == ("42", True, 2)
        chat = Chat("def solve(): ...")
        await build("Programmer", chat, run_code=time_out)(problem="p")
        assert "Error: timeout" in chat.prompts[1]

    async def test_after_three_tries_there_is_an_error_and_no_output(self) -> None:
        for program, error in (
            ("def solve():\n    pass", "solve() returned None"),
            ("x = 1", "KeyError"),
            ("def solve(", "SyntaxError"),
        ):
            chat, runner = Chat(program), Runner()
            result = await build("Programmer", chat, run_code=runner)(problem="p")
            assert (len(chat.prompts), len(runner.sources)) == (3, 3)
            assert not result["parse_ok"] and error in result["error"]
            assert (result["output"], result["code"]) == ("", program)

    async def test_the_analysis_is_in_the_prompt_if_there_is_one(self) -> None:
        chat = Chat("def solve():\n    return 1")
        programmer = build("Programmer", chat)
        await programmer(problem="p", analysis="Multiply.")
        await programmer(problem="p")
        assert "Analysis: Multiply." in chat.prompts[0] and "Analysis" not in chat.prompts[1]


class TestTest:
    async def test_code_that_passes_costs_no_call(self) -> None:
        chat, runner = Chat(""), Runner()
        test = build("Test", chat, question=CODE, run_code=runner)
        result = await test(problem="Square.", solution=f"```python\n{SQUARE}\n```", entry_point="f")
        assert result["result"] is True and result["solution"] == SQUARE
        assert (chat.prompts, len(runner.sources)) == ([], 2), "one run for each public test"
        assert "f(2)" in runner.sources[0]

    async def test_a_failure_is_fed_back_with_test_and_value_and_repaired(self) -> None:
        chat = Chat(f"```python\n{SQUARE}\n```")
        result = await build("Test", chat, question=CODE)(problem="Square it.", solution=DOUBLE, entry_point="f")
        assert (result["result"], result["solution"], len(chat.prompts)) == (True, SQUARE, 1)
        for part in ("Square it.", DOUBLE, "Test: assert f(3) == 9", "Error: got 6, expected 9", "function f:"):
            assert part in chat.prompts[0]

    async def test_there_are_as_many_repairs_as_asked_for(self) -> None:
        for given, loops in (({"test_loop": 0}, 0), ({"test_loop": 1}, 1), ({}, 3)):
            chat, runner = Chat(DOUBLE), Runner()
            test = build("Test", chat, question=CODE, run_code=runner)
            result = await test(problem="p", solution=DOUBLE, entry_point="f", **given)
            assert (result["result"], result["solution"], len(chat.prompts)) == (False, DOUBLE, loops)
            assert len(runner.sources) == 2 * (loops + 1), "the last repair is tested too"
            assert result["error"] == "assert f(3) == 9: got 6, expected 9"

    async def test_asserts_of_any_form_are_judged(self) -> None:
        for test in ("assert f(2) in (4, 5)", "assert abs(f(2) - 4) < 1e-9", "assert f(2) == 4, 'no'"):
            for code, passes in ((SQUARE, True), ("def f(x):\n    return -x", False)):
                operator = build("Test", Chat(""), question=replace(CODE, public_tests=(test,)))
                result = await operator(problem="p", solution=code, entry_point="f", test_loop=0)
                assert result["result"] is passes, (test, code)

    async def test_without_public_tests_the_function_must_exist_and_nothing_more(self) -> None:
        operator = build("Test", Chat(""), question=replace(CODE, public_tests=()))
        for code, passes in ((SQUARE, True), ("f = 3", False), ("def g(): pass", False), ("", False)):
            result = await operator(problem="p", solution=code, entry_point="f", test_loop=0)
            assert result["result"] is passes, code
        result = await operator(problem="p", solution=SQUARE, entry_point="What is 6 times 7?", test_loop=0)
        assert result["result"] is False

    async def test_code_that_does_not_end_fails_with_the_sandboxes_reason(self) -> None:
        operator = build("Test", Chat(""), question=CODE, run_code=time_out)
        result = await operator(problem="p", solution=SQUARE, entry_point="f", test_loop=0)
        assert result["result"] is False and result["error"] == "assert f(2) == 4: timeout"


class TestReview:
    async def test_a_review_or_a_revision_cut_off_changes_nothing(self) -> None:
        review = await build("Review", Cut("<feedback>x</feedback><review_result>Fal"))(problem="p", solution="s")
        assert (review["review_result"], review["parse_ok"]) == (True, False)
        revised = await build("Revise", Cut("<solution>4"))(problem="p", solution="41", feedback="f")
        assert (revised["solution"], revised["parse_ok"]) == ("41", False)

    async def test_format_reduces_to_the_answer(self) -> None:
        chat = Chat(" 42\n")
        result = await build("Format", chat)(problem="What is 6*7?", solution="Six sevens make 42.")
        assert (result["response"], result["parse_ok"]) == ("42", True)
        assert "What is 6*7?" in chat.prompts[0] and "Six sevens make 42." in chat.prompts[0]

    async def test_a_review_is_a_real_bool(self) -> None:
        for word, verdict in (("True", True), ("False", False), (" false\n", False), ("TRUE", True)):
            chat = Chat(f"<feedback>Look again.</feedback><review_result>{word}</review_result>")
            result = await build("Review", chat)(problem="6*7", solution="41")
            assert result["review_result"] is verdict and result["parse_ok"]
            assert result["feedback"] == "Look again."
        for reply in ("Looks right.", "<review_result>maybe</review_result>", ""):
            result = await build("Review", Chat(reply))(problem="p", solution="s")
            assert result["review_result"] is True and not result["parse_ok"], "unreadable: no objection"

    async def test_a_revision_uses_problem_solution_and_feedback(self) -> None:
        chat = Chat("<solution>42</solution>")
        result = await build("Revise", chat)(problem="six sevens", solution="41", feedback="Too small.")
        assert (result["solution"], result["parse_ok"]) == ("42", True)
        assert all(part in chat.prompts[0] for part in ("six sevens", "41", "Too small."))
        for reply, solution in (("It is 42.", "It is 42."), ("", "41"), (" \n", "41")):
            result = await build("Revise", Chat(reply))(problem="p", solution="41", feedback="f")
            assert (result["solution"], result["parse_ok"]) == (solution, False), reply
