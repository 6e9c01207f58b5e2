"""``compare``: each row is the method of its name, and ablations remove a part."""

import asyncio
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.finished import EMBEDDED, run_settings
from helpers.knowing import Knowing, knowing

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.commands.ablate import changed, run_ablation
from llm_as_judge.commands.compare import run_comparison
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.ablation import PARTS, difference, without, worths
from llm_as_judge.evaluation.baselines import ORACLE
from llm_as_judge.evaluation.comparison import (
    BEST_SINGLE,
    CONSTANT,
    PROBLEM_ORACLE,
    SELF_CONSISTENCY,
    TRAINED,
    UNTRAINED,
    front,
)
from llm_as_judge.files import json_text
from llm_as_judge.types import Question
from llm_as_judge.views.terminal import ablation_table
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1

PROBLEMS = 16
Compared = tuple[dict[str, Any], Config, "Uneven", int]


@dataclass
class Uneven(Knowing):
    """Asked plainly it is wrong; a chain of thought is right with six in ten seeds, a program always, one in two
    reviews says True; asked to choose among solutions it names the most frequent one.
    """

    def reply(self, prompt: str, seed: int | None = None) -> str:
        self.asked += 1
        right = next((answer for statement, answer in self.answers.items() if statement in prompt), "0")
        rng = random.Random(seed)
        if "solve()" in prompt:
            return f"```python\ndef solve():\n    return {right}\n```"
        if "<solution_letter>" in prompt:
            return f"<thought>.</thought><solution_letter>{self._most_frequent(prompt)}</solution_letter>"
        if "<review_result>" in prompt:
            return f"<feedback>.</feedback><review_result>{rng.random() < 0.5}</review_result>"
        if "Think" not in prompt and "<solution>" not in prompt:
            return "-1" if "Copy out" not in prompt else re.findall(r"Solution:\n(\S+)", prompt)[0]
        said = right if rng.random() < 0.6 else str(-rng.randrange(2, 10**6))
        return f"<thought>.</thought><answer>{said}</answer>" if "<answer>" in prompt else said

    def _most_frequent(self, prompt: str) -> str:
        listed = re.findall(r"^([A-Z])[.:)]\s*(\S+)$", prompt, re.MULTILINE)
        solutions = [solution for _, solution in listed]
        return max(listed, key=lambda one: solutions.count(one[1]))[0]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Config, Uneven, int]]:
    """The comparison of an adapter with the policy it was made of, the settings, the executor and what it was asked."""
    folder = tmp_path_factory.mktemp("compared")
    lines = [{"problem": f"What is {i} plus {i}, then?", "answer": str(2 * i), "type": "math"} for i in range(101, 173)]
    for name, part in (("train", lines[PROBLEMS:]), ("test", lines[:PROBLEMS])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in part))
    served = Uneven(answers={line["problem"]: line["answer"] for line in lines})
    with knowing(served):
        settings = {
            "train_dataset": folder / "train.jsonl", "test_dataset": folder / "test.jsonl",
            "domain_ratios": "{math: 1, code: 0, qa: 0}", "executor.provider": "openai", "executor.model": "knowing",
            "executor.base_url": served.url, "executor.price_per_million_input": 1, "judge.provider": "openai",
            "judge.model": "knowing", "judge.base_url": served.url, "judge.structured": "false",
            "rollout_batch_size": 4, "num_return_sequences_in_group": 4,
            "workflow.enhancer": "null", "results_dir": folder / "results",
            "log_dir": folder / "logs", "output_dir": folder / "checkpoints",
        }  # fmt: skip
        config = load_config(EMBEDDED, [f"{name}={value}" for name, value in settings.items()])
        load_author(config).policy.save_adapter(folder / "adapter")
        result = asyncio.run(run_comparison(config, checkpoint=folder / "adapter"))
        yield result, config, served, served.asked


def test_every_row_is_the_method_of_its_name(compared: Compared) -> None:
    rows = {row["name"]: row for row in compared[0]["rows"]}
    right = {name: row["overall"] for name, row in rows.items()}
    tokens = {name: row["executor_tokens"] for name, row in rows.items()}
    assert right["single call (IO)"] == right["AFlow's first round"] == 0
    assert 0.4 < right["chain of thought"] < 0.75
    assert right[SELF_CONSISTENCY] > right["chain of thought"] + 0.04, "several answers and the most frequent one"
    assert tokens[SELF_CONSISTENCY] >= max(tokens[TRAINED], 2.9 * tokens["chain of thought"])
    assert rows[SELF_CONSISTENCY]["shape"]["math"].endswith(" x answer")
    assert (right[CONSTANT], tokens[CONSTANT], rows[CONSTANT]["without_operators"]) == (0, 0, 1)
    assert rows["chain of thought"]["without_operators"] == 0
    assert right["hand-written for each domain"] == right[BEST_SINGLE] == right[ORACLE] == right[PROBLEM_ORACLE] == 1
    assert rows[BEST_SINGLE]["shape"] == {"math": "program"} and 0.2 < right["random policy"] < 0.6
    assert tokens["self-refine"] > 2 * tokens["single call (IO)"]
    assert tokens[PROBLEM_ORACLE] <= tokens["hand-written for each domain"]
    assert compared[0]["problems"] == PROBLEMS and all("math" in row and "qa" not in row for row in rows.values())
    differences = {name: row["difference"] for name, row in rows.items()}
    assert [name for name, difference in differences.items() if difference is None] == [TRAINED]
    fresh = differences[UNTRAINED]
    assert (fresh["value"], fresh["interval"]) == (0, [0, 0]), "a new adapter changes nothing"
    gain = differences["self-refine"]
    assert gain["value"] == pytest.approx(right[TRAINED] - right["self-refine"])


