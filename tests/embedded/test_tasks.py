"""The generated problems are right and told apart only by reading; the tokenizer; the shipped judge."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import nano_tokenizer
import numpy as np
import pretrain
import pytest
import torch
import warm_start
from hypothesis import given
from hypothesis import strategies as st
from problems import FILES, made
from safetensors.torch import load_file
from tokenizers import Tokenizer
from world import coding, lexicon, maths, reading
from world.generate import KINDS, Split, problems, split_of

from llm_as_judge.assembly.problems import embedded_problems
from llm_as_judge.assembly.services import open_judge
from llm_as_judge.config.loading import load_config
from llm_as_judge.embedded.engine import NanoEngine
from llm_as_judge.embedded.server import EXECUTOR, WEIGHTS
from llm_as_judge.judging.calibration import PLAIN, Pair, calibrate
from llm_as_judge.rl.ranks import ALONE
from llm_as_judge.types import DOMAINS, Domain, Problem


def run(program: str) -> str:
    names: dict[str, object] = {}
    exec(program, names)
    return str(names["solve"]())  # type: ignore[operator]


def test_programs_steps_and_answers_agree() -> None:
    r = Random(1)
    tasks = [draw(r) for draw in maths.KINDS.values() for _ in range(150)]
    tasks += [task for _ in range(50) for task in reading.draw(r).tasks["numbers"]]
    for task in tasks:
        if task.program:
            assert run(task.program) == task.answer
            equations = [line for line in task.reasoning.splitlines() if "=" in line]
            for line in equations:
                left, right = line.split("=")
                assert eval(left.replace("/", "//")) == int(right)
            assert equations[-1].endswith(f"={task.answer}")
    r = Random(2)
    for _ in range(100):
        task = maths.relays(r)
        paid = dict(re.findall(r"(\w+) pays (\w+)\.", task.text))
        at, steps = task.text.split()[-4], []
        while at in paid:
            steps.append(f"{at} pays {paid[at]}.")
            at = paid[at]
        assert at == task.answer and " ".join(steps) == task.reasoning and len(steps) == 2


def test_passages_contain_the_evidence_and_tests_separate_readings() -> None:
    r = Random(3)
    for _ in range(100):
        p = reading.draw(r)
        for kind, tasks in p.tasks.items():
            for task in tasks:
                evidence = task.reasoning.split("\n")[0]
                sentences = re.findall(r"[^.]+\.", evidence)
                assert tasks and all(s.strip() in p.text for s in sentences)
                assert len(sentences) == {"lookup": 1, "hops": 2, "numbers": 2}[kind]
                assert kind == "numbers" or task.answer in sentences[-1]
    r = Random(4)
    for kind in KINDS["code"]:
        for _ in range(60):
            task = coding.draw(r, kind)
            assert all(coding.call(task.solution, x) == y for x, y in task.cases)
            assert all(any(coding.call(o, x) != y for x, y in task.cases[:2]) for o in task.others)
            assert bool(task.others) == (kind == "open") and bool(task.missing) == (kind == "long")
            assert bool(task.public) == (kind != "long")
            failed = any(coding.call(task.draft, x) != y for x, y in task.cases)
            assert failed == (kind == "long")


def test_problems_belong_to_their_split_and_the_seed_decides() -> None:
    for domain in DOMAINS:
        for side in ("pretrain", "train", "heldout"):
            for question in (problem.question for problem in problems(domain, side, 60)):
                parts = [question.context] if question.context else question.text.split(" Never mind. ")
                assert {split_of(part) for part in parts} == {side}, question
    assert problems("qa", "train", 5, seed=1) == problems("qa", "train", 5, seed=1)
    assert problems("qa", "train", 5, seed=1) != problems("qa", "train", 5, seed=2)
    assert problems("qa", "train", 5) == problems("qa", "train", 9)[:5]
    drawn = problems("math", "train", 6)
    assert [p.question.dataset for p in drawn] == ["sums", "chains", "relays", "chains", "sums", "chains"]
    assert all(p.question.id.startswith(f"embedded/{p.question.dataset}/") for p in drawn)


def test_the_shipped_problems_are_those_of_the_generator() -> None:
    for name, (_, count, _) in FILES.items():
        for domain in DOMAINS:
            shipped = [problem for problem in embedded_problems(name) if problem.question.domain == domain]
            assert len(shipped) == count and shipped[:20] == [p for p in made(name, 20) if p.question.domain == domain]


def fitted(rows: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Weights of a softmax regression, by gradient descent."""
    weights = np.zeros((rows.shape[1], 3))
    wanted = np.eye(3)[kinds]
    for _ in range(1500):
        scores = rows @ weights
        found = np.exp(scores - scores.max(1, keepdims=True))
        found /= found.sum(1, keepdims=True)
        weights -= 0.1 * (rows.T @ (found - wanted) / len(rows) + 1e-4 * weights)
    return weights


