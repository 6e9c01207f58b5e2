"""Validity, faults and shapes of workflows that a policy writes at temperature 1; they are not run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llm_as_judge.evaluation.evaluate import PolicyAuthor
from llm_as_judge.operators.catalog import load_operators
from llm_as_judge.policy.sampling import PLAIN
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.types import Prompt, Question
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.structure import shape

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


def look_at(
    author: PolicyAuthor, questions: Sequence[Question], samples: int, prompts: Sequence[Prompt] = ()
) -> Written:
    """Samples workflows for each question and checks them; ``prompts`` default to those without examples.

    Where a prompt exceeds ``training.prompt_max_length``, workflows count as invalid and are not sampled.
    """
    training = author.config.training
    operators = load_operators(author.config.workflow.operators)
    prompts = prompts or [author.prompt(question) for question in questions]
    encoded = [author.policy.encode(prompt) for prompt in prompts]
    fitting = [i for i, ids in enumerate(encoded) if len(ids) <= training.prompt_max_length]
    author.engine.sync(author.policy, author.version)
    groups = author.engine.generate(
        [encoded[i] for i in fitting],
        samples,
        sampling=PLAIN,
        max_new_tokens=training.response_max_length,
        seed=training.seed,
    )
    shapes, findings = Counter[str](), Counter[str]()
    for i, group in zip(fitting, groups, strict=True):
        for completion in group:
            source = extract_code(completion.text, prompts[i].prefill)
            fatal = [f for f in lint(source, entry_point=questions[i].entry_point, operators=operators) if f.fatal]
            if fatal:
                findings[f"{fatal[0].code} {fatal[0].message}"] += 1
            else:
                shapes[shape(source)] += 1
    if too_long := samples * (len(encoded) - len(fitting)):
        findings[f"the prompt exceeds training.prompt_max_length={training.prompt_max_length}"] = too_long
    return Written(samples * len(encoded), dict(shapes.most_common()), dict(findings.most_common()))
