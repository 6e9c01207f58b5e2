"""Each extension of CONTRIBUTING.md ("Adding one") takes at most two files.

All of them are made here in one copy of the package, and used in a process of its own.
"""

import shutil
import sys
from pathlib import Path

from helpers.cli import SINGLE_CALL
from helpers.processes import ROOT, program
from helpers.tables import tables

EXTENSIONS = tables(__file__)
#: Python that shows the effect of each extension.
USES = {
    "operator": """
from llm_as_judge.config.schema import Config
from llm_as_judge.workflow.prompt import Layer1
assert 'Translate(input: str, instruction: str)' in Layer1(Config().workflow).system
assert "no findings" in command("workflow", "lint", "w.py")
""",
    "dataset": """
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
    "reward term": """
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
    "loss type": """
import torch
from llm_as_judge.rl.loss import LossInputs, Normaliser, policy_loss
config = load_config(None, ['loss_type=reinforce', 'importance_sampling=off']).training
logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
inputs = LossInputs(logprobs=logprobs, advantages=torch.tensor([2.0]), mask=torch.ones(1, 2, dtype=torch.bool))
assert policy_loss(inputs, config, Normaliser(sequences=1, tokens=2)).loss.item() == 3.0
""",
    "setting": """
from llm_as_judge.types import Question
from llm_as_judge.workflow.prompt import Layer1
config = load_config(None, ['greeting=Good morning. ']).workflow
assert 'Good morning. What?' in Layer1(config)(Question('q', 'What?', 'math')).user
""",
    "command": """
assert command("steps", "--set", "max_steps=7") == "7\\n"
assert "Print how many steps" in command("--help")
""",
}
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
        added, edits = extension.get("added", {}), extension["edits"]
        assert len({*added, *edits}) <= 2, name
        for file, text in added.items():
            assert not (package / file).exists(), file
            (package / file).write_text(text, encoding="utf-8")
        for file, changes in edits.items():
            text = (package / file).read_text(encoding="utf-8")
            for old, new in changes:
                assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
                text = text.replace(old, new)
            (package / file).write_text(text, encoding="utf-8")
    Path("w.py").write_text(SINGLE_CALL.replace("operator.Custom", "operator.Translate"))
    riddles = (f'{{"riddle": "What has {n} keys but opens no door?", "solution": "a piano"}}\n' for n in range(12))
    Path("riddles.jsonl").write_text("".join(riddles))
    uses = {name: USE + USES[name] for name in EXTENSIONS}
    all_uses = f"for name, use in {uses}.items(): exec(compile(use, name, 'exec'), {{}})"
    done = program(sys.executable, "-c", all_uses, PYTHONPATH=here)
    assert done.returncode == 0, done.stderr
