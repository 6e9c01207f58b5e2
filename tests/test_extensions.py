"""Each extension of CONTRIBUTING.md ("Adding one") takes at most two files.

All of them are made here in one copy of the package, and used in a process of its own.
"""

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from helpers.cli import SINGLE_CALL
from helpers.processes import ROOT, program


@dataclass(frozen=True)
class Extension:
    """``edits`` by file: texts that occur once there, and their replacements. ``use``: Python that shows its effect."""

    use: str
    edits: dict[str, tuple[tuple[str, str], ...]]
    added: dict[str, str] = field(default_factory=dict)


TRANSLATE = """class Translate(Operator):
    NAME, SUMMARY, RESULT = 'Translate', 'puts a text into English', {'response': str}

    async def __call__(self, input: str, instruction: str) -> dict[str, object]:
        reply = await self.tools.ask(self.NAME, f'Put this into English: {input}')
        return result(parse_ok=bool(reply), response=reply)


"""
RIDDLES = """
from llm_as_judge.data.dataset import Dataset, Source, Split, has_fields
from llm_as_judge.data.record import Record, content_id, text_of
from llm_as_judge.types import Problem, Question, Reference

def parse(record: Record) -> Problem:
    text = text_of(record, "riddle")
    question = Question(content_id("riddles", text), text, "qa", dataset="riddles")
    return Problem(question, Reference((text_of(record, "solution"),)))

def golds(record: Record) -> tuple[str, ...]:
    return (text_of(record, "solution"),)

SPLITS = {"train": Split(hub="train", release=("riddles.jsonl",))}
DATASET = Dataset(
    domain="qa", parse=parse, golds=golds, recognises=has_fields("riddle", "solution"), metric="squad2",
    judge_line="Any synonym will do.",
    source=Source(hub="me/riddles", configs=("main",), page="https://example.com", splits=SPLITS, pool=("train",),
                  official={"test": "train"}),
)
"""
BREVITY = """def brevity(rollout: Rollout, _: RewardConfig) -> float:
    return max(0.0, 10.0 - len(rollout.execution.answer or '') / 10)


"""
STEPS = """
import typer
from llm_as_judge.commands.cli import DEFAULT_CONFIG, ConfigPath, Overrides

def steps(config: ConfigPath = DEFAULT_CONFIG, overrides: Overrides = None) -> None:
    '''Print how many steps a run has.'''
    from llm_as_judge.config.loading import load_config

    typer.echo(load_config(config, overrides or []).training.max_steps)
"""
TERM = "@dataclass(frozen=True, slots=True)\nclass Term:"
CISPO = '    if config.loss_type == "cispo":\n'
REINFORCE = '    if config.loss_type == "reinforce":\n        per_token = -advantages * logprobs\n'
CLI = "from llm_as_judge.commands.cli import Interrupted, file_problem, printable\n"
EXTENSIONS = {
    "operator": Extension(
        edits={"operators/operators.py": (
            ("CLASSES: tuple", TRANSLATE + "CLASSES: tuple"), ("Review, Revise,\n)", "Review, Revise, Translate,\n)"),
        )},
        use="""
from llm_as_judge.config.schema import Config
from llm_as_judge.workflow.prompt import Layer1
assert 'Translate(input: str, instruction: str)' in Layer1(Config().workflow).system
assert "no findings" in command("workflow", "lint", "w.py")
""",
    ),
    "dataset": Extension(
        added={"data/benchmarks/riddles.py": RIDDLES},
        edits={"data/catalog.py": (
            ("mbpp, squad2\n", "mbpp, riddles, squad2\n"),
            ('    "gsm8k": math.GSM8K,\n', '    "gsm8k": math.GSM8K,\n    "riddles": riddles.DATASET,\n'),
        )},
        use="""
from llm_as_judge.data.catalog import metric_of
from llm_as_judge.judging.prompts import DATASET_LINES
from llm_as_judge.types import Question
assert "riddles" in command("data", "inspect", "--file", "riddles.jsonl")
assert "12 answers of 12 records, 0 faults" in command("data", "check", "--file", "riddles.jsonl")
command(*"data process --datasets riddles --raw . --out out --train-size 20 --test-size 4".split())
assert open("out/test/riddles_test.jsonl").read().count("piano") == 2
assert DATASET_LINES['riddles'] == 'Any synonym will do.'
assert metric_of(Question('q', '?', 'qa', dataset='riddles')) == 'squad2'
""",
    ),
    "reward term": Extension(
        edits={
            "rewards/terms.py": (
                (TERM, BREVITY + TERM),
                ('    "repetition": Term(10.0,', '    "brevity": Term(0.0, brevity),\n    "repetition": Term(10.0,'),
            ),
            "config/schema.py": (('0.65, "efficiency"', '0.60, "brevity": 0.05, "efficiency"'),),
        },
        use="""
from llm_as_judge.evaluation.ablation import without
from llm_as_judge.rewards.total import RewardFunction
from llm_as_judge.types import *
shipped = load_config('config/training.yaml').reward.reward_weights
assert shipped['brevity'] == 0 and sum(shipped.values()) == 1  # files that name the old terms stay valid
function = RewardFunction(load_config(None).reward)
weights = dict(load_config(None).reward.reward_weights)
problem, verdict = Problem(Question('q', 'x', 'math'), Reference(('2',))), Verdict(True, 'rules')
short, long = (Execution('finished', '2' * n) for n in (10, 90))
x = Completion('x', (), (), (), 'stop')
totals = [function(Rollout(problem, x, 'x', run, verdict, Reward(None))) for run in (short, long)]
assert [reward.terms['brevity'] for reward in totals] == [9.0, 1.0]
assert abs(totals[0].total - totals[1].total - .05 * 8) < 1e-9
assert without('reward.brevity', weights)['reward.reward_weights']['brevity'] == 0
""",
    ),
    "loss type": Extension(
        edits={
            "config/schema.py": (('"cispo", "gspo"]', '"cispo", "gspo", "reinforce"]'),),
            "rl/loss.py": ((CISPO, REINFORCE + CISPO.replace("    if", "    elif")),),
        },
        use="""
import torch
from llm_as_judge.rl.loss import LossInputs, Normaliser, policy_loss
config = load_config(None, ['loss_type=reinforce', 'importance_sampling=off']).training
logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
inputs = LossInputs(logprobs=logprobs, advantages=torch.tensor([2.0]), mask=torch.ones(1, 2, dtype=torch.bool))
assert policy_loss(inputs, config, Normaliser(sequences=1, tokens=2)).loss.item() == 3.0
""",
    ),
    "setting": Extension(
        edits={
            "config/schema.py": ((
                "    prefill: bool = Field(",
                '    greeting: str = Field("", description="Line before every problem.")\n    prefill: bool = Field(',
            ),),
            "workflow/prompt.py": (
                ('asked = f"{question.statement}', 'asked = f"{config.greeting}{question.statement}'),
            ),
        },
        use="""
from llm_as_judge.types import Question
from llm_as_judge.workflow.prompt import Layer1
config = load_config(None, ['greeting=Good morning. ']).workflow
assert 'Good morning. What?' in Layer1(config)(Question('q', 'What?', 'math')).user
""",
    ),
    "command": Extension(
        added={"commands/steps.py": STEPS},
        edits={"commands/app.py": (
            ("doctor.doctor,\n", "doctor.doctor, steps.steps,\n"),
            (CLI, f"from llm_as_judge.commands import steps\n{CLI}"),
        )},
        use="""
assert command("steps", "--set", "max_steps=7") == "7\\n"
assert "Print how many steps" in command("--help")
""",
    ),
}  # fmt: skip
USE = """
import contextlib, io
from llm_as_judge.commands.app import main
from llm_as_judge.config.loading import load_config

def command(*words):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*words]) == 0, words
    return printed.getvalue()
"""


