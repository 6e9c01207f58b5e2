"""Prompts of the operators: one set for any instruct model, one for the embedded executor.

``FULL`` states the reply's form once and has the problem last. ``SHORT`` is exactly what the nano executor was trained
on. Names in braces are filled in by ``str.format``.
"""

from dataclasses import dataclass

from llm_as_judge.config.endpoints import EndpointConfig


@dataclass(frozen=True, slots=True)
class Prompts:
    """Templates; the optional parts (those below ``revise``) are left out if there is nothing to fill in."""

    answer_generate: str
    custom_code_generate: str
    ensemble: str
    programmer: str
    test: str
    format: str
    review: str
    revise: str
    instruction: str  # from the workflow, for CustomCodeGenerate
    signature: str
    example: str  # one public test
    analysis: str  # from the workflow, for Programmer
    failure: str  # of the last program
    got: str  # value that a public test found


_ONLY = "Write exactly this and nothing else:\n"
_BLOCK = "Reply with one ```python block that holds the whole code, with every import it needs, and nothing else.\n"

FULL = Prompts(
    answer_generate=(
        f"Think step by step, then give the final answer of the problem below.\n{_ONLY}"
        "<thought>your reasoning</thought>\n"
        "<answer>the final answer alone, as short as possible</answer>\n\n"
        "Problem:\n{input}"
    ),
    custom_code_generate=(
        f"{{instruction}}Write the Python function {{entry_point}} that the problem below asks for.\n{_BLOCK}"
        "{signature}{example}\nProblem:\n{problem}"
    ),
    ensemble=(
        f"Choose the solution of the problem below that is most likely right; agreement among them is a sign.\n{_ONLY}"
        "<thought>your reasoning</thought>\n"
        "<solution_letter>the letter of the solution</solution_letter>\n\n"
        "{listing}\n\nProblem:\n{problem}"
    ),
    programmer=(
        "Write a Python function solve() without arguments that computes and returns the answer of the problem below.\n"
        f"{_BLOCK}"
        "{analysis}{failure}\nProblem:\n{problem}"
    ),
    test=(
        f"Correct the Python function {{entry_point}}: it fails a test.\n{_BLOCK}"
        "\nCode:\n```python\n{solution}\n```\nTest: {test}\nError: {error}\n\nProblem:\n{problem}"
    ),
    format=(
        "Copy out the final answer of the solution below: the answer alone, as short as possible.\n\n"
        "Solution:\n{solution}\n\nProblem:\n{problem}"
    ),
    review=(
        f"Check whether the solution below answers the problem correctly.\n{_ONLY}"
        "<feedback>your reasoning</feedback>\n"
        "<review_result>True or False</review_result>\n\n"
        "Solution:\n{solution}\n\nProblem:\n{problem}"
    ),
    revise=(
        f"The solution below is wrong. Write a correct one in the same form.\n{_ONLY}"
        "<solution>the correct solution</solution>\n\n"
        "Solution:\n{solution}\n\nFeedback:\n{feedback}\n\nProblem:\n{problem}"
    ),
    instruction="{instruction}\n",
    signature="Signature: {signature}\n",
    example="It must pass, for example: {test}\n",
    analysis="Analysis: {analysis}\n",
    failure="Your last program failed:\n```python\n{code}\n```\nError: {error}\n",
    got="got {got}, expected {expected}",
)

_CODE_ONLY = "Write the Python function {entry_point}. Reply with code only."

SHORT = Prompts(
    answer_generate=(
        "Think step by step, then answer.\n"
        "Reply: <thought>reasoning</thought><answer>final answer only</answer>\n{input}"
    ),
    custom_code_generate=f"{{instruction}}{{problem}}\n{_CODE_ONLY}",
    ensemble=(
        "Choose the best of several solutions.\n"
        "Reply: <thought>reasoning</thought><solution_letter>letter</solution_letter>\n{problem}\n{listing}"
    ),
    programmer=(
        "{problem}\n{analysis}{failure}Write a Python function solve() that returns the answer. Reply with code only."
    ),
    test=f"{{problem}}\nThis code is wrong:\n{{solution}}\nFailed test: {{test}}\nError: {{error}}\n{_CODE_ONLY}",
    format="{problem}\nSolution: {solution}\nReply with the final answer only.",
    review=(
        "Check the solution.\n"
        "Reply: <feedback>reasoning</feedback><review_result>True or False</review_result>\n"
        "{problem}\nSolution: {solution}"
    ),
    revise=(
        "The solution is wrong. Correct it.\n"
        "Reply: <solution>corrected solution</solution>\n{problem}\nSolution: {solution}\nFeedback: {feedback}"
    ),
    instruction="{instruction}\n",
    signature="",
    example="",
    analysis="Analysis: {analysis}\n",
    failure="The last program failed: {error}\n",
    got="got {got}",
)


def prompts_of(executor: EndpointConfig) -> Prompts:
    return SHORT if executor.provider == "embedded" else FULL
