"""Replies are read by tags, labels, Markdown, letters and code; nothing is guessed."""

from llm_as_judge.operators.reading import chosen_letter, code, field, truth

ANSWERS = {
    "<thought>6*7</thought>\n<answer>\n**42**\n</answer>": "42", "<Answer>`42`</Answer>": "42",
    "<answer>first</answer> wait <answer>42</answer>": "42",
    "<answer>draft</answer> no: <answer>final\nline</answer>": "final\nline",
    "<thought>x < 3</thought><answer>x < 3": "x < 3", "Let me see. 6*7 = 42.\n\nAnswer: 42": "42",
    "**Thought:** six sevens\n\n**Answer:** 42": "42", "### Final Answer:\n42\n\nThat is it.": "42",
    "- **Final answer**: Paris": "Paris", "The answer: Paris\nSince it is the capital.": "Paris",
    "Answer: draft\nAnswer: 42": "42", "<answer>a**b**c</answer>": "a**b**c",
    "<answer>*a* and *b*</answer>": "*a* and *b*",
    "It is 42.": None, "The answer is 42": None, "No answer can be given": None, "": None,
}  # fmt: skip
VERDICTS = {
    "True": True, "false.": False, "**False**": False, " TRUE\n": True, "True, the steps hold": True,
    "False - it should be 42": False, "(True)": True, "True or False": None, "True if right": None,
    "Truely": None, "It is true": None, "maybe": None, "": None, None: None,
}  # fmt: skip
LETTERS = {
    "<thought>A or C</thought><solution_letter>B</solution_letter>": 1,
    "<solution_letter>**b**</solution_letter>": 1, "<solution_letter>Option B: 42</solution_letter>": 1,
    "<solution_letter>I choose B</solution_letter>": 1, "**Solution letter:** C": 2, "Answer: (B)": 1,
    "<solution_letter>A.</solution_letter>": 0, "<solution_letter> B\n</solution_letter>": 1, "C: 43": 2,
    "B": 1, "Option C.": 2, "<solution_letter>A or B</solution_letter>": None,
    "<solution_letter>A better one is B</solution_letter>": None, "A better one is B than all": None,
    "<solution_letter>E</solution_letter>": None, "none": None, "": None,
}  # fmt: skip


def test_answers_verdicts_and_letters_are_read() -> None:
    assert {text: field(text, "answer") for text in ANSWERS} == ANSWERS
    assert {text: truth(text) for text in VERDICTS} == VERDICTS
    assert {text: chosen_letter(text, 4) for text in LETTERS} == LETTERS
    solution = "def f():\n    x = 1\n\n    return x"
    assert field(f"Corrected solution:\n{solution}", "solution") == solution, "a labelled solution goes to the end"


def test_a_reply_cut_off_has_only_what_it_closed() -> None:
    assert field("<feedback>good</feedback><review_result>Tr", "review_result", cut=True) is None
    assert field("<feedback>good</feedback><review_result>Tr", "feedback", cut=True) == "good"
    assert field("Answer: 4", "answer", cut=True) is None


SOURCE = "import math\n\n\ndef f(x):\n    # The square\n    return x * x"


def test_the_code_of_the_function_is_found() -> None:
    texts = (
        SOURCE, f"```python\n{SOURCE}\n```", f"```\n{SOURCE}\n```\nThis works.",
        f"Sure! Here is it:\n\n```Python\n{SOURCE}\n```\n\nExample:\n\n```python\nassert f(2) == 4\n```",
        f"```python\nx = 1\n```\nBetter:\n```python\n{SOURCE}\n```", f"```python\n{SOURCE}",
        f"Here is the function:\n{SOURCE}\n\nThis function squares a number.",
        f"{SOURCE}\n\n- It uses one multiplication",
    )  # fmt: skip
    assert [text for text in texts if code(text, "f") != SOURCE] == []
    for text in ("I cannot do that.", "def f(:\n    pass\nThis is it"):
        assert code(text, "f") == text, "what is not code is left as it is"
