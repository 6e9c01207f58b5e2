"""Whatever a workflow passes to the operators, and whatever they get back, is scored; only our failures are not."""

from pathlib import Path

import pytest
from helpers.judging import Always
from helpers.tables import tables
from helpers.workflows import CODE, QUESTION, workflow
from running import Run, Script, Wait

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.schema import WorkflowConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.operators import catalog
from llm_as_judge.rl.rollout import RolloutParts, collect
from llm_as_judge.sandbox.host import Sandbox
from llm_as_judge.types import Completion, Problem, Reference, Reward, Rollout
from llm_as_judge.workflow.lint.check import Facts
from llm_as_judge.workflow.run import WorkflowRunner

TABLES = tables(__file__)

#: Arguments in Python, as a workflow may pass them.
HOSTILE = TABLES["HOSTILE"]
#: Arguments that nearly fill a run's memory.
GIANT = ("'x' * 3_900_000", "'\\x00' * 600_000", "'def f(x): return x\\n' * 190_000", "['y' * 99_000] * 26")
#: Replies of an executor that answers.
REPLIES = (
    "", "\x00", "class", "<answer>", "</answer><answer></answer>", "```", "```python\nimport os\nos._exit(0)\n```",
    "```python\nclass f: pass\n```", "def solve(): return float('nan')", "True", "Z", "(" * 9000, "\ud800",
    "```python\ndef solve(): return 10 ** 5000\n```", "<solution_letter>\u0130</solution_letter>",
)  # fmt: skip


def attempts(name: str, *values: str, only: str = "") -> str:
    """A workflow that calls an operator with each value in each place, or one, and goes on whatever it raises."""
    usual = {"solutions": "['41', '42']", "entry_point": "'f'", "solution": "'def f(x): return x'"}
    parameters = list(catalog.signature(catalog.OPERATORS[name]).parameters)
    given = ", ".join(f"{parameter!r}: {usual.get(parameter, repr('text'))}" for parameter in parameters)
    return workflow(
        f"for name in {[only] if only else parameters!r}:\n"
        f"    for value in ({', '.join(values)},):\n"
        f"        try: await self.op(**{{{given}, name: value}})\n"
        "        except Exception as error: self.seen.append(str(error)[:200])\n"
        "return 'done: ' + '; '.join(self.seen), 0.0",
        init=f"self.seen = []\nself.op = operator.{name}(self.llm)",
    )


def test_no_argument_and_no_reply_is_a_fault(run: Run) -> None:
    wrong = []
    for name in catalog.OPERATORS:
        for question in (QUESTION, CODE):
            execution = run(attempts(name, *HOSTILE), question, linted=False, max_calls=10_000)
            if execution.outcome != "finished":
                wrong.append((name, question.domain, execution.outcome, execution.error))
        for reply in REPLIES:
            execution = run(attempts(name, "problem"), CODE, Script(by=lambda prompt, said=reply: said), linted=False)
            if execution.outcome != "finished":
                wrong.append((name, reply, execution.outcome, execution.error))
    for name, place in (("Test", "solution"), ("Revise", "solution"), ("ScEnsemble", "solutions")):
        for value in GIANT:
            execution = run(attempts(name, value, only=place), CODE, linted=False)
            if execution.outcome != "finished":
                wrong.append((name, value, execution.outcome, execution.error))
    assert not wrong


OWN = TABLES["OWN"]
LOOKUP = "r = await self.op(word={!r})\nreturn r.get('found'), 0.0"


def rewarded(rollout: Rollout) -> Reward:
    return Reward(float(bool(rollout.verdict.correct)))


def test_an_own_operator_that_mostly_fails_stops_the_run_and_says_why(wait: Wait, box: Sandbox, here: Path) -> None:
    Path("own.py").write_text(OWN, encoding="utf-8")
    runner = WorkflowRunner(Script(), box, WorkflowConfig(operators=("own.py:Lookup",)), EndpointConfig())
    runner._read = lambda *given, **named: Facts(())  # type: ignore[assignment]
    parts = RolloutParts(runner, Always(True), rewarded)

    def scored(*words: str) -> list[tuple[str, float | None]]:
        texts = [workflow(LOOKUP.format(word), init="self.op = operator.Lookup(self.llm)") for word in words]
        completions = [Completion(text, (), (), (), "stop", verbatim=True) for text in texts]
        (group,) = wait(collect([Problem(QUESTION, Reference(("42",)))], [completions], parts))
        return [(rollout.execution.outcome, rollout.reward.total) for rollout in group.rollouts]

    assert scored("known", "other", "other", "known") == [
        ("finished", 1.0), ("raised", 0.0), ("raised", 0.0), ("finished", 1.0)
    ]  # fmt: skip
    assert scored(*["odd"] * 4) == [("raised", 0.0)] * 4, "refused arguments are the workflow's, however many"
    for word, error in (("other", "KeyError: 'other'"), ("lone", "its result lacks found"), ("set", "type set is not")):
        with pytest.raises(ConfigError, match="operator Lookup failed in 3 of 5 calls") as stopped:
            scored(word, word, "known", word, "known")
        assert error in str(stopped.value) and "Traceback" in str(stopped.value), word
