"""Baselines, comparison and ablation: every row is the method of its name."""

import asyncio
import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.finished import EMBEDDED, run_settings
from helpers.knowing import Knowing, knowing
from helpers.rollouts import Bench, alone, problem, rollout

from llm_as_judge.assembly.policy import load_author
from llm_as_judge.commands.ablate import changed, run_ablation
from llm_as_judge.commands.compare import run_comparison
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import Config
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.evaluation.ablation import PARTS, difference, without, worths
from llm_as_judge.evaluation.baselines import ORACLE, Matrix, Method, measure, row, rows
from llm_as_judge.evaluation.comparison import (
    BEST_SINGLE,
    CONSTANT,
    PROBLEM_ORACLE,
    SELF_CONSISTENCY,
    TRAINED,
    UNTRAINED,
    Compared,
    front,
)
from llm_as_judge.files import json_text
from llm_as_judge.types import Outcome, Question
from llm_as_judge.views.terminal import ablation_table, comparison_table
from llm_as_judge.workflow.enhancer import load_enhancer
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import SHAPES, workflow

PROBLEMS = 16
Finished = tuple[dict[str, Any], Config, "Uneven", int]


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


def test_every_row_is_the_method_of_its_name(compared: Finished) -> None:
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
    assert fresh["value"] == 0 and fresh["interval"] == [-fresh["interval"][1], fresh["interval"][1]], "as untrained"
    gain = differences["self-refine"]
    assert gain["value"] == pytest.approx(right[TRAINED] - right["self-refine"])


def test_what_solves_nothing_is_not_on_the_pareto_front() -> None:
    def compared(name: str, right: float, tokens: float) -> Any:
        row = SimpleNamespace(name=name, overall=SimpleNamespace(n=9, value=right), tokens=tokens)
        return SimpleNamespace(bound=False, row=row)

    rows = [compared("no valid workflow", 0.0, 0), compared("cheap", 0.5, 10), compared("dear", 0.9, 20)]
    assert [row.name for row in front(rows, "tokens")] == ["cheap", "dear"]
    assert front(rows[:1], "tokens") == []


def test_files_and_table_agree_and_a_second_run_asks_nothing(compared: Finished) -> None:
    first, config, served, asked = compared
    saved = json.loads(Path(first["file"]).read_text("utf-8"))
    assert saved == json.loads(json_text(first))
    for own, line in zip(saved["rows"], first["table"].splitlines()[2:], strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0] == own["name"] and cells[1].startswith(f"{100 * own['overall']:.1f} [")
    (constant,) = (own["overall"] for own in saved["rows"] if own["name"] == CONSTANT)
    best = [CONSTANT] * (constant > 0) + ["hand-written for each domain"]
    assert saved["pareto_front"] == {kind: best for kind in ("tokens", "cost")}
    assert Path(first["picture"]).read_bytes()[:4] == b"\x89PNG"
    again = asyncio.run(run_comparison(config, checkpoint=Path(first["checkpoint"])))
    assert served.asked <= asked + 2 and again["usage"].calls == 1
    assert json_text({**again, "usage": 0}) == json_text({**first, "usage": 0})
    result = asyncio.run(run_comparison(compared[1]))
    assert [own["name"] for own in result["rows"] if own["difference"] is None] == [UNTRAINED]
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


FOUR = [problem("m1", "math"), problem("m2", "math"), problem("c1", "code"), problem("q1", "qa")]
TOKENS = {"direct": 10, "program": 20, "answer_vote": 60}


def matrix(**right: Sequence[bool | None]) -> Matrix:
    found = {}
    for shape, marks in right.items():
        ran = [rollout(p, mark, shape=shape, tokens=TOKENS[shape]) for p, mark in zip(FOUR, marks, strict=True)]
        found[shape] = alone(ran)
    return Matrix(found)


#                            m1     m2     c1     q1
MATRIX = matrix(direct=  (True,  False, False, False),
                program= (True,  True,  False, False),
                answer_vote=    (False, False, True,  True))  # fmt: skip


