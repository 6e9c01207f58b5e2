"""Each extension of CONTRIBUTING.md ("Adding one") takes at most two files.

Each is made here in a copy of the package, and used in a process of its own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.workflows import SINGLE_CALL

ROOT = Path(__file__).parents[1]


class Copy:
    """A copy of the package; ``changed`` are the files that were edited or added."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.changed = folder, set[str]()
        ignore = shutil.ignore_patterns("__pycache__", "weights")
        shutil.copytree(ROOT / "llm_as_judge", folder / "llm_as_judge", ignore=ignore)
        (folder / "llm_as_judge/embedded/weights").symlink_to(ROOT / "llm_as_judge/embedded/weights")
        shutil.copytree(ROOT / "config", folder / "config")

    def add(self, name: str, text: str) -> None:
        path = self.folder / "llm_as_judge" / name
        assert not path.exists()
        path.write_text(text, encoding="utf-8")
        self.changed.add(name)

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """Each change is an old text, which occurs once, and its replacement."""
        path = self.folder / "llm_as_judge" / name
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
        self.changed.add(name)

    def command(self, *words: str) -> str:
        return self.run("-m", "llm_as_judge.commands.app", *words)

    def run(self, *words: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(self.folder)}
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_an_operator_is_a_class_and_a_line_in_the_catalog(copy: Copy) -> None:
    copy.add(
        "operators/translate.py",
        "from dataclasses import dataclass\n"
        "from llm_as_judge.operators.base import Toolbox, result\n\n\n"
        "@dataclass(frozen=True)\n"
        "class Translate:\n"
        "    tools: Toolbox\n"
        "    NAME, SUMMARY, RESULT = 'Translate', 'puts a text into English', {'response': str}\n\n"
        "    async def __call__(self, input: str, instruction: str) -> dict[str, object]:\n"
        "        reply = await self.tools.ask(self.NAME, f'Put this into English: {input}')\n"
        "        return result(parse_ok=bool(reply), response=reply)\n",
    )
    copy.edit(
        "operators/catalog.py",
        (
            "Format, Review, Revise\n\n",
            "Format, Review, Revise\nfrom llm_as_judge.operators.translate import Translate\n\n",
        ),
        ("Review, Revise,\n)", "Review, Revise, Translate,\n)"),
    )
    copy.run(
        "-c",
        "from llm_as_judge.config.schema import Config\n"
        "from llm_as_judge.workflow.prompt import Layer1\n"
        "assert 'Translate(input: str, instruction: str)' in Layer1(Config().workflow).system\n",
    )
    (copy.folder / "w.py").write_text(SINGLE_CALL.replace("operator.Custom", "operator.Translate"))
    assert "no findings" in copy.command("workflow", "lint", "w.py")
    assert len(copy.changed) == 2


def test_a_dataset_is_a_file_and_a_row_of_the_catalog(copy: Copy) -> None:
    copy.add(
        "data/benchmarks/riddles.py",
        "from __future__ import annotations\n"
        "from llm_as_judge.data.dataset import Dataset, Source, Split, has_fields\n"
        "from llm_as_judge.data.record import Record, content_id, text_of\n"
        "from llm_as_judge.types import Problem, Question, Reference\n\n\n"
        "def parse(record: Record) -> Problem:\n"
        '    text = text_of(record, "riddle")\n'
        '    question = Question(content_id("riddles", text), text, "qa", dataset="riddles")\n'
        '    return Problem(question, Reference((text_of(record, "solution"),)))\n\n\n'
        "def golds(record: Record) -> tuple[str, ...]:\n"
        '    return (text_of(record, "solution"),)\n\n\n'
        "DATASET = Dataset(\n"
        '    domain="qa", parse=parse, golds=golds, recognises=has_fields("riddle", "solution"), metric="squad2",\n'
        '    judge_line="Any synonym will do.",\n'
        "    source=Source(\n"
        '        hub="me/riddles", configs=("main",), page="https://example.com",\n'
        '        splits={"train": Split(hub="train", release=("riddles.jsonl",))},\n'
        '        pool=("train",), official={"test": "train"},\n'
        "    ),\n"
        ")\n",
    )
    copy.edit(
        "data/catalog.py",
        ("mmlu, squad2\n", "mmlu, riddles, squad2\n"),
        ('    "gsm8k": gsm8k.DATASET,\n', '    "gsm8k": gsm8k.DATASET,\n    "riddles": riddles.DATASET,\n'),
    )
    lines = [f'{{"riddle": "What has {n} keys but opens no door?", "solution": "a piano"}}\n' for n in range(12)]
    (copy.folder / "riddles.jsonl").write_text("".join(lines))
    assert "riddles" in copy.command("data", "inspect", "--file", "riddles.jsonl")
    assert "12 answers of 12 records, 0 faults" in copy.command("data", "check", "--file", "riddles.jsonl")
    sizes = ("--train-size", "20", "--test-size", "4")
    copy.command("data", "process", "--datasets", "riddles", "--raw", ".", "--out", "out", *sizes)
    assert (copy.folder / "out/test/riddles_test.jsonl").read_text().count("piano") == 2
    copy.run(
        "-c",
        "from llm_as_judge.data.catalog import metric_of\n"
        "from llm_as_judge.judging.prompts import DATASET_LINES\n"
        "assert DATASET_LINES['riddles'] == 'Any synonym will do.'\n"
        "assert metric_of('riddles', ['qa']) == 'squad2'\n",
    )
    assert len(copy.changed) == 2