def test_what_solves_nothing_is_not_on_the_pareto_front() -> None:
    def compared(name: str, right: float, tokens: float) -> Any:
        row = SimpleNamespace(name=name, overall=SimpleNamespace(n=9, value=right), tokens=tokens)
        return SimpleNamespace(bound=False, row=row)

    rows = [compared("no valid workflow", 0.0, 0), compared("cheap", 0.5, 10), compared("dear", 0.9, 20)]
    assert [row.name for row in front(rows, "tokens")] == ["cheap", "dear"]
    assert front(rows[:1], "tokens") == []


def test_files_and_table_agree_and_a_second_run_asks_nothing(compared: Compared) -> None:
    first, config, served, asked = compared
    saved = json.loads(Path(first["file"]).read_text("utf-8"))
    assert saved == json.loads(json_text(first))
    for row, line in zip(saved["rows"], first["table"].splitlines()[2:], strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0] == row["name"] and cells[1].startswith(f"{100 * row['overall']:.1f} [")
    (constant,) = (row["overall"] for row in saved["rows"] if row["name"] == CONSTANT)
    best = [CONSTANT] * (constant > 0) + ["hand-written for each domain"]
    assert saved["pareto_front"] == {kind: best for kind in ("tokens", "cost")}
    assert Path(first["picture"]).read_bytes()[:4] == b"\x89PNG"
    again = asyncio.run(run_comparison(config, checkpoint=Path(first["checkpoint"])))
    assert served.asked <= asked + 2 and again["usage"].calls == 1
    assert json_text({**again, "usage": 0}) == json_text({**first, "usage": 0})
    result = asyncio.run(run_comparison(compared[1]))
    assert [row["name"] for row in result["rows"] if row["difference"] is None] == [UNTRAINED]
    assert "untrained policy minus this" in result["table"]


WEIGHTS = {"correctness": 0.65, "efficiency": 0.15, "simplicity": 0.10, "format": 0.05, "repetition": 0.05}


def test_the_interval_is_students_over_paired_seeds_and_the_table_shows_it() -> None:
    found = difference([0.6, 0.7, 0.8], [0.5, 0.5, 0.5])
    assert (found.value, found.n) == (pytest.approx(0.2), 3)
    assert found.high - found.value == pytest.approx(4.30265 * 0.1 / math.sqrt(3), rel=1e-4)
    assert math.isnan(difference([0.6], [0.5]).low)
    full = [(0.6, 900.0), (0.7, 1000.0), (0.8, 1100.0)]
    table = re.sub(" +", " ", ablation_table(full, worths(full, {"buffer": [(0.5, 1000.0)] * 3})))
    assert "| nothing | 70.0 | | 1000 | |" in table
    assert "| buffer | 50.0 | +20.0 [-4.8, +44.8] | 1000 | +0 [-248, +248] |" in table


def test_every_part_can_be_removed_from_the_shipped_configuration() -> None:
    config = load_config(EMBEDDED, ["experience_buffer.top_k=3"])
    weights = {str(term): weight for term, weight in config.reward.reward_weights.items()}
    for part in PARTS:
        made = changed(config, without(part, weights), part, 7)
        prompt = Layer1(made.workflow)(Question("q", "2+2?", "math"))
        assert made.training.seed == 7 and made.output.run_name.endswith("seed7")
        assert bool(prompt.system) is (part != "layer1")
        assert bool(load_enhancer(made.workflow).instructions) is (part != "layer2")
        assert bool(made.experience_buffer.top_k) is (part != "buffer")
        assert ("2+2?" in prompt.user) is (part != "problem")
        assert made.training.shuffle_rewards is (part == "rewards")
        gone = [term for term, weight in made.reward.reward_weights.items() if not weight]
        assert gone == ([part.removeprefix("reward.")] if part.startswith("reward.") else [])
    moved = without("reward.efficiency", WEIGHTS)["reward.reward_weights"]
    assert moved == {**WEIGHTS, "efficiency": 0.0, "correctness": pytest.approx(0.8)}
    with pytest.raises(ConfigError, match=r"reward\.style"):
        without("reward.style", WEIGHTS)


async def test_a_file_that_is_no_ablation_is_refused(tmp_path: Path) -> None:
    config = load_config(EMBEDDED, [f"results_dir={tmp_path}"])
    for text in ("", "[]", '{"runs": []}', '{"runs": {"a": {"config": "x"}}}'):
        (tmp_path / f"ablation_{config.output.run_name}.json").write_text(text)
        with pytest.raises(DataError, match="move it away"):
            await run_ablation(config, ["buffer"], 1)


@pytest.mark.slow
async def test_an_ablation_trains_and_resumes(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"max_steps": 1, "num_return_sequences_in_group": 2, "eval_problems": 3, "max_problems": 6}
    config = load_config(EMBEDDED, run_settings(tmp_path, address, **more, **{"judge.mode": "rules"}))
    result = await run_ablation(config, ["buffer"], 1)
    assert [worth.part for worth in result["parts"]] == ["buffer"]
    assert len(result["full"]) == 1 and 0 <= result["full"][0]["accuracy"] <= 1
    assert result["file"] == str(tmp_path / "results/ablation_grpo_mixed.json") and Path(result["file"]).exists()
    monkeypatch.setattr("llm_as_judge.commands.ablate._trained", None)  # finished runs are not trained again
    assert json_text(await run_ablation(config, ["buffer"], 1)) == json_text(result)