def by_name(made: Matrix) -> dict[str, Method]:
    return {row.name: row for row in rows(made)}


def test_every_row_is_what_its_name_says_without_unscored_answers() -> None:
    assert MATRIX.accuracies()["program"] == {"math": 1, "code": 0, "qa": 0}
    made = by_name(MATRIX)
    single = made["single call everywhere"]
    assert (single.overall.value, single.tokens, set(single.shape.values())) == (0.25, 10, {"direct"})
    assert (single.overall.low, single.overall.high) == pytest.approx((0.0456, 0.6994), abs=5e-5)
    # m1 2/3, m2 1/3, c1 1/3, q1 1/3: the mean over shapes, then over problems
    drawn = made["random policy"]
    assert (drawn.overall.value, drawn.tokens) == (pytest.approx(5 / 12), 30)
    assert {d: e.value for d, e in drawn.domains.items()} == pytest.approx({"math": 0.5, "code": 1 / 3, "qa": 1 / 3})
    oracle = made["per-domain oracle"]
    assert oracle.shape == {"math": "program", "code": "answer_vote", "qa": "answer_vote"}
    assert (oracle.overall.value, oracle.tokens) == (1.0, (20 + 20 + 60 + 60) / 4)
    best = by_name(matrix(direct=(True, False, False, False), answer_vote=(False, True, True, True)))
    everywhere = best["best single workflow everywhere"]
    assert (set(everywhere.shape.values()), everywhere.overall.value, everywhere.tokens) == ({"answer_vote"}, 0.75, 60)
    assert [row.name for row in rows(matrix(direct=(True, False, False, False)))] == ["single call everywhere"]
    assert rows(Matrix({})) == [], "nothing was measured"
    found = by_name(matrix(direct=(True, None, False, False), answer_vote=(False, True, False, True)))
    # m1 1/2, m2 1 (direct was unscored), c1 0, q1 1/2
    assert found["random policy"].overall.value == pytest.approx(1 / 2)
    found = by_name(matrix(direct=(None, None, None, None), program=(True, True, False, False)))
    for name in ("per-domain oracle", "best single workflow everywhere"):
        assert set(found[name].shape.values()) == {"program"}


def test_the_table_tells_lint_valid_workflows_from_those_that_ran_to_an_answer() -> None:
    ended: list[tuple[bool | None, Outcome]] = [
        (True, "finished"),
        (False, "invalid"),
        (False, "raised"),
        (None, "fault"),
    ]
    groups = alone([rollout(p, right, outcome=end) for p, (right, end) in zip(FOUR, ended, strict=True)])
    made = Compared(row("policy", groups), None)
    headings, _, line = ([c.strip() for c in li.split("|")] for li in comparison_table([made]).splitlines())
    cells = dict(zip(headings, line, strict=True))
    assert [cells[name] for name in ("lint-valid %", "ran to an answer %", "no operator %")] == ["67", "25", "0"]
    assert made.as_json()["lint_valid"] == 2 / 3


async def test_every_shape_runs_on_every_problem() -> None:
    def answer(source: str, question: Question) -> str:
        return f"answer {question.id}" if source == workflow(SHAPES["answer_vote"], question.domain) else "?"

    bench, seen = Bench(answer), list[tuple[int, int]]()
    made = await measure(FOUR, bench.parts(), lambda *done: seen.append(done))
    assert seen == [(done, len(SHAPES)) for done in range(1, len(SHAPES) + 1)] and list(made.evaluations) == list(
        SHAPES
    )
    assert sorted(bench.runs) == sorted(
        (workflow(shape, p.question.domain), p.question.id) for shape in SHAPES.values() for p in FOUR
    )
    assert made.accuracies()["answer_vote"] == {"math": 1.0, "code": 1.0, "qa": 1.0}
    assert made.accuracies()["direct"] == {"math": 0.0, "code": 0.0, "qa": 0.0}
