"""Split and mix: exact, deterministic, without a leak, whatever the order and the copies of the input."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_as_judge.data.benchmarks.custom import to_record
from llm_as_judge.data.index import Entry, entry_of, line_of, normalised, repeated
from llm_as_judge.data.mixture import Mixture
from llm_as_judge.data.split import Sides, contamination, decontaminated, split, split_official
from llm_as_judge.errors import ConfigError
from llm_as_judge.types import DOMAINS, Domain, Problem, Question, Reference


def entry(question: str, context: str = "", answer: str = "a", seed: int = 0, id_: str = "i") -> Entry:
    return entry_of(Problem(Question(id_, question, "qa", context=context), Reference((answer,))), seed, 0, 0)


def entries_of(spec: list[tuple[int, int, int]], seed: int = 0) -> list[Entry]:
    return [entry(f"question {q}", f"context {c}", f"answer {a}", seed) for q, c, a in spec]


specs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 2)), max_size=120)
pairs = st.tuples(st.integers(1, 9), st.integers(1, 9))


@settings(deadline=None, max_examples=150)
@given(specs, pairs, st.floats(0, 0.5), st.randoms(use_true_random=False))
def test_no_question_on_two_sides_and_the_order_of_the_input_does_not_matter(
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


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 300), pairs, st.floats(0, 0.9), st.integers(0, 5))
def test_sizes_are_exact_where_every_question_is_there_once(
    n: int, train_test: tuple[int, int], val: float, seed: int
) -> None:
    sides = split(entries_of([(i, 0, 0) for i in range(n)], seed), train_test, val)
    share = Fraction(n * train_test[1], sum(train_test))
    assert abs(len(sides.test) - share) <= Fraction(1, 2)
    assert len(sides.val) == round((n - len(sides.test)) * val)
    assert len(sides.train) + len(sides.val) + len(sides.test) == n


def test_plan_c_volumes_of_the_code_benchmarks() -> None:
    for total, train, test in ((164, 137, 27), (427, 356, 71)):
        sides = split(entries_of([(i, 0, 0) for i in range(total)]), (5, 1))
        assert (len(sides.train), len(sides.test)) == (train, test)


def test_another_seed_is_another_split_and_a_new_record_moves_little() -> None:
    spec = [(i, 0, 0) for i in range(600)]
    first, other = (split(entries_of(spec, seed), (5, 1)) for seed in (0, 1))
    assert len({e.content for e in first.test} & {e.content for e in other.test}) < 60
    more = split(entries_of([*spec, (600, 0, 0)]), (5, 1))
    assert len({e.problem for e in more.test} ^ {e.problem for e in first.test}) <= 2


def test_copies_in_other_clothes_are_one_question() -> None:
    assert entry("What  is it? ").problem == entry("what is it").problem
    assert entry("What, is it?").question == entry("what is it").question
    assert entry("ﬁve").problem == entry("five").problem
    assert entry("2 + 3?").problem != entry("2 - 3?").problem
    assert entry("2 + 3?", "c").problem != entry("2 + 3?", "d").problem
    assert entry("?").question != entry("!").question or normalised("?") == normalised("!")


@settings(deadline=None, max_examples=300)
@given(st.text(st.characters(max_codepoint=127)) | st.text())
def test_the_words_of_a_text_are_its_letters_digits_and_underscores(text: str) -> None:
    folded = unicodedata.normalize("NFKC", text).casefold()
    assert normalised(text)[1] == re.findall(r"\w+", folded)


texts = st.text(st.characters(categories=["L", "N", "P", "S", "Z", "Cc"]), max_size=20)
problems = st.builds(
    Problem,
    st.builds(
        Question, texts, texts, st.sampled_from(DOMAINS), context=texts, entry_point=st.none() | texts,
        public_tests=st.lists(texts, max_size=2).map(tuple), dataset=texts,
    ),
    st.builds(
        Reference, st.lists(texts, max_size=3).map(tuple), tests=texts, prelude=texts, unanswerable=st.booleans()
    ),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(problems)
def test_a_line_is_what_the_json_module_writes(problem: Problem) -> None:
    record = to_record(problem)
    assert line_of(problem).decode() == json.dumps(record, ensure_ascii=False) + "\n"
    assert repeated(line_of(problem), 3).decode() == json.dumps({**record, "repeat": 3}, ensure_ascii=False) + "\n"


def test_copies_with_another_answer_are_counted_apart() -> None:
    sides = split([entry("q"), entry("q", id_="j"), entry("Q?", answer="b")], (5, 1))
    assert sorted(sides.dropped.items()) == [("conflicting_duplicates", 1), ("duplicates", 1)] or sides.dropped == {
        "duplicates": 0, "conflicting_duplicates": 2,
    }  # fmt: skip
    assert len(sides.train) == 1


@settings(deadline=None, max_examples=100)
@given(specs, specs, st.floats(0, 0.5))
def test_across_datasets_no_question_is_on_two_sides(
    one: list[tuple[int, int, int]], two: list[tuple[int, int, int]], val: float
) -> None:
    before = {"a": split(entries_of(one), (5, 1), val), "b": split(entries_of(two), (2, 1), val)}
    sides = decontaminated(before)
    train, held, test = (
        {entry.question for s in sides.values() for entry in getattr(s, side)} for side in ("train", "val", "test")
    )
    assert not train & test and not held & test and not train & held
    for name, s in sides.items():
        assert s.test == before[name].test
        lost = s.dropped["in_a_test_set"] + s.dropped["in_a_validation_set"]
        assert len(before[name].train) + len(before[name].val) == len(s.train) + len(s.val) + lost
    assert all(found["question"] == 0 for found in contamination(sides).values())


def test_the_published_test_set_stays_whole_and_train_gives_way() -> None:
    test = [entry("a"), entry("a", id_="copy"), entry("b")]
    train = [entry("b"), entry("c"), entry("c", id_="copy"), entry("d")]
    sides = decontaminated({"x": split_official(train, test)})["x"]
    assert len(sides.test) == 3
    assert {e.question for e in sides.train} == {entry("c").question, entry("d").question}
    assert sides.dropped["in_a_test_set"] == 1 and sides.dropped["duplicates"] == 1


def test_contamination_counts_questions_passages_and_contexts() -> None:
    words = " ".join(f"w{i}" for i in range(14))
    sides = {
        "x": Sides([entry(f"{words} one", "shared"), entry("short")], [], []),
        "y": Sides([], [], [entry(f"{words} two", "shared"), entry("Short!"), entry(" ".join(words.split()[:12]))]),
    }
    assert contamination(sides)["y"] == {"question": 1, "passage": 1, "context": 1}


DOMAINS_OF: dict[str, Domain] = {"a": "math", "b": "math", "c": "qa", "d": "code", "e": "code", "f": "code"}


@settings(deadline=None, max_examples=100)
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
        of_set[slot.name].append(slot.index)
        drawn[DOMAINS_OF[slot.name]] += 1
        for domain, ratio in shares.items():
            assert abs(drawn[domain] - Fraction(i * int(ratio), sum(ratios))) < 1
    for name, indexes in of_set.items():
        siblings = [len(of_set[other]) for other in sizes if DOMAINS_OF[other] == DOMAINS_OF[name]]
        assert max(siblings) - min(siblings) <= 1
        for start in range(0, len(indexes) - sizes[name] + 1, sizes[name]):
            assert len(set(indexes[start : start + sizes[name]])) == sizes[name]


def test_the_largest_mix_without_repeats_is_that() -> None:
    sizes = {"a": 50, "c": 9, "d": 40}
    mixture = Mixture(sizes, DOMAINS_OF, {"math": 0.4, "qa": 0.3, "code": 0.3}, "s")
    largest = mixture.largest_without_repeats()
    assert largest == 30
    slots = [Mixture(sizes, DOMAINS_OF, {"math": 0.4, "qa": 0.3, "code": 0.3}, "s").take(n) for n in (30, 35)]
    assert [any(slot.repeat for slot in several) for several in slots] == [False, True]


def test_a_domain_without_lines_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gives code 0\.3"):
        Mixture({"a": 5, "d": 0}, DOMAINS_OF, {"math": 0.7, "code": 0.3}, "train")


def test_a_repeat_is_marked_in_the_line() -> None:
    assert repeated(b'{"id": "x"}\n', 0) == b'{"id": "x"}\n'
    assert repeated(b'{"id": "x"}\n', 3) == b'{"id": "x", "repeat": 3}\n'
