"""The reference's own form decides: ranges, scores, labelled parts, sizes and asked forms are never worked out."""

import pytest
from helpers.tables import tables

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.types import Domain

TABLES = tables(__file__)

#: Domain, question, reference and wrong answers, separated by ``|``.
OTHER: list[tuple[Domain, str, str, str]] = TABLES["OTHER"]
SAME: list[tuple[Domain, str, str, str]] = TABLES["SAME"]


@pytest.mark.parametrize("box", ["{}", r"\boxed{{{}}}", "The answer is {}."])
def test_an_answer_of_the_same_value_in_another_form_is_undecided(box: str) -> None:
    said = [(row[:3], text) for row in OTHER for text in row[3].split("|")]
    assert not [(row, text) for row, text in said if matches(box.format(text), [row[2]], row[0], row[1])]


def test_the_reference_itself_and_other_ways_to_write_its_form_are_accepted() -> None:
    said = [(row[:3], text) for row in SAME for text in row[3].split("|")]
    said += [(row[:3], row[2]) for row in OTHER]
    assert not [(row, text) for row, text in said if not matches(text, [row[2]], row[0], row[1])]
