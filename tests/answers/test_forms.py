"""The reference's own form decides: ranges, scores, labelled parts, sizes and asked forms are never worked out."""

import pytest

from llm_as_judge.answers.equivalence import matches
from llm_as_judge.types import Domain

#: Domain, question, reference and wrong answers, separated by ``|``.
OTHER: list[tuple[Domain, str, str, str]] = [
    # ranges, scores and spans are no differences
    ("qa", "How long did the siege last?", "5-9 weeks", "-4 weeks|4 weeks|9-5 weeks|6-10 weeks|45 weeks|5 weeks"),
    ("math", "How many weeks?", "5-9 weeks", "-4 weeks|-4|6-10 weeks"),
    ("math", "", "7 - 12 km", "12 - 17 km|-5 km|-5|8-13 km"),
    ("math", "", "20-30%", "30-40%|-10%|-0.1"), ("qa", "What share?", "20-30 %", "10 %|30-40 %|-10%"),
    ("math", "What was the score?", "4-1", "3|5-2|1-4|8-5|0-(-3)"), ("math", "", "4-1", "3|5-2|1-4"),
    ("math", "", "1861-1865", "1862-1866|-4"), ("math", "", "10 – 25", "-15|20 – 35"),
    ("math", "", "555-867-5309", "-5621|555-868-5308"), ("math", "", "2020-05-17", "1998|2020-06-16"),
    ("math", "", "11-12, 20-25", "-1, -5|21-22, 30-35"), ("math", "", "[10-15]", "-5|20-25"),
    ("math", "", "$10$-$15$", "$20$-$25$|-5"), ("math", "", "x = 3-2", "x = 1|x = 4-3|1"),
    # dates, signatures and pressures are no quotients
    ("math", "What is the date?", "12/4", "3|6/2"), ("math", "On which day?", "3/5", "0.6|6/10|60%"),
    ("math", "", "12/25/2020", "0.0002376|24/50/2020"),
    ("math", "What is the meter of a jig?", "6/8", "3/4|0.75|12/16"),
    ("math", "What is the reading?", "130/65", "2|26/13"), ("math", "What is the ratio?", "10:4", "5:2|2.5"),
    # sizes are no products
    ("math", "Name the dimensions.", r"4 \times 3", r"3 \times 4|12|6 \times 2|4|12 \times 1"),
    ("qa", "What size is it?", "10*15 cm", "15*10 cm|150 cm|150"),
    # labelled parts
    ("math", "", "(a) 3 (b) 5", "(a) 5 (b) 3|15ab|3a5b|15|3|5|(a) 3|5, 3|(a) 3 (b) 5 (c) 2|(a) 3 (c) 5"),
    ("math", "Find (i) x and (ii) y.", "(i) 4 (ii) 9", "(i) 9 (ii) 4|36|9, 4"), ("math", "", "(1) 7 (2) 8", "112|56"),
    ("math", "", "(a) x+1 (b) y", "(a) y (b) x+1|ab(x+1)y|b(a)(x+1)(y)"), ("math", "", "i) 2 ii) 7", "i) 7 ii) 2"),
    ("math", "", "A: 12, B: 30", "A: 30, B: 12|B: 12, A: 30|30, 12|30|12"),
    ("math", "", "Part 1: 6; Part 2: 9", "Part 1: 9; Part 2: 6|9, 6|9"),
    # the form that is asked for, in whatever words
    ("math", "Give 9 with two primes and a plus.", "2+7", "9|4+5|3+6|8+1"), ("math", "", "300+20+5", "325|320+5"),
    ("math", "How does 64 look with base two?", "2^6", "64|4^3|8^2"),
    ("math", "Use one sign.", "5!", r"120|\frac{6!}{6}"),
    ("math", "Break 24 down.", r"2^3 \cdot 3", r"24|8 \cdot 3|2^2 \cdot 6"),
    ("math", "Give it in sixteenths.", "6/16", "3/8|0.375|12/32|37.5%"), ("math", "Spell it.", "seven", "7|7.0|7/1"),
    ("qa", "Write 7 in words.", "seven", "7"), ("math", "Write fifty-six in digits.", "56", "fifty-six"),
    ("math", "No fractions.", "0.75", r"3/4|75%|\frac{3}{4}|6/8"), ("math", "No point.", "3/4", "0.75|75%|6/8|1-1/4"),
    ("math", "A whole and a part.", "3 1/2", "7/2|3.5"), ("math", "One bar only.", "7/2", "3.5|3 1/2|14/4"),
    ("math", "How small?", r"3.2 \times 10^4", r"32000|32 \times 10^3|0.32 \times 10^5"),
    ("math", "Without brackets.", "x^2+3x+2", "(x+1)(x+2)|x(x+3)+2"),
    ("math", "As brackets.", "(x+1)(x+2)", "x^2+3x+2"),
    ("math", "Put it over one bar.", r"\frac{x+2}{2x}", r"\frac{1}{2}+\frac{1}{x}|0.5+1/x"),
    ("math", "Collect.", "7a", "3a+4a"),
    ("math", "Clear the root below.", r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
    ("math", "Only one root.", r"3\sqrt{2}", r"\sqrt{18}|\frac{6\sqrt{2}}{2}|2\sqrt{2}+\sqrt{2}"),
    ("math", "Without minus signs above.", r"\frac{1}{y^3}", "y^{-3}"), ("math", "Use a root.", r"\sqrt{x}", "x^{1/2}"),
    ("math", "By its intercepts.", r"\frac{x}{2}+\frac{y}{3}=1", "3x+2y=6"), ("math", "Line?", "y = 2x + 1", "2x + 1"),
    ("math", "Exactly?", r"(\frac12, 3)", r"(0.5, 3)|(\frac{2}{4},3)|(1/2, 6/2)"),
]  # fmt: skip
SAME: list[tuple[Domain, str, str, str]] = [
    ("math", "", "10-15", "10-15|10 - 15|10–15|$10-15$"), ("qa", "When?", "1861-1865", "1861-1865|1861–1865"),
    ("qa", "How long?", "5-9 weeks", "5-9 weeks|5–9 weeks"), ("math", "Dimensions?", r"2 \times 3", "2×3|2*3"),
    ("math", "Find (a) x and (b) y.", "(a) 3 (b) 5", "(a) 3, (b) 5|(a) 3; (b) 5|(a) 3\n(b) 5|3, 5|(a) 3 and (b) 5"),
    ("math", "", "(a) 3 (b) 5", "(b) 5 (a) 3|a) 3 b) 5|(a) 3.0 (b) 5"), ("math", "What power?", "2^6", "2^{6}|2**6"),
    ("math", "As brackets.", "(x-1)(x+1)", "(x+1)(x-1)|(1+x)(x-1)"), ("math", "Line?", "y = 2x + 1", "y=1+2x|2x+1=y"),
    ("math", "What is the area?", r"\frac{3\pi}{4}", r"\frac{3}{4}\pi|3\pi/4|3*pi/4"),
    ("math", "What is it?", r"-\frac{3}{4}", r"-3/4|-\frac34|\frac{-3}{4}|-¾"), ("math", "", "9", "4+5|18/2"),
    ("math", "What is it?", r"2+\sqrt{3}", r"\sqrt{3}+2|2 + sqrt(3)"),
    ("math", "How many?", "1200", "1.2 × 10^3|1,200.0"),
    ("qa", "How many are there?", "seven", "7"), ("math", "What is it?", "7", "seven|7.0"),
]  # fmt: skip


@pytest.mark.parametrize("box", ["{}", r"\boxed{{{}}}", "The answer is {}."])
def test_an_answer_of_the_same_value_in_another_form_is_undecided(box: str) -> None:
    said = [(row[:3], text) for row in OTHER for text in row[3].split("|")]
    assert not [(row, text) for row, text in said if matches(box.format(text), [row[2]], row[0], row[1])]


def test_the_reference_itself_and_other_ways_to_write_its_form_are_accepted() -> None:
    said = [(row[:3], text) for row in SAME for text in row[3].split("|")]
    said += [(row[:3], row[2]) for row in OTHER]
    assert not [(row, text) for row, text in said if not matches(text, [row[2]], row[0], row[1])]