def test_each_extension_takes_at_most_two_files_and_works(here: Path) -> None:
    package = here / "llm_as_judge"
    ignored = shutil.ignore_patterns("__pycache__", "weights")
    shutil.copytree(ROOT / "llm_as_judge", package, ignore=ignored)
    (package / "embedded/weights").symlink_to(ROOT / "llm_as_judge/embedded/weights")
    shutil.copytree(ROOT / "config", here / "config")
    for name, extension in EXTENSIONS.items():
        assert len({*extension.added, *extension.edits}) <= 2, name
        for file, text in extension.added.items():
            assert not (package / file).exists(), file
            (package / file).write_text(text, encoding="utf-8")
        for file, changes in extension.edits.items():
            text = (package / file).read_text(encoding="utf-8")
            for old, new in changes:
                assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
                text = text.replace(old, new)
            (package / file).write_text(text, encoding="utf-8")
    Path("w.py").write_text(SINGLE_CALL.replace("operator.Custom", "operator.Translate"))
    riddles = (f'{{"riddle": "What has {n} keys but opens no door?", "solution": "a piano"}}\n' for n in range(12))
    Path("riddles.jsonl").write_text("".join(riddles))
    uses = {name: USE + extension.use for name, extension in EXTENSIONS.items()}
    all_uses = f"for name, use in {uses}.items(): exec(compile(use, name, 'exec'), {{}})"
    done = program(sys.executable, "-c", all_uses, PYTHONPATH=here)
    assert done.returncode == 0, done.stderr