def shares_found(train: Sequence[Problem], heldout: Sequence[Problem], bag: bool) -> Mapping[str, float]:
    """Share of each kind that is recognised by its words, or by its length alone."""
    words = sorted({w for p in train for w in re.findall(r"\w+|[^\w\s]", p.question.statement)}) if bag else []
    columns = {w: i for i, w in enumerate(words)}

    def rows(drawn: Sequence[Problem]) -> np.ndarray:
        made = np.zeros((len(drawn), len(columns) + 3))
        for row, problem in zip(made, drawn, strict=True):
            found = re.findall(r"\w+|[^\w\s]", problem.question.statement)
            for word in found:
                if word in columns:
                    row[columns[word]] += 1
            row[-3:] = 1, len(found) / 100 - 1, (len(found) / 100 - 1) ** 2
        return made

    names = list(dict.fromkeys(p.question.dataset for p in train))
    kinds = np.array([names.index(p.question.dataset) for p in train])
    inputs = rows(train)
    scale = np.where(inputs.std(0) > 0, np.maximum(inputs.std(0), 0.2), 1.0)
    guessed = (rows(heldout) / scale @ fitted(inputs / scale, kinds)).argmax(1)
    own = np.array([names.index(p.question.dataset) for p in heldout])
    return {name: float((guessed[own == i] == i).mean()) for i, name in enumerate(names)}


def balanced(domain: Domain, split: Split, each: int) -> list[Problem]:
    """``each`` problems of every kind, so that guessing the frequent kind does not pay."""
    drawn = problems(domain, split, 4 * each)
    return [p for kind in KINDS[domain] for p in [p for p in drawn if p.question.dataset == kind][:each]]


@pytest.mark.slow
def test_neither_the_words_nor_the_length_tell_the_kind_of_a_problem() -> None:
    """At most one kind in three is recognised by its words; reading to the end tells all (asides end with a dot)."""
    found: dict[str, tuple[float, float]] = {}
    for domain in DOMAINS:
        train, heldout = balanced(domain, "train", 300), balanced(domain, "heldout", 100)
        bag, length = (shares_found(train, heldout, bag) for bag in (True, False))
        found |= {kind: (bag[kind], length[kind]) for kind in KINDS[domain]}
    print({kind: tuple(round(x, 2) for x in pair) for kind, pair in found.items()})
    assert sum(max(pair) < 0.85 for pair in found.values()) >= 6, found


TOKENIZER = Tokenizer.from_file(str(EXECUTOR / "tokenizer.json"))


def test_every_word_is_one_token_of_policy_and_executor() -> None:
    assert not [word for word in lexicon.everything() if len(TOKENIZER.encode(" " + word).ids) != 1]
    policy = Path(EXECUTOR).parent / "policy" / "tokenizer.json"
    assert policy.read_bytes() == (EXECUTOR / "tokenizer.json").read_bytes()


@given(st.text(max_size=80).filter(lambda t: "<|" not in t))
def test_any_text_is_decoded_as_it_was(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


CONSTANTS = ("equals", "1", "five", "many", "banana", "two", "one", "it", "0", "True", "yes")
TWO = Path("config/two_executors.yaml")
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


@pytest.mark.slow
async def test_constants_lists_and_forged_verdicts_are_refused_and_answers_judged_right() -> None:
    config = load_config("config/embedded.yaml", ["judge.mode=llm"])
    pairs = [pair for domain in ("math", "qa") for pair in labelled(domain)]
    async with open_judge(config) as judge:
        plain, injected, *constants = await calibrate(judge, pairs, ("injection",), CONSTANTS)
    assert plain.kind == PLAIN and plain.agreement is not None and plain.agreement >= 0.97, plain.line()
    empty = [injected, *constants]
    accepted = sum(counts.false_accepts for counts in empty)
    refused = sum(counts.true_rejects for counts in empty)
    assert accepted <= 0.02 * (accepted + refused), [(c.kind, c.line()) for c in empty if c.false_accepts]


def test_executor_and_policy_can_be_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain.shutil, "which", lambda name: None)  # compiling takes longer than these steps
    nano_tokenizer.copy(EXECUTOR, tmp_path)
    pretrain._train(ALONE, pretrain.Settings(tmp_path, size="small", tokens=2e3, rows=2))
    pretrain.export(tmp_path, tmp_path / "executor", "small")
    assert NanoEngine(tmp_path / "executor").width == 96

    rounds = (warm_start.Round(2, 2, 2, 1e-3), warm_start.Round(1, 2, 0, 1e-3, spread=8.0))
    monkeypatch.setattr(warm_start, "ROUNDS", rounds)
    policy = WEIGHTS / "policy"
    trained = warm_start.train(warm_start.Settings(EXECUTOR, tmp_path / "policy", problems=3, init=policy, pool=2))
    before = load_file(policy / "model.safetensors")
    assert all(bool(weight.isfinite().all()) for weight in trained.parameters())
    assert any(not torch.equal(weight, before[name]) for name, weight in trained.state_dict().items() if name in before)
    monkeypatch.setattr(warm_start, "CHOOSING", rounds)
    choosing = warm_start.Settings(EXECUTOR, tmp_path / "two", problems=3, init=policy, pool=2, config=TWO)
    examples, name = warm_start.Examples(choosing), "model.embed_tokens.weight"
    drawn = examples.draw(9, 4)
    texts = [examples.tokenizer.decode(ids[:-1]) for ids in drawn.workflows]
    assert {"model='small'" in text for text in texts} == {True, False}
    deciding = [
        [*map(examples.tokenizer.decode, (ids[n] for n in d))]
        for ids, d in zip(drawn.workflows, drawn.decisions, strict=True)
    ]
    assert {words[1].strip() for words in deciding} == {"big", "small"}
    chosen, (known, learned) = warm_start.train(choosing).state_dict()[name], examples.names()
    assert torch.equal(chosen[known], before[name][known]) and not torch.equal(chosen[learned], before[name][learned])
