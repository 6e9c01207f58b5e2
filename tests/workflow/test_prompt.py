"""What the policy is told: prompts of both layers, and feedback on a failed workflow."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers.tables import tables
from helpers.workflows import CODE, DOUBLE, QUESTION, SQUARE, workflow
from running import Run, Script, Wait

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import RewardConfig, SandboxConfig, WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.judging.judge import OFFICIAL, Judge
from llm_as_judge.operators import catalog
from llm_as_judge.rewards.terms import RewardFunction
from llm_as_judge.rl.rollout import RolloutParts, collect
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import DOMAINS, Completion, Domain, Execution, Problem, Prompt, Question, Reference
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.feedback import feedback
from llm_as_judge.workflow.prompt import TEXTS, Layer1, load_guidance
from llm_as_judge.workflow.run import WorkflowRunner
from llm_as_judge.workflow.shapes import Example

TABLES = tables(__file__)

OPERATORS = list(catalog.OPERATORS)
GUIDANCE: dict[Domain, str] = {"math": "Mind the units.", "code": "Mind empty lists.", "qa": "Quote the context."}
APPLES = Question("q", "How many apples has Ann?", "math")
EXAMPLES = (Example("How many pears?", "class Workflow: # pears"), Example("How many figs?", "class Workflow: # figs"))


def prompt(question: Question = APPLES, examples: tuple[Example, ...] = ()) -> Prompt:
    return Layer1(WorkflowConfig(prompt="short"))(question, examples)


def test_the_problem_is_in_the_prompt_unless_a_control_experiment_hides_it() -> None:
    for domain in DOMAINS:
        user = prompt(Question("q", "ZQX what?", domain, context="Some {facts}.", entry_point="solve_it")).user
        assert "Problem: Context: Some {facts}.\nQuestion: ZQX what?" in user
        assert "entry_point: solve_it" in user
    assert "entry_point" not in prompt().user
    for style in ("short", "full"):
        hidden = Layer1(WorkflowConfig(prompt=style, show_problem=False))
        shown = Layer1(WorkflowConfig(prompt=style))
        other = replace(APPLES, text="How many pears?", context="Ann has two.")
        assert hidden(APPLES) == hidden(other) and shown(APPLES) != shown(other)
        assert APPLES.text in shown(APPLES).user and APPLES.domain in hidden(APPLES).user


def test_operators_guidance_and_examples_come_first_and_secrets_are_in_no_prompt() -> None:
    lines = prompt().system.splitlines()
    for operator in catalog.OPERATORS.values():
        (line,) = [li for li in lines if li.startswith(f"{catalog.call_line(operator)} -> ")]
        assert all(key in line for key in operator.RESULT)
    system = Layer1(WorkflowConfig(prompt="short", operators=("Custom",)))(APPLES).system
    assert [name for name in OPERATORS if f"{name}(" in system] == ["Custom"]
    for domain in DOMAINS:
        user = prompt(replace(APPLES, domain=domain), EXAMPLES).user
        assert [d for d in DOMAINS if TEXTS["guidance"]["short"][d] in user] == [
            domain
        ] and f"Domain: {domain}." in user
        places = [user.index(part) for e in EXAMPLES for part in (e.problem, e.workflow)]
        assert [*places, user.index(f"Problem: {APPLES.text}")] == sorted([*places, user.index(APPLES.text) - 9])
    # Public tests are the Test operator's; a problem's id and data set say nothing about how to solve it.
    question = replace(APPLES, id="id-77", dataset="gsm8k-x", public_tests=("assert f(1) == 99",))
    others = [prompt(replace(question, domain="qa", context="c"), EXAMPLES), prompt(replace(question, entry_point="f"))]
    assert {p.system for p in others} == {prompt().system}
    text = "".join(p.system + p.user for p in others)
    assert not [secret for secret in ("id-77", "gsm8k-x", "f(1) == 99") if secret in text]


def test_guidance_is_read_from_a_file_and_wrong_guidance_refused(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "guidance.yaml"
    path.write_text(yaml.safe_dump(GUIDANCE), encoding="utf-8")
    assert load_guidance(path) == GUIDANCE
    assert load_guidance(root / "config/guidance.yaml") == TEXTS["guidance"]["short"]
    path, domains = tmp_path / "guidance.yaml", r"guidance\.yaml must map exactly math, code, qa to text"
    for text, message in (
        ("math: a\ncode: b", domains), ("math: a\ncode: b\nqa: c\nart: d", domains), ("- math", domains), ("", domains),
        ("maths: a\ncode: b\nqa: c", domains), ("math: [", r"guidance file .*guidance\.yaml"),
    ):  # fmt: skip
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            load_guidance(path)
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_guidance(tmp_path / "none.yaml")


def test_an_instruction_is_found_by_operator_and_domain_and_wrong_files_refused(tmp_path: Path) -> None:
    path, empty = tmp_path / "enhancer.yaml", tmp_path / "empty.yaml"
    path.write_text("AnswerGenerate:\n  math: ' Check each step. '\nReview:\n  math: Two.\n", encoding="utf-8")
    empty.touch()
    enhance = load_enhancer(WorkflowConfig(enhancer=path))
    assert (enhance("AnswerGenerate", "math"), enhance("AnswerGenerate", "qa")) == ("Check each step.", "")
    for nothing in (None, empty):
        assert load_enhancer(WorkflowConfig(enhancer=nothing))("Custom", "math") == ""
    for text, message in TABLES["wrong instructions"]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            load_enhancer(WorkflowConfig(enhancer=path))
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        load_enhancer(WorkflowConfig(enhancer=Path("none.yaml")))


Told = Callable[..., str]
CALLS = ("async def __call__(self, problem)", "async def __call__(self, problem, entry_point)")


@pytest.fixture
def told(run: Run, wait: Wait, box: Sandbox) -> Told:
    """The feedback on a workflow with this body, and its execution's outcome before it."""

    def say(
        body: str, question: Question = QUESTION, llm: Script | None = None, init: str = "", **settings: int
    ) -> str:
        made = init or "self.custom = operator.Custom(self.llm)"
        execution: Execution = run(
            workflow(body, init=made, call=CALLS[bool(question.entry_point)]), question, llm, **settings
        )
        found: str = wait(feedback(execution, question, box.run_code))
        return f"{execution.outcome}: {found}"

    return say


