"""Validity, faults and shapes of workflows that a policy writes at temperature 1; they are not run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import Question
from llm_as_judge.workflow.lint.check import lint

#: Share of valid workflows below which most GRPO groups lack contrast.
TOO_FEW_VALID = 0.2
NEEDS_WARM_UP = (
    "groups without contrast give no gradient; warm the policy up first with llm-as-judge warmup, then train with "
    "--set model.adapter=FOLDER"
)


@dataclass(frozen=True, slots=True)
class Written:
    """Counts are of workflows, most frequent first."""

    workflows: int
    shapes: Mapping[str, int]  # of valid workflows
    findings: Mapping[str, int]  # the first fatal one of each workflow, by code and message

    @property
    def valid_rate(self) -> float:
        return sum(self.shapes.values()) / self.workflows

    @property
    def too_few(self) -> bool:
        """Whether the policy needs a warm-up first."""
        return self.valid_rate < TOO_FEW_VALID

    @property
    def reasons(self) -> str:
        """Why workflows were invalid, one line each, the most frequent first."""
        return "".join(f"\n  {count} x {reason}" for reason, count in self.findings.items())

    def __str__(self) -> str:
        return f"valid {100 * self.valid_rate:.0f} % of {self.workflows} workflows, {len(self.shapes)} shapes"


def look_at(author: PolicyAuthor, questions: Sequence[Question], samples: int) -> Written:
    """Sample workflows for each question and check them; those of too long prompts count as invalid."""
    limit, operators = author.config.training.prompt_max_length, load_operators(author.config.workflow.operators)
    shapes, findings = Counter[str](), Counter[str]()
    groups = author.sampling(eval_temperature=1.0).write(questions, samples)
    for question, completion in ((q, c) for q, group in zip(questions, groups, strict=True) for c in group):
        if completion.verbatim:
            findings[f"the prompt exceeds training.prompt_max_length={limit}"] += 1
            continue
        source = extract_code(completion.text, completion.prefill)
        facts = lint(source, entry_point=question.entry_point, operators=operators, executors=author.config.executors)
        if fatal := [f for f in facts.findings if f.fatal]:
            findings[f"{fatal[0].code} {fatal[0].message}"] += 1
        else:
            shapes[facts.shape] += 1
    return Written(samples * len(questions), dict(shapes.most_common()), dict(findings.most_common()))