def test_a_reward_term_is_a_function_and_a_row_in_one_file(copy: Copy) -> None:
    copy.edit(
        "rewards/terms.py",
        (
            "@dataclass(frozen=True, slots=True)\nclass Term:",
            "def brevity(run: FinishedRun) -> float:\n"
            "    return max(0.0, 10.0 - len(run.execution.answer or '') / 10)\n\n\n"
            "@dataclass(frozen=True, slots=True)\nclass Term:",
        ),
        ('    "repetition": Term(10.0,', '    "brevity": Term(0.0, brevity),\n    "repetition": Term(10.0,'),
    )
    copy.run(
        "-c",
        "from llm_as_judge.config.loading import load_config\n"
        "from llm_as_judge.evaluation.ablation import without\n"
        "from llm_as_judge.rewards.total import RewardFunction\n"
        "from llm_as_judge.types import *\n"
        "weights = dict(correctness=.65, efficiency=.1, simplicity=.1, format=.05, repetition=.05, brevity=.05)\n"
        "function = RewardFunction(load_config(None, [f'reward_weights={weights}']).reward)\n"
        "problem = Problem(Question('q', 'x', 'math'), Reference(('2',)))\n"
        "verdict = Verdict(True, 'rules')\n"
        "short, long = (Execution('finished', '2' * n) for n in (10, 90))\n"
        "totals = [function(problem, Completion('x', (), (), (), 'stop'), run, verdict) for run in (short, long)]\n"
        "assert [reward.terms['brevity'] for reward in totals] == [9.0, 1.0]\n"
        "assert abs(totals[0].total - totals[1].total - .05 * 8) < 1e-9\n"
        "assert without('reward.brevity', weights)['reward.reward_weights']['brevity'] == 0\n",
    )
    assert len(copy.changed) == 1


def test_a_loss_type_is_a_name_in_the_schema_and_a_branch_of_the_loss(copy: Copy) -> None:
    copy.edit("config/schema.py", ('"cispo", "gspo"]', '"cispo", "gspo", "reinforce"]'))
    copy.edit(
        "rl/loss.py",
        (
            '    if config.loss_type == "cispo":\n',
            '    if config.loss_type == "reinforce":\n'
            "        per_token = -advantages * logprobs\n"
            '    elif config.loss_type == "cispo":\n',
        ),
    )
    copy.run(
        "-c",
        "import torch\n"
        "from llm_as_judge.config.loading import load_config\n"
        "from llm_as_judge.rl.loss import LossInputs, Normaliser, policy_loss\n"
        "config = load_config(None, ['loss_type=reinforce', 'importance_sampling=off']).training\n"
        "logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)\n"
        "mask = torch.ones(1, 2, dtype=torch.bool)\n"
        "inputs = LossInputs(logprobs=logprobs, advantages=torch.tensor([2.0]), mask=mask)\n"
        "assert policy_loss(inputs, config, Normaliser(sequences=1, tokens=2)).loss.item() == 3.0\n",
    )
    assert len(copy.changed) == 2


def test_a_setting_is_a_field_of_the_schema_and_its_use(copy: Copy) -> None:
    copy.edit(
        "config/schema.py",
        (
            "    prefill: bool = Field(",
            '    greeting: str = Field("", description="Line before every problem.")\n    prefill: bool = Field(',
        ),
    )
    copy.edit(
        "workflow/prompt.py", ('f"{question.statement}{entry}")', 'f"{config.greeting}{question.statement}{entry}")')
    )
    copy.run(
        "-c",
        "from llm_as_judge.config.loading import load_config\n"
        "from llm_as_judge.config.describe import describe\n"
        "from llm_as_judge.types import Question\n"
        "from llm_as_judge.workflow.prompt import Layer1\n"
        "config = load_config(None, ['greeting=Good morning. ']).workflow\n"
        "assert 'Good morning. What?' in Layer1(config)(Question('q', 'What?', 'math')).user\n"
        "assert any(row.name == 'workflow.greeting' for row in describe())\n",
    )
    assert len(copy.changed) == 2


def test_a_command_is_a_file_and_a_line_in_the_command_line(copy: Copy) -> None:
    copy.add(
        "commands/steps.py",
        "import typer\n"
        "from llm_as_judge.commands.cli import DEFAULT_CONFIG, ConfigPath, Overrides\n\n\n"
        "def steps(config: ConfigPath = DEFAULT_CONFIG, overrides: Overrides = None) -> None:\n"
        '    """Print how many steps a run has."""\n'
        "    from llm_as_judge.config.loading import load_config\n\n"
        "    typer.echo(load_config(config, overrides or []).training.max_steps)\n",
    )
    imported = "from llm_as_judge.commands.cli import Interrupted, printable\n"
    copy.edit(
        "commands/app.py",
        ("doctor.doctor,\n", "doctor.doctor, steps.steps,\n"),
        (imported, f"from llm_as_judge.commands import steps\n{imported}"),
    )
    assert copy.command("steps", "--set", "max_steps=7") == "7\n"
    assert "Print how many steps" in copy.command("--help")
    assert len(copy.changed) == 2