def test_it_says_what_a_developer_would_see(told: Told) -> None:
    custom = "r = await self.custom(input=problem, instruction='solve')\n"
    assert told(custom + "return r['response'], 0.0") == "finished: "
    found = told(custom + "return r['answer'], 0.0")
    assert found.startswith("invalid: This workflow failed:\n- line 8: ") and "'answer'" in found
    assert found.endswith("\nWrite the whole workflow again without this fault.")
    assert "ZeroDivisionError" in told(custom + "return str(1 / (len(r['response']) - len(r['response']))), 0.0")
    assert "budget of calls" in told(custom * 3 + "return r['response'], 0.0", max_calls=2)
    unread = told(
        "r = await self.programmer(problem=problem, analysis='None')\nreturn r['output'], 0.0",
        llm=Script(by=lambda prompt: "```python\ndef solve(): return 1 / 0\n```"),
        init="self.programmer = operator.Programmer(self.llm)",
    )
    assert unread.startswith("finished: This workflow failed:\n- Programmer: ") and "ZeroDivisionError" in unread
    long = told(f"raise ValueError('x' * 5000)\n{custom}return r['response'], 0.0")
    assert len(long) < 600 and " ... " in long


def test_a_public_test_that_fails_is_shown_with_its_values(told: Told) -> None:
    body = "r = await self.code(problem=problem, entry_point=entry_point, instruction='x')\nreturn r['response'], 0.0"
    init = "self.code = operator.CustomCodeGenerate(self.llm)"
    assert told(body, CODE, Script(f"```python\n{SQUARE}\n```"), init) == "finished: "
    wrong = told(body, CODE, Script(f"```python\n{DOUBLE}\n```"), init)
    assert "fails a public test: assert f(3) == 9: got 6, expected 9" in wrong
    assert "SyntaxError" in told(body, CODE, Script("```python\ndef f(x:\n```"), init)


def test_nothing_of_reference_verdict_or_hidden_tests_is_told(wait: Wait) -> None:
    """Over all kinds of problem and of failure, through the judge and the reward of a whole rollout."""
    secret = "zq7391"
    reference = Reference((secret,), f"def check(f):\n    assert f(5) == '{secret}'")
    code = replace(CODE, public_tests=("assert f(2) == 4", "assert f(3) == 9"))
    context = Question("s", "Who wrote it?", "qa", context="It was written by a clerk.", dataset="squad2")
    letter = Question("m", "Which? A. one B. two", "qa", dataset="mmlu")
    bodies = TABLES["bodies"]
    told, box = list[str](), Sandbox(SandboxConfig(cpu_seconds=1))

    async def again(completions: Sequence[Completion], texts: Sequence[str]) -> list[Completion]:
        told.extend(texts)
        return list(completions)

    runner = WorkflowRunner(Script(by=lambda prompt: "no tags"), box, WorkflowConfig(), EndpointConfig())
    parts = RolloutParts(runner, Judge(OFFICIAL, None, box), RewardFunction(RewardConfig(), 1), repairs=1)
    for question in (QUESTION, code, context, letter):
        init = "self.op = operator.AnswerGenerate(self.llm)"
        endless = ("while True: pass",) if question is QUESTION else ()
        texts = [workflow(body, init=init, call=CALLS[bool(question.entry_point)]) for body in (*bodies, *endless)]
        completions = [Completion(text, (), (), (), "stop", verbatim=True) for text in texts]
        before = len(told)
        (group,) = wait(collect([Problem(question, reference)], [completions], parts, again=again))
        assert not any(rollout.verdict.correct for rollout in group.rollouts) and len(told) >= before + 4
        assert [len(r.attempts) for r in group.rollouts].count(1) == len(told) - before
    wait(box.aclose())
    assert not any(secret in text or "check" in text for text in told)
    assert any("public test" in text for text in told) and any("too long" in text for text in told)
