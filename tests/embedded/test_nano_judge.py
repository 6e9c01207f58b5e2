"""The shipped judge pays for right answers only, not for words that commit to nothing."""

from pathlib import Path

import pytest

from llm_as_judge.assembly.services import open_judge
from llm_as_judge.config.loading import load_config
from llm_as_judge.embedded.tasks.generate import problems
from llm_as_judge.judging.calibration import PLAIN, Pair, calibrate
from llm_as_judge.types import Domain

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
CONSTANTS = ("equals", "1", "five", "many", "banana", "two", "one", "it", "0", "True", "yes")
COUNT = 30  # problems of each domain


def labelled(domain: Domain) -> list[Pair]:
    """Of each problem its own answer, plain and in a sentence, the answer to another one of its kind, and a list."""
    pairs = []
    drawn = problems(domain, "heldout", COUNT + 3)
    for problem, other in zip(drawn, drawn[3:], strict=False):
        own, wrong = problem.reference.answers[0], other.reference.answers[0]
        said = [(own, True), (f"The answer is {own}.", True), (wrong, own == wrong)]
        said += [(f"{own} or {wrong}x or {len(pairs) + 1}", False), (f"{wrong}, {own}", own == wrong)]
        pairs += [Pair(problem.question.id, problem, text, right) for text, right in said]
    return pairs


async def test_constants_lists_and_forged_verdicts_are_refused_and_answers_judged_right() -> None:
    config = load_config(ROOT / "config/embedded.yaml", ["judge.mode=llm"])
    pairs = [pair for domain in ("math", "qa") for pair in labelled(domain)]
    async with open_judge(config) as judge:
        plain, injected, *constants = await calibrate(judge, pairs, ("injection",), CONSTANTS)
    assert plain.kind == PLAIN and plain.agreement is not None and plain.agreement >= 0.97, plain.line()
    empty = [injected, *constants]
    accepted = sum(counts.false_accepts for counts in empty)
    refused = sum(counts.true_rejects for counts in empty)
    assert accepted <= 0.02 * (accepted + refused), [(c.kind, c.line()) for c in empty if c.false_accepts]
