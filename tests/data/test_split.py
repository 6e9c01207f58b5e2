"""Splits and mixes, and what a run reads of them."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from helpers.finished import EMBEDDED
from helpers.samples import write_lines
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.assembly.problems import embedded_problems, open_problems
from llm_as_judge.config.loading import load_config
from llm_as_judge.data.files import MARKER
from llm_as_judge.data.problems import read_problems, spread, unseen
from llm_as_judge.data.process import Job, process
from llm_as_judge.data.sampler import DomainSampler, Mixture
from llm_as_judge.data.settings import load_settings
from llm_as_judge.data.split import Entry, Sides, contamination, decontaminated, entry_of, split, split_official
from llm_as_judge.errors import ConfigError, DataError
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Reference


def size(sides: Sides) -> int:
    return len(sides.train) + len(sides.val) + len(sides.test)


def entry(question: str, context: str = "", answer: str = "a", seed: int = 0, id_: str = "i") -> Entry:
    return entry_of(Problem(Question(id_, question, "qa", context=context), Reference((answer,))), seed, b"")


def entries_of(spec: list[tuple[int, int, int]], seed: int = 0) -> list[Entry]:
    return [entry(f"question {q}", f"context {c}", f"answer {a}", seed) for q, c, a in spec]


specs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 2)), max_size=120)
pairs = st.tuples(st.integers(1, 9), st.integers(1, 9))


@settings(max_examples=80)
@given(specs, pairs, st.floats(0, 0.9), st.randoms(use_true_random=False))
def test_no_question_is_on_two_sides_and_sizes_are_exact_in_any_order_of_the_input(
    spec: list[tuple[int, int, int]], train_test: tuple[int, int], val: float, rng: random.Random
) -> None:
    entries = entries_of(spec)
    sides = split(entries, train_test, val)
    questions = [{entry.question for entry in side} for side in (sides.train, sides.val, sides.test)]
    assert not questions[0] & questions[1] and not questions[0] & questions[2] and not questions[1] & questions[2]
    kept = [*sides.train, *sides.val, *sides.test]
    assert {entry.problem for entry in kept} == {entry.problem for entry in entries}
    assert len({entry.problem for entry in kept}) == len(kept) == len(entries) - sum(sides.dropped.values())
    rng.shuffle(entries)
    assert split(entries, train_test, val) == sides
    n = len(spec)  # and once more with every question once
    sides = split(entries_of([(i, 0, 0) for i in range(n)]), train_test, val)
    assert abs(len(sides.test) - Fraction(n * train_test[1], sum(train_test))) <= Fraction(1, 2)
    assert len(sides.val) == round((n - len(sides.test)) * val) and size(sides) == n


def test_another_seed_gives_another_split_and_near_copies_are_one_question() -> None:
    spec = [(i, 0, 0) for i in range(600)]
    first, other = (split(entries_of(spec, seed), (5, 1)) for seed in (0, 1))
    assert len({e.content for e in first.test} & {e.content for e in other.test}) < 60
    more = split(entries_of([*spec, (600, 0, 0)]), (5, 1))
    assert len({e.problem for e in more.test} ^ {e.problem for e in first.test}) <= 2
    assert entry("What  is it? ").problem == entry("what is it").problem
    assert entry("What, is it?").question == entry("what is it").question
    assert entry("ﬁve").problem == entry("five").problem
    assert entry("2 + 3?").problem != entry("2 - 3?").problem
    assert entry("2 + 3?", "c").problem != entry("2 + 3?", "d").problem


@settings(max_examples=60)
@given(specs, specs, st.floats(0, 0.5))
def test_datasets_share_nothing(one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], val: float) -> None:
    before = {"a": split(entries_of(one), (5, 1), val), "b": split(entries_of(two), (2, 1), val)}
    sides = decontaminated(before)
    train, held, test = (
        {entry.question for s in sides.values() for entry in getattr(s, side)} for side in ("train", "val", "test")
    )
    assert not train & test and not held & test and not train & held
    for name, s in sides.items():
        assert s.test == before[name].test
        assert size(before[name]) == size(s) + s.dropped["in_a_test_set"] + s.dropped["in_a_validation_set"]
    assert all(found["question"] == 0 for found in contamination(sides).values())


def test_the_published_test_set_stays_complete_and_contamination_is_counted() -> None:
    test = [entry("a"), entry("a", id_="copy"), entry("b")]
    train = [entry("b"), entry("c"), entry("c", id_="copy"), entry("d")]
    sides = decontaminated({"x": split_official(train, test)})["x"]
    assert len(sides.test) == 3
    assert {e.question for e in sides.train} == {entry("c").question, entry("d").question}
    assert sides.dropped["in_a_test_set"] == 1 and sides.dropped["duplicates"] == 1
    words = " ".join(f"w{i}" for i in range(14))
    sides = {
        "x": Sides([entry(f"{words} one", "shared"), entry("short")], [], []),
        "y": Sides([], [], [entry(f"{words} two", "shared"), entry("Short!"), entry(" ".join(words.split()[:12]))]),
    }
    assert contamination(sides)["y"] == {"question": 1, "passage": 1, "context": 1}


DOMAINS_OF: dict[str, Domain] = {"a": "math", "b": "math", "c": "qa", "d": "code", "e": "code", "f": "code"}


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 30), min_size=6, max_size=6), st.integers(0, 200),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), st.integers(0, 3),
)  # fmt: skip
def test_every_prefix_of_a_mix_is_exact_and_a_set_is_used_up_before_it_repeats(
    lines: list[int], n: int, ratios: tuple[int, int, int], seed: int
) -> None:
    sizes = dict(zip("abcdef", lines, strict=True))
    shares: dict[Domain, float] = dict(zip(("math", "qa", "code"), map(float, ratios), strict=True))
    slots = list(Mixture(sizes, DOMAINS_OF, shares, "train", seed).take(n))
    assert slots == list(Mixture(sizes, DOMAINS_OF, shares, "train", seed).take(n))
    drawn: Counter[str] = Counter()
    of_set: dict[str, list[int]] = {name: [] for name in sizes}
    for i, slot in enumerate(slots, 1):
        assert slot.repeat == len(of_set[slot.name]) // sizes[slot.name]
        of_set[slot.name].append(slot.line)
        drawn[DOMAINS_OF[slot.name]] += 1
        for domain, ratio in shares.items():
            assert abs(drawn[domain] - Fraction(i * int(ratio), sum(ratios))) < 1
    for name, indexes in of_set.items():
        siblings = [len(of_set[other]) for other in sizes if DOMAINS_OF[other] == DOMAINS_OF[name]]
        assert max(siblings) - min(siblings) <= 1
        for start in range(0, len(indexes) - sizes[name] + 1, sizes[name]):
            assert len(set(indexes[start : start + sizes[name]])) == sizes[name]


RATIOS: dict[Domain, float] = {"math": 0.4, "code": 0.3, "qa": 0.3}


def problems(**counts: int) -> dict[Domain, list[Problem]]:
    return {
        domain: [Problem(Question(f"{domain}/{i}", "?", domain), Reference()) for i in range(counts.get(domain, 0))]
        for domain in DOMAINS
    }


def ids(batch: list[Problem]) -> list[str]:
    return [problem.question.id for problem in batch]


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 13), min_size=1, max_size=30),
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50)),
)
def test_every_domain_stays_within_one_of_its_share(batches: list[int], parts: tuple[int, int, int]) -> None:
    ratios: dict[Domain, float] = {domain: float(part) for domain, part in zip(DOMAINS, parts, strict=True)}
    sampler = DomainSampler(problems(math=7, code=5, qa=3), ratios)
    drawn: Counter[str] = Counter()
    for size in batches:
        batch = sampler.sample(size)
        assert len(batch) == size
        drawn.update(problem.question.domain for problem in batch)
        for domain, part in zip(DOMAINS, parts, strict=True):
            assert abs(drawn[domain] - Fraction(part, sum(parts)) * drawn.total()) < 1


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_nothing_repeats_within_an_epoch_and_copies_are_spread(unique: int, copies: int, size: int, seed: int) -> None:
    pool = problems(math=unique)["math"] * copies
    sampler = DomainSampler({"math": pool}, {"math": 1.0}, seed)
    drawn = [id_ for _ in range(2 * len(pool)) for id_ in ids(sampler.sample(size))]
    for start in range(0, len(drawn) - unique + 1, unique):
        assert len(set(drawn[start : start + unique])) == unique


@settings(max_examples=30)
@given(st.integers(0, 40), st.integers(1, 7))
def test_a_resumed_sampler_continues_exactly(before: int, size: int) -> None:
    pool = problems(math=5, code=4, qa=3)
    whole, resumed = DomainSampler(pool, RATIOS, 3), DomainSampler(pool, RATIOS, 99)
    for _ in range(before):
        whole.sample(size)
    resumed.load_state_dict(whole.state_dict())
    assert [ids(whole.sample(size)) for _ in range(9)] == [ids(resumed.sample(size)) for _ in range(9)]


def test_the_order_of_slots_is_known_and_other_problems_are_refused() -> None:
    # Saved runs resume on it.
    drawn = ids(DomainSampler(problems(math=9, code=9, qa=9), RATIOS, 0).sample(12))
    assert drawn == ("math/3 code/0 qa/1 math/7 code/2 qa/3 math/4 code/3 qa/4 math/8 math/5 code/5".split())
    state = DomainSampler(problems(math=5), {"math": 1.0}).state_dict()
    with pytest.raises(DataError, match="other training problems"):
        DomainSampler(problems(math=6), {"math": 1.0}).load_state_dict(state)
    mended = {"math": [replace(one, reference=Reference(("new",))) for one in problems(math=5)["math"]]}
    with pytest.raises(DataError, match="other training problems"):
        DomainSampler(mended, {"math": 1.0}).load_state_dict(state)
    for there in ({"math": 5, "qa": 5}, {"math": 5}, {"qa": 5}):
        with pytest.raises(DataError, match=r"no (math|code) problems; add some") as caught:
            DomainSampler(problems(**there), RATIOS)
        advice = str(caught.value).partition("--set '")[2].removesuffix("'")
        DomainSampler(problems(**there), load_config(overrides=[advice]).data.domain_ratios)
    DomainSampler(problems(math=5), {"math": 1.0, "code": 0.0})
    with pytest.raises(ConfigError, match=r"gives code 0\.3"):
        Mixture({"a": 5, "d": 0}, DOMAINS_OF, {"math": 0.7, "code": 0.3}, "train")


def own_file(path: Path, *counts: tuple[str, int]) -> Path:
    """Problems of one domain after the other."""
    return write_lines(path, (
        {"problem": f"{domain} {i}?", "answer": str(i), "type": domain} for domain, n in counts for i in range(n)
    ))  # fmt: skip


def test_the_trainer_draws_the_mix_and_refuses_one_that_is_not_whole(samples: Path, tmp_path: Path) -> None:
    settings = load_settings(None, {"train_size": 40, "test_size": 20})
    process(Job(settings, samples, tmp_path, any_split=True))
    files = [f"data.{side}_dataset={tmp_path}/mixed/{side}_mixed.jsonl" for side in ("train", "test")]
    config = load_config(EMBEDDED, ["eval_problems=20", *files])
    problems = open_problems(config)
    drawn = problems.sampler.sample(40)
    assert Counter(problem.question.domain for problem in drawn) == {"math": 16, "qa": 12, "code": 12}
    ids = Counter(problem.question.id for problem in drawn)
    assert max(ids.values()) == 1  # no set is small enough to be repeated in 40
    heldout = [problem.question.id for problem in problems.heldout]
    assert len(set(heldout)) == len(heldout) > 10, "a copy is no further evidence"
    assert {problem.question.domain for problem in problems.heldout} == {"math", "qa", "code"}
    assert not {problem.question.id for problem in problems.heldout} & ids.keys()
    (tmp_path / MARKER).touch()
    with pytest.raises(DataError, match="broke off"):
        open_problems(config)


def test_contradictory_files_are_refused_with_the_cure(tmp_path: Path) -> None:
    path = own_file(tmp_path / "own.jsonl", ("math", 3))
    (tmp_path / "link.jsonl").symlink_to(path)
    for options, reason in (
        ([f"test_dataset={path}"], r"test_dataset means files, but train_dataset is not set.*evaluate --data"),
        ([f"train_dataset={path}", f"test_dataset={path}"], r"are the same file.*data process"),
        ([f"train_dataset={path}", f"test_dataset={tmp_path}/link.jsonl"], r"are the same file.*data process"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_config(EMBEDDED, options)


def test_a_choice_has_every_domain_in_its_share_and_trained_problems_are_counted(tmp_path: Path) -> None:
    problems = read_problems(own_file(tmp_path / "sorted.jsonl", ("math", 60), ("qa", 30)))
    chosen = spread(problems, 30)
    assert Counter(p.question.domain for p in chosen) == {"math": 20, "qa": 10}
    places = [problems.index(p) for p in chosen]
    assert places == sorted(places) and max(place for place in places if place < 60) > 40, "not the first ones alone"
    mixed = sorted(problems, key=lambda p: p.question.statement[::-1])
    assert {p.question.id for p in spread(mixed, 30)} == {p.question.id for p in chosen}
    assert spread(problems, 90) == problems
    train, test = own_file(tmp_path / "a.jsonl", ("math", 9)), own_file(tmp_path / "b.jsonl", ("math", 4))
    test.write_text(test.read_text().replace("math 0?", "another?").replace("math 1?", "MATH  1?"))
    only = "domain_ratios={math: 1, qa: 0, code: 0}"
    assert open_problems(load_config(EMBEDDED, [f"train_dataset={train}", f"test_dataset={test}", only])).seen == 3


def test_embedded_problems_for_validation_are_neither_trained_on_nor_measured() -> None:
    found = open_problems(load_config(EMBEDDED, ["eval_every=5"]))
    state = found.sampler.state_dict()
    assert state["problems"] == open_problems(load_config(EMBEDDED)).digest
    training = embedded_problems("train")
    assert len(training) == 1200 and len(found.validation) == 60 and found.seen == 0
    assert unseen(found.validation, [*training, *found.heldout]) == found.validation
    with pytest.raises(ConfigError, match="eval_problems=3000: the embedded world has 500 held-out problems of math"):
        open_problems(load_config(EMBEDDED, ["eval_problems=3000"]))
