"""Each operator with a scripted model: what it asks, what it makes of replies good and bad, how AFlow's own failed."""

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

MALFORMED = [
    "",
    " \n ",
    "None",
    "null",
    "no tags at all",
    "<answer>",
    "<answer></answer>",
    "<thought>only this",
    "</solution>",
    "<solution_letter>Z</solution_letter>",
    "<solution_letter>",
    "<review_result>perhaps</review_result>",
    "```python\n",
    "```",
    "{input} {0} {}",
    "<answer><answer><answer>",
    "\x00",
]


class Cut:
    """A model whose reply was cut off."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def chat(self, prompt: str, **options: Any) -> Reply:
        return Reply(self.text, "length")


ensembles = pytest.mark.parametrize(("name", "key"), [("ScEnsemble", "response"), ("MdEnsemble", "solution")])


def voting_for(solution: str) -> Callable[[str], str]:
    """A reply that names the letter at which ``solution`` is shown."""

    def reply(prompt: str) -> str:
        found = re.search(rf"^([A-Z]): {re.escape(solution)}$", prompt, re.MULTILINE)
        assert found, prompt
        return f"<thought>...</thought><solution_letter>{found.group(1)}</solution_letter>"

    return reply


@pytest.mark.parametrize("name", catalog.OPERATORS)
async def test_every_documented_key_is_there_whatever_the_model_says(name: str) -> None:
    types = {"str": str, "bool": bool}
    expected = {key: types[word] for key, word in catalog.result_keys(catalog.OPERATORS[name]).items()}
    for reply in MALFORMED:
        result = await build(name, Chat(reply), question=CODE)(**ARGUMENTS[name])
        assert {key: type(value) for key, value in result.items()} == expected, reply


@pytest.mark.parametrize("name", [n for n in catalog.OPERATORS if n != "Test"])
async def test_an_empty_reply_is_marked(name: str) -> None:
    assert not (await build(name, Chat(""))(**ARGUMENTS[name]))["parse_ok"]


@pytest.mark.parametrize("name", catalog.OPERATORS)
async def test_a_provider_that_is_down_is_not_an_answer(name: str) -> None:
    class Down:
        async def chat(self, prompt: str, **options: Any) -> Any:
            raise ProviderError("nobody answers")

    with pytest.raises(ProviderError):
        await build(name, Down(), question=CODE)(**ARGUMENTS[name])


class TestCustom:
    async def test_instruction_and_input_are_apart(self) -> None:
        chat = Chat(" 42 \n")
        result = await build("Custom", chat)(input="6*7", instruction="Calculate.")
        assert chat.prompts == ["Calculate.\n6*7"]
        assert (result["response"], result["parse_ok"]) == ("42", True)

    async def test_without_an_instruction_the_input_is_the_prompt(self) -> None:
        chat = Chat("42")
        await build("Custom", chat)(input="6*7", instruction="")
        assert chat.prompts == ["6*7"]


class TestAnswerGenerate:
    async def test_thought_and_answer_are_kept_apart(self) -> None:
        chat = Chat("<thought>six sevens</thought>\n<answer> 42 </answer>")
        result = await build("AnswerGenerate", chat)(input="What is 6*7?")
        assert (result["thought"], result["answer"], result["parse_ok"]) == ("six sevens", "42", True)
        assert "What is 6*7?" in chat.prompts[0]

    async def test_without_tags_the_whole_reply_is_the_answer(self) -> None:
        result = await build("AnswerGenerate", Chat(" It is 42.\n"))(input="x")
        assert (result["answer"], result["parse_ok"], result["error"]) == (
            "It is 42.", False, "no <answer> in the reply",
        )  # fmt: skip

    async def test_an_answer_cut_off_is_kept(self) -> None:
        assert (await build("AnswerGenerate", Chat("<thought>t</thought><answer>42"))(input="x"))["answer"] == "42"

    async def test_a_reply_cut_off_before_its_answer_has_none(self) -> None:
        for text in ("7 and 6 make 13", "<thought>6 * 7", "<thought>t</thought><answer>4"):
            result = await build("AnswerGenerate", Cut(text))(input="x")
            assert (result["answer"], result["parse_ok"]) == ("", False)
        assert (await build("AnswerGenerate", Cut("<answer>42</answer> and"))(input="x"))["answer"] == "42"

    async def test_the_last_answer_counts(self) -> None:
        reply = "<answer>draft</answer> no: <answer>final\nline</answer>"
        assert (await build("AnswerGenerate", Chat(reply))(input="x"))["answer"] == "final\nline"

    async def test_braces_in_the_problem_are_text(self) -> None:
        chat = Chat("<answer>1</answer>")
        await build("AnswerGenerate", chat)(input=r"\frac{1}{2} {input}")
        assert r"\frac{1}{2} {input}" in chat.prompts[0]


class TestCustomCodeGenerate:
    async def test_the_fenced_code_is_returned_under_response(self) -> None:
        chat = Chat(f"Here it is:\n```python\n{SQUARE}\n```\nDone.")
        result = await build("CustomCodeGenerate", chat)(problem="Square.", entry_point="f", instruction="Be brief.")
        assert result["response"] == SQUARE
        assert chat.prompts[0].startswith("Be brief.\nWrite the Python function f ")
        assert chat.prompts[0].endswith("Problem:\nSquare.")

    async def test_a_reply_without_the_function_is_marked(self) -> None:
        result = await build("CustomCodeGenerate", Chat("I cannot."))(problem="p", entry_point="f", instruction="")
        assert (result["parse_ok"], result["error"]) == (False, "no f in the reply")

    async def test_signature_and_a_public_test_are_shown_where_there_are_such(self) -> None:
        question = replace(CODE, text='Complete.\n\ndef f(\n    x: int,\n) -> int:\n    """Square."""\n')
        for asked, shown in ((CODE, False), (question, True)):
            chat = Chat(SQUARE)
            await build("CustomCodeGenerate", chat, question=asked)(problem="p", entry_point="f", instruction="")
            assert ("Signature: def f( x: int, ) -> int:\n" in chat.prompts[0]) is shown
            assert "It must pass, for example: assert f(2) == 4\n" in chat.prompts[0]
            assert "f(3)" not in chat.prompts[0], "the others are Test's"

    async def test_the_block_that_has_the_function_is_taken_and_not_the_example_after_it(self) -> None:
        reply = f"Here:\n```python\n{SQUARE}\n```\nUse it so:\n```python\nprint(f(2))\n```"
        result = await build("CustomCodeGenerate", Chat(reply))(problem="p", entry_point="f", instruction="")
        assert result["response"] == SQUARE

    @pytest.mark.parametrize("reply", [SQUARE, f"```py\n{SQUARE}", f"```\n{SQUARE}\n```", f"\n{SQUARE}\n\n"])
    async def test_bare_code_and_open_fences_are_read(self, reply: str) -> None:
        result = await build("CustomCodeGenerate", Chat(reply))(problem="p", entry_point="f", instruction="")
        assert (result["response"], result["parse_ok"]) == (SQUARE, True)


class TestScEnsemble:
    @pytest.mark.parametrize(
        ("said", "chosen"),
        [
            ("A", "41"),
            ("A.", "41"),
            ("Option A", "41"),
            ("(B)", "42"),
            ("**B**", "42"),
            (" B\n", "42"),
            ("C: 43", "43"),
        ],
    )
    async def test_a_letter_is_read_however_it_is_dressed(self, said: str, chosen: str) -> None:
        chat = Chat(f"<thought>A or B?</thought><solution_letter>{said}</solution_letter>")
        result = await build("ScEnsemble", chat)(solutions=["41", "42", "43"], problem="6*7")
        assert (result["response"], result["parse_ok"], len(chat.prompts)) == (chosen, True, 1)

    @pytest.mark.parametrize("said", ["", "Z", "none of them", "42"])
    async def test_without_a_usable_letter_the_most_frequent_is_taken_and_marked(self, said: str) -> None:
        chat = Chat(f"<solution_letter>{said}</solution_letter>")
        result = await build("ScEnsemble", chat)(solutions=["41", "42", "42"], problem="6*7")
        assert (result["response"], result["parse_ok"]) == ("42", False)

    async def test_twenty_six_solutions_have_letters(self) -> None:
        chat = Chat("<solution_letter>Z</solution_letter>")
        result = await build("ScEnsemble", chat)(solutions=list(range(26)), problem="p")
        assert result["response"] == "25" and "\nZ: 25" in chat.prompts[0]


@ensembles
class TestBothEnsembles:
    @pytest.mark.parametrize("count", [0, 27])
    async def test_no_solutions_or_more_than_letters_are_the_workflows_mistake(
        self, name: str, key: str, count: int
    ) -> None:
        chat = Chat("<solution_letter>A</solution_letter>")
        with pytest.raises(ValueError, match=f"1 to 26 entries, got {count}"):
            await build(name, chat)(solutions=[str(i) for i in range(count)], problem="p")
        assert not chat.prompts

    @pytest.mark.parametrize("solutions", [["42"], ["42", " 42\n", "42"]])
    async def test_agreement_costs_no_call(self, name: str, key: str, solutions: list[str]) -> None:
        chat = Chat("")
        result = await build(name, chat)(solutions=solutions, problem="p")
        assert (result[key], result["parse_ok"], chat.prompts) == ("42", True, [])

    async def test_the_one_that_is_named_wins(self, name: str, key: str) -> None:
        chat = Chat(by=voting_for("cherry"))
        result = await build(name, chat)(solutions=["apple", "banana", "cherry"], problem="Which?")
        assert result[key] == "cherry" and all("Which?" in prompt for prompt in chat.prompts)


class TestMdEnsemble:
    async def test_the_votes_run_at_the_same_time(self) -> None:
        chat = Chat(by=voting_for("b"))
        await build("MdEnsemble", chat)(solutions=["a", "b"], problem="p")
        assert (len(chat.prompts), chat.most_at_once) == (5, 5)

    async def test_votes_see_different_orders_and_the_same_ones_every_time(self) -> None:
        first, second = Chat(by=voting_for("b")), Chat(by=voting_for("b"))
        state = random.getstate()
        for chat in (first, second):
            await build("MdEnsemble", chat)(solutions=["a", "b", "c"], problem="p")
        assert len(set(first.prompts)) > 1 and first.prompts == second.prompts
        assert random.getstate() == state, "the order must not draw on the global generator"

    async def test_unreadable_votes_are_passed_over(self) -> None:
        said = iter(["", "no tags", voting_for("c"), "<solution_letter>Q</solution_letter>", voting_for("c")])

        def reply(prompt: str) -> str:
            say = next(said)
            return say if isinstance(say, str) else say(prompt)

        result = await build("MdEnsemble", Chat(by=reply))(solutions=["a", "b", "c"], problem="p")
        assert (result["solution"], result["parse_ok"]) == ("c", True)

    async def test_no_valid_vote_leaves_the_most_frequent_solution_and_is_marked(self) -> None:
        result = await build("MdEnsemble", Chat("I cannot say."))(solutions=["a", "b", "b"], problem="p")
        assert (result["solution"], result["parse_ok"], result["error"]) == ("b", False, "no vote could be read")

    async def test_the_number_of_votes_is_the_constructors(self) -> None:
        chat = Chat(by=voting_for("b"))
        await build("MdEnsemble", chat, vote_count=2)(solutions=["a", "b"], problem="p")
        assert len(chat.prompts) == 2
        with pytest.raises(ValueError, match="vote_count must be >= 1, got 0"):
            build("MdEnsemble", chat, vote_count=0)


class TestProgrammer:
    async def test_the_reply_is_run_and_what_it_returns_is_the_output(self) -> None:
        chat, runner = Chat("```python\ndef solve():\n    return 6 * 7\n```"), Runner()
        result = await build("Programmer", chat, run_code=runner)(problem="6*7")
        assert (result["code"], result["output"]) == ("def solve():\n    return 6 * 7", "42")
        assert result["parse_ok"] and runner.sources == [result["code"]] and len(chat.prompts) == 1

    @pytest.mark.parametrize(("value", "output"), [("0", "0"), ("False", "False"), ("''", ""), ("[1, 2]", "[1, 2]")])
    async def test_values_that_look_empty_are_outputs(self, value: str, output: str) -> None:
        result = await build("Programmer", Chat(f"def solve():\n    return {value}"))(problem="p")
        assert (result["output"], result["parse_ok"]) == (output, True)

    async def test_an_error_is_fed_back_and_the_next_program_counts(self) -> None:
        chat = Chat("def solve():\n    return 1 / 0", "def solve():\n    return 42")
        result = await build("Programmer", chat)(problem="6*7")
        assert "failed" not in chat.prompts[0]
        assert "Error: ZeroDivisionError: division by zero" in chat.prompts[1] and "return 1 / 0" in chat.prompts[1]
        assert (result["output"], result["parse_ok"], len(chat.prompts)) == ("42", True, 2)

    @pytest.mark.parametrize(
        ("program", "error"),
        [("def solve():\n    pass", "solve() returned None"), ("x = 1", "KeyError"), ("def solve(", "SyntaxError")],
    )
    async def test_after_three_tries_there_is_an_error_and_no_output(self, program: str, error: str) -> None:
        chat, runner = Chat(program), Runner()
        result = await build("Programmer", chat, run_code=runner)(problem="p")
        assert (len(chat.prompts), len(runner.sources)) == (3, 3)
        assert not result["parse_ok"] and error in result["error"]
        assert (result["output"], result["code"]) == ("", program)

    async def test_a_time_out_is_fed_back_by_name(self) -> None:
        async def run_code(source: str, **options: Any) -> Ran:
            return Ran("timeout")

        chat = Chat("def solve(): ...")
        await build("Programmer", chat, run_code=run_code)(problem="p")
        assert "Your last program failed:" in chat.prompts[1] and "Error: timeout" in chat.prompts[1]

    async def test_the_analysis_is_told_when_there_is_one(self) -> None:
        chat = Chat("def solve():\n    return 1")
        programmer = build("Programmer", chat)
        await programmer(problem="p", analysis="Multiply.")
        await programmer(problem="p")
        assert "Analysis: Multiply." in chat.prompts[0] and "Analysis" not in chat.prompts[1]


class TestTest:
    async def test_code_that_passes_costs_no_call(self) -> None:
        chat, runner = Chat(""), Runner()
        result = await build("Test", chat, question=CODE, run_code=runner)(
            problem="Square.", solution=f"```python\n{SQUARE}\n```", entry_point="f"
        )
        assert result["result"] is True and result["solution"] == SQUARE
        assert (chat.prompts, len(runner.sources)) == ([], 2), "one run for each public test"

    async def test_a_failure_is_told_with_test_and_value_and_repaired(self) -> None:
        chat = Chat(f"```python\n{SQUARE}\n```")
        result = await build("Test", chat, question=CODE)(problem="Square it.", solution=DOUBLE, entry_point="f")
        assert (result["result"], result["solution"], len(chat.prompts)) == (True, SQUARE, 1)
        for part in ("Square it.", DOUBLE, "Test: assert f(3) == 9", "Error: got 6, expected 9", "function f:"):
            assert part in chat.prompts[0]

    @pytest.mark.parametrize("loops", [0, 1, 3])
    async def test_there_are_as_many_reflections_as_asked_for(self, loops: int) -> None:
        chat, runner = Chat(DOUBLE), Runner()
        result = await build("Test", chat, question=CODE, run_code=runner)(
            problem="p", solution=DOUBLE, entry_point="f", test_loop=loops
        )
        assert (result["result"], result["solution"], len(chat.prompts)) == (False, DOUBLE, loops)
        assert len(runner.sources) == 2 * (loops + 1), "the last repair is tested too"
        assert result["error"] == "assert f(3) == 9: got 6, expected 9"

    async def test_three_reflections_are_the_default(self) -> None:
        chat = Chat(DOUBLE)
        await build("Test", chat, question=CODE)(problem="p", solution=DOUBLE, entry_point="f")
        assert len(chat.prompts) == 3

    async def test_only_the_public_tests_of_the_question_are_run(self) -> None:
        runner = Runner()
        question = replace(CODE, public_tests=("assert f(10) == 100",))
        await build("Test", Chat(""), question=question, run_code=runner)(problem="p", solution=SQUARE, entry_point="f")
        (source,) = runner.sources
        assert "f(10)" in source and "f(2)" not in source

    @pytest.mark.parametrize(
        ("code", "passes"), [(SQUARE, True), ("f = 3", False), ("def g(): pass", False), ("", False)]
    )
    async def test_without_public_tests_the_function_must_exist_and_nothing_more(self, code: str, passes: bool) -> None:
        question = replace(CODE, public_tests=())
        result = await build("Test", Chat(""), question=question)(
            problem="p", solution=code, entry_point="f", test_loop=0
        )
        assert result["result"] is passes

    @pytest.mark.parametrize("test", ["assert f(2) in (4, 5)", "assert abs(f(2) - 4) < 1e-9", "assert f(2) == 4, 'no'"])
    async def test_asserts_of_any_form_are_judged(self, test: str) -> None:
        question = replace(CODE, public_tests=(test,))
        for code, passes in ((SQUARE, True), ("def f(x):\n    return -x", False)):
            result = await build("Test", Chat(""), question=question)(
                problem="p", solution=code, entry_point="f", test_loop=0
            )
            assert result["result"] is passes

    async def test_code_that_does_not_end_fails_by_the_sandboxes_word(self) -> None:
        async def run_code(source: str, **options: Any) -> Ran:
            return Ran("timeout")

        result = await build("Test", Chat(""), question=CODE, run_code=run_code)(
            problem="p", solution=SQUARE, entry_point="f", test_loop=0
        )
        assert result["result"] is False and result["error"] == "assert f(2) == 4: timeout"

    async def test_an_entry_point_that_is_no_name_is_a_failed_test(self) -> None:
        question = replace(CODE, public_tests=())
        result = await build("Test", Chat(""), question=question)(
            problem="p", solution=SQUARE, entry_point="What is 6 times 7?", test_loop=0
        )
        assert result["result"] is False


class TestEditing:
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

    @pytest.mark.parametrize(
        ("word", "verdict"), [("True", True), ("False", False), (" false\n", False), ("TRUE", True)]
    )
    async def test_a_review_is_a_real_bool(self, word: str, verdict: bool) -> None:
        chat = Chat(f"<feedback>Look again.</feedback><review_result>{word}</review_result>")
        result = await build("Review", chat)(problem="6*7", solution="41")
        assert result["review_result"] is verdict and result["parse_ok"]
        assert result["feedback"] == "Look again."

    @pytest.mark.parametrize("reply", ["Looks right.", "<review_result>maybe</review_result>", ""])
    async def test_an_unreadable_review_is_no_objection_and_marked(self, reply: str) -> None:
        result = await build("Review", Chat(reply))(problem="p", solution="s")
        assert result["review_result"] is True and not result["parse_ok"]

    async def test_a_revision_uses_problem_solution_and_feedback(self) -> None:
        chat = Chat("<solution>42</solution>")
        result = await build("Revise", chat)(problem="six sevens", solution="41", feedback="Too small.")
        assert (result["solution"], result["parse_ok"]) == ("42", True)
        assert all(part in chat.prompts[0] for part in ("six sevens", "41", "Too small."))

    @pytest.mark.parametrize(("reply", "solution"), [("It is 42.", "It is 42."), ("", "41"), (" \n", "41")])
    async def test_a_revision_without_tags_is_taken_whole_an_empty_one_changes_nothing(
        self, reply: str, solution: str
    ) -> None:
        result = await build("Revise", Chat(reply))(problem="p", solution="41", feedback="f")
        assert (result["solution"], result["parse_ok"]) == (solution, False)
