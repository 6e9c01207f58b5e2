"""Answers as models write them: the rules accept only what is certainly right."""

from llm_as_judge.answers.equivalence import compare, equivalent, matches
from llm_as_judge.types import Domain

LEMONADE = "Mia pays $6 and sells 15 cups at $2. How much profit does Mia make?"
TICKETS = "Jo bought 3 tickets at $3. How many dollars did Jo pay for the tickets in total?"
NOVEL = "Who wrote Emma in 1815?"
LEGS = "A spider lost two of its legs. How many legs are left?"
CAPITAL = "What is the capital of France?"
FRACTION = "Tom rolls 1 die and 2 coins. What is the probability that both agree?"
SPEED = "A train travels 120 miles in 2 hours. What is its average speed in miles per hour?"
PENS = "Ann has 4 pens and sells none, and Bob has twice as many. How many pens does Bob have?"
ALL = "Find all values of x, separated by commas."
TANK = "A tank holds 240 liters and loses 5% a day. How many liters are left after 2 days?"
COST = "A shop sells pens at $2 and books at $7. What is the total cost, in dollars, of 3 pens and 2 books?"
MINIMUM = "Find the minimum value of $x^2 - 6x + 14$."
SUCCESSOR = "Who succeeded Paul as mayor of Springfield?"
OLDER = "Who is older, Annie Morton or Terry Richardson?"
HUNGRY = "What do people do when they are hungry?\nA. sleep\nB. eat"
MORE = "How many more apples than pears did Sue buy if she bought 9 apples and 4 pears?"
SHEEP = "Ann has 20 sheep, and Bob and Cid have 30 each. How many sheep do Ann, Bob, and Cid have together?"
AGES = "Mel is 3 years younger than Kate. When Kate is 24 years old, how old will Mel be?"
TOMATOES = "Mike planted 50 seeds, and Ted planted twice as many. How many seeds did they plant altogether?"
TRIP = "A trip of 150 miles takes 3 hours. How long did the trip take with 50 miles more?"
RADIUS = "The radius of a circle is 14 inches. What is the radius of its arc? Express your answer as a common fraction."
RANGE = r"What is the range of $y=\log_2(\sqrt{\sin x})$ for $0 < x < 180$?"
HATS = "Mia buys 9 hats at $4 each and sells them for $60 in all. What is Mia's profit?"
TWO_SELL = "Mia sells 9 hats, and Tom sells 5 caps. What is Mia's profit?"
JARS = "Leo has 3 jars of 8 figs and finds 5 more. How many figs does Leo have in total?"
MATHS_RIGHT = [
    (r"6\pi \text{ cm}^2", r"6\pi"), ("= 12", "12"), ("'12'", "12"), ("“x + 1”", "x+1"),
    (r"0.\overline{3}", r"\frac{1}{3}"), (r"0.\bar{09}", r"\frac{1}{11}"), ("1.5 x 10^6", "1500000"),
    (r"\mathbb{R}", r"(-\infty,\infty)"), ("all real numbers", r"\mathbb{R}"),
    (r"x < 1 \text{ or } x > 3", r"x < 1 \text{ or } x > 3"), ("x = 1 and x = 2", "x = 1 or x = 2"),
    ("3 and 8", "3, 8"), ("3, 5 and 8", "3, 5, 8"), (r"\boxed{3} and \boxed{8}", "3, 8"),
    (r"\boxed{3}, \boxed{5} and \boxed{8}", "3,5,8"), (r"$\boxed{3}$ or $\boxed{8}$", "3, 8"),
    (r"$x = \boxed{3}$ and $y = \boxed{8}$", "x = 3, y = 8"), ("x = 3, y = 8", "(3, 8)"), ("3, 8", "x=3, y=8"),
    ("y = 8, x = 3", "x=3, y=8"), ("AB = 3, CD = 8", "3, 8"), ("x = 3 or x = 8", "x = 8, 3"), ("{8, 3}", r"\{3,8\}"),
    (r"$\left\{3, 8\right\}$", r"\{8, 3\}"), (r"3 \pm \sqrt{2}", r"3+\sqrt{2}, 3-\sqrt{2}"),
    (r"x = 3 \pm \sqrt{2}", r"\{3-\sqrt2, 3+\sqrt2\}"), (r"x \ge 0", r"[0, \infty)"),
    (r"$x \geq 0$", r"x \in [0,\infty)"), (r"[0,\infty)", "0 <= x"), (r"-2 \le x < 7", "[-2, 7)"),
    (r"x \in (-2, 7)", "-2 < x < 7"), ("(x - 1)^2 + y^2 = 4", "x^2 - 2x + y^2 - 3 = 0"), (r"\boxed{40}\%", "40%"),
    ("$40$%", r"40\%"), ("0.4", r"40\%"), ("40", r"40\%"), ("[15]", "15"),
    ("x < 2 or x > 3", r"(-\infty, 2) \cup (3, \infty)"), ("navin", r"\text{Navin}"),
    (r"15 \text{ cm}^2", "15 square centimeters"), ("15 square feet", "15"), (r"15\text{ miles}", "15"),
    ("15", r"15\text{ marbles}"), ("1.5 hours", "90 minutes"), ("30 degrees", r"30^{\circ}"), ("$12.50", "12.5"),
    ("12.50 dollars", r"\$12.50"), ("1.2e3", "1200"), (r"1.2 \cdot 10^{-2}", "0.012"), ("2e-3", "0.002"),
    (r"\frac34", ".75"), (r"1\tfrac{1}{2}", "3/2"), (r"\left(3, \\frac{\pi}{2}\right)", r"(3, \pi/2)"),
    ("x = 2 + 3 = 5", "5"), ("x = 2 + 3 = 5", "x = 5"), (r"\frac{10}{4} = \frac{5}{2} = 2.5", "5/2"),
    (r"\frac{7}{4} \approx 1.75", "7/4"), (r"\sqrt{2} \approx 1.414", r"\sqrt{2}"),
    (r"x = \frac{1}{3} \approx 0.333", r"\frac13"), ("The value is $5$.", "5"), ("Answer:\n\\[\n9\n\\]", "9"),
    ("#### 9\n", "9"),
    (r"The value is $\begin{bmatrix}1&2\\3&4\end{bmatrix}$", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\left[\begin{array}{cc}1&2\\3&4\end{array}\right]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    ("|AB| = 7", "7"),
    ("Area = 7", "7"), ("[[1, 2], [3, 4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"), ("C(8,3) = 56", "56"),
    ("$150 + $1,112 = **$1,262**", "1262"), ("42 - 33 = 9\n\n\\boxed{9}", "9"),
]  # fmt: skip
QA_RIGHT = [
    ("So D is the correct answer.", "D"), (r"\boxed{\textbf{(D)}\ 12}", "D"),
    (r"$\boxed{\textbf{(D) }~\frac{3}{4}}$", "D"), (r"\boxed{\text{D}}", "D"), (r"\boxed{\text{(D)}}", "D"),
    (r"\boxed{\textbf{(D)}}", "D"), ("Answer: $D$", "D"), ("Option D", "D"), ("Option D.", "D"),
    ("the correct option is D", "D"), ("The correct choice is (D).", "D"), ("So the answer must be D.", "D"),
    ("Only 12 is even, therefore (D) is the right choice.", "D"), ("Option D", "D"),
    ("I would go with (D).", "D"), ("**D**", "D"), ("D", r"\text{(D)}"), ("Answer: Marie Curie", "marie curie"),
    ("The answer is **Marie Curie**.", "Marie Curie"), (r"\boxed{Marie Curie}", "Marie Curie"),
    ("the Normans.", "Normans"), ("1,500", "1500"), ("three", "3"), ("$5 million", "$5,000,000"), ("yes", "Yes"),
    ("U.S.", "US"),
]  # fmt: skip
#: Not read by their form, right or wrong: the LLM judge decides.
MATHS_UNDECIDED = [
    ("We subtract.\n\n6", "6"),
    (r"15 \text{ marbles}", "15"), ("So the pair $(x, y)$ that solves it is $(3, 8)$.", "(3, 8)"),
    (r"\boxed{9}. Note that 10 is too large.", "9"), ("<answer>9</answer>\n\nI checked it twice.", "9"),
    (r"6\pi \text{ cm}", r"7\pi"), (r"6\pi m", r"6\pi"), (r"x \text{ cm}", "x"), (r"\$6\pi", r"6\pi"),
    (r"0.\overline{3}", r"0.\overline{4}"), (r"0.1\overline{6}", r"0.\overline{16}"),
    ("all real numbers but 0", r"(-\infty,\infty)"), ("all positive real numbers", r"\mathbb{R}"),
    ("1.5 x 10^6", "15"),
    ("2x + 10^2", r"2 \times 10^2"), (r"60 \text{ km/h}", "60 m/s"), ("f'", "f"),
    ("x < 1 and x > 3", r"x < 1 \text{ or } x > 3"), ("x = 1 or y = 2", "x = 1, y = 2"),
    ("x = 1 or y = 2", "x = 1 and y = 2"), ("-12,345", "-12.345"), ("Execution error: 1", "1"),
    ("Unknown error: 12", "12"), ("Error 404", "404"), ("x = 5, 3", "x=3, y=5"), ("z = 5, 3", "x=3, y=5"),
    ("x=1, y=2", "x=1, x=2"), ("y = 3, x = 5", "x=3, y=5"), ("(y=1, x=2)", "(1,2)"), ("x=2, y=1", "(1, 2)"),
    ("(2, 1, 3)", "1, 2, 3"), (r"\{1, 2\}", "(1, 2)"), ("3", "3, 8"), (r"\boxed{3} and \boxed{8}", "8"),
    ("3, 8, 9", "3, 8"), (r"3 + \sqrt{2}", r"3 \pm \sqrt{2}"), ("x > 0", r"[0, \infty)"), (r"y \ge 0", r"x \ge 0"),
    ("-2 < x < 7", "[-2, 7)"), ("-x > 3", "x > -3"), (r"2x \le 6", "x < 3"), (r"\frac{9}{4} \approx 1.75", "9/4"),
    ("12 ≈ 13", "12"), ("12 ≈ 13", "13"), (r"x \approx 12", "12"), ("x = 2 + 3 = 6", "6"), ("7 = 11", "11"),
    ("40%", "40"), ("1", r"1\%"), ("1", r"100\%"), (r"\frac{40}{3}\%", r"\frac{40}{3}"), (r"15 \text{ thirds}", "15"),
    (r"15 \text{ squared}", "15"), ("x < 2 or y > 3", r"(-\infty, 2) \cup (3, \infty)"), ("ABC", "abc"),
    (r"15\text{ feet}", r"15\text{ inches}"), ("3,75", "375"), ("3,75", "3.57"), ("12 500", "12.5"), ("1.2e3", "1.2"),
    ("~~12~~", "12"), ("17 thirds", "17"), ("The answer is half of 12.", "12"), ("the square root of 12", "12"),
    ("The answer is a multiple of 12", "12"), ("The answer is close to 12", "12"),
    ("The answer is greater than 12", "12"), (r"2\boxed{12}", "12"), (r"\boxed{12}\sqrt{2}", "12"),
    (r"\frac{\boxed{12}}{2}", "12"), (r"x \neq \boxed{12}", "12"),
    ("Error: TypeError: solve() missing 1 required positional argument: 'n'", "1"),
    ("ZeroDivisionError: division by 0", "0"), ("It is 12 or 13", "13"), ("about 5", "5"), ("it is not 5", "5"),
    ("The answer is 12 or 13", "13"), ("The answer is 12. Wait, it is 13.", "12"), ("The answer is not 12", "12"),
    ("the domain is (0, 1)", "1"), (r"Therefore $x \geq 5$ is the solution", "5"), ("-1 + sqrt(3)", "3"),
    ("the value is 2^10", "10"), ("33.5 percentage", "33.5"), ("the ratio is 7:32", "32"), ("from 1994-95", "95"),
    ("the 5th", "5"), ("She still owes 220 $ in 12 months", "12"), ("18 apples (3 of them red)", "3"),
    (r"It is \boxed{5} or 8 or 11", "5"), (r"\boxed{10} or \boxed{42}", "42"),
]  # fmt: skip
QA_UNDECIDED = [
    ("**D. the heart**", "D"), ("D) the heart", "D"),
    ("The answer is D, not A or B.", "D"), ("Le bon choix: réponse D", "D"),
    ("After ruling out the rest I think it is D", "D"), ("**Yes**, both are American.", "yes"),
    ("No. The first is a river.", "no"), ("The answer is: Marie Curie. She was born in Warsaw.", "Marie Curie"),
    ("C is correct except for the sign", "C"), ("People believe C is correct.", "C"),
    ("C is the right answer? No", "C"), ("vitamin C is best", "C"), ("I doubt that C is correct", "C"),
    ("He thinks C is correct", "C"), ("C is the best answer, but D is also good", "C"),
    ("So C is correct if x is odd", "C"), (r"\boxed{\textbf{(B)}\ 12}", "C"), ("D) is wrong", "D"), ("Not D", "D"),
    ("D. or a", "D"), ("Both D and A", "D"), ("D, A", "D"), ("D. No, A", "D"), ("The answer could be D or B", "D"),
    ("maybe D", "D"), ("It isn't D", "D"), ("Option A rather than D", "D"), ("All of the above: A, B, C, D", "D"),
    ("The answer is A dog", "A"), (r"\boxed{D} A", "D"), ("No. 5", "no"),
    ("Yes. That was a joke; the answer is the reverse.", "yes"), ("Yes, they were not.", "yes"),
    ("No, it is the other way round", "yes"), ("No, yes", "no"), ("Yes and no", "yes"),
    ("Yes, they were.", "they were"), (r"\boxed{Paris} is wrong, London", "Paris"), (r"\boxed{no} yes", "no"),
    ("#### Paris\nLondon", "Paris"), ("The answer is: Paris. No, London.", "Paris"),
    ("The answer is either Paris or London", "Paris"), ("1994-95", "1899"), ("1995-94", "1901"), ("9/11", "18/22"),
    ("2+2", "4"), ("<answer>yes</answer><answer>no</answer>", "yes"),
]  # fmt: skip
EQUAL_MATHS = [
    ("12", "12.00"), ("7425000", "7,425,000"), ("14{,}916", "14916"), (r"900,\!000,\!000", "900000000"),
    ("1/2", "0.5"),
    (r"\dfrac{1}{2}", r"\frac12"), (r"-\frac{1}{2}", "-0.5"), (r"12\frac{3}{5}", "12.6"), ("1 1/2", "1.5"),
    ("$6", "6"),
    ("-$5", "$-5"), ("5 dollars", "$5"), ("28 %", r"28\%"), ("twenty-one", "21"), (r"\text{E}", "$E$"),
    (r"48^\circ", "48 degrees"), (r"\{1, 2\}", "{2,1}"), ("[0.5, 1)", r"[\frac12,1)"), (r"\sqrt3", r"$\sqrt{3}$"),
    ("x + 1", "x+1"), ("−5", "-5"), ("3/4", "0.75"), ("50%", "0.5"), ("33.5 percent", "0.335"),
    ("1/12", "0.0833333333333333"), ("10^3", "1000"), (r"\sqrt{4}", "2"), (r"\binom{5}{2} = 10", "10"),
    ("5 = x", "5"),
    ("f(x) = 2x + 3", "y = 2x+3"), (r"x \in [1/2, \infty)", r"[0.5,\infty)"), ("(2x-1)(2x+1)", "4x^2 - 1"),
    (r"\tan^2(y) + 1", r"\sec^2 y"), (r"96-10\sqrt{21}", r"-10\sqrt{21} + 96"),
    (r"\begin{pmatrix}1 & 2\\ 3 & 4\end{pmatrix}", r"\begin{bmatrix} 1&2 \\3&4 \end{bmatrix}"),
    (r"\pm 3", r"\{-3, 3\}"), ("(1,2), (3,4)", "(3,4), (1,2)"), (r"(-\infty,1) \cup (2,3)", r"(2,3)\cup(-\infty,1)"),
    ("1 km", "1000 m"), ("2 hours", "120 minutes"), ("3.5 million", "3,500,000"),
    ("$5", "500 cents"),
]  # fmt: skip
UNEQUAL_MATHS = [
    ("1000", "1001"), ("0.333", "1/3"), ("100000000000", "99999999999"), ("50%", "50"), ("$5", "€5"),
    ("1 1/2", "11/2"),
    ("(0,1)", "[0,1]"), ("(1,234)", "1234"), ("1, 234", "1,234"), ("1,-2", "-2,1"), ("12", "1,23"), ("0,123", "123"),
    ("2 3", "23"), ("x^2", "x2"), ("2^{10}", "210"), ("204_5", "204"), ("X", "x"), ("-5", "5"), ("12 million", "12"),
    ("", ""), ("$", "$$"), ("0.0833", "1/12"), ("0.0833333333333334", "1/12"), ("1.4142135623730", r"\sqrt{2}"),
    ("2:40", "1:20"), ("100%", "1"), ("2m", "2"), ("2 m", "2"), ("5 cents", "5"), ("5 km", "5 m"), ("1, 2", "2, 1"),
    ("(1, 2)", "(2, 1)"), ("x = 5", "y = 5"), ("x < 5", "x > 5"), ("x < 5", r"x \leq 5"), ("7 = 11a + c", "11a + c"),
    ("a + 3z = 0", "0"), ("2 + 2 = 5", "5"), (r"\cos(x) = 1", r"\sin(x) = 1"), ("AB", "BA"), ("odd", "ddo"),
    ("f(x+1)", "fx + f"), ("1/2x", r"\frac{1}{2}x"), (r"3\frac{1}{2}x", r"\frac{3}{2}x"),
    (r"\sin x/2", r"\frac{\sin x}{2}"), (r"\sqrt{x^2}", "x"), (r"\log 2", r"\ln 2"), (r"\pm 2021", "2021"),
    ("2^{2^{2^{49}}}", "1"), ("4210_7", "4210_8"),
    (r"\begin{pmatrix}1 & 2\end{pmatrix}", r"\begin{pmatrix}1 \\ 2\end{pmatrix}"),
]  # fmt: skip
EQUAL_QA = [
    ("Paris", "paris."), ("the Edict of Nantes", "Edict of Nantes"), ("U.S", "U.S."), ("1,000", "1000"),
    ("three", "3"), ("B", "(B)"), ("(B) library", "B. library"), ("unanswerable", "No answer."), ("", "unanswerable"),
]  # fmt: skip
UNEQUAL_QA = [
    ("C++", "C"), ("vitamin A", "vitamin"), ("1.5", "15"), ("-5", "5"), (".5", "5"), ("A minor", "minor"),
    ("1994-95", "199495"), ("John Smith", "John Adams"), ("one of them", "someone"), ("Paris", ""), (":", ""),
    (".", "unanswerable"), ("B", "A"),
]  # fmt: skip
#: Number and other words; gold 6.
PHRASES = (
    """
6 lakh|6 pairs|6 pairs of legs|6 per mille|6 ppm|6 negative|6 less one|6 - the number of heads|6 base eight|6 too many
6 half legs|6 on each side|6 legs per pair|6 BC|6 dozen|6 million|6 tenths|6 or more|6 squared|6%|6 times|6 km|$6|6 a.m.
6 each|6 more|6 fewer|6 legs short|6 score|6 minus|6 and a half|6 mod 7|6x|6th|6e|6 pi|6 degrees|6-7|6 to 8|6 ± 1|~6
approximately 6|6ish|6?|6!|6 (wrong)|6 is wrong|6, no 7|6; 7|not 6|6 isn't it|at least 6|six pairs|6 in base 8
""".strip()
    .replace("\n", "|")
    .split("|")
)
#: Answers of somebody else, under a condition, in doubt or taken back; the value in them is the reference, 6.
ATTRIBUTED = (
    r"""
One might think the answer is 6.|John says the answer is 6.|If we ignored the tail, the answer would be 6.
My friend's answer is 6.|The wrong answer is 6.|Suppose the answer is 6.|Some claim that it is 6.|The answer could be 6.
The answer was 6 before I corrected it.|The textbook gives 6.|According to Ann, it is 6.|Were there no tail, it is 6.
The answer is 6 if we ignore the tail.|The answer is 6. Hmm, that misses two.|\boxed{6} is an overcount by one.
\boxed{6}, but that ignores the tail; two more are needed.|\boxed{6} minus the lost one.|John says \boxed{6}.
Wrong answer: 6|First guess: 6|No one says the answer is 6|Half the answer is 6.|The answer is twice 6.
The answer is one more than 6.|5 or 6|I doubt it: 6|The number of heads is 6.|<answer>6 or 7</answer>|#### 6 or 7
The answer is 6^2|The answer is 6/5|The answer is -6|The answer is 1,6|The answer is x > 6|The answer is 6 legs fewer
Careless readers get 6|They get 6|One would get 6|To get 6|The answer is not 6|The answer is 6? No.|6\n7|6 = 7
\boxed{6}. It could also be 7.|\boxed{6}? No.|\boxed{6} or 7|\boxed{6} 7|\boxed{6}. The correct value is 7
\boxed{6} (rejected)|Any number except \boxed{6}|the answer is definitely not \boxed{6}|I guess \boxed{6}|#### 6 or 7
The answer is \boxed{5}, not \boxed{6}|\boxed{5} instead of \boxed{6}|\boxed{5} (corrected from \boxed{6})
\textbf{No}, it can't be \boxed{6}|\text{Hint}: I doubt that it is \boxed{6}
\frac12 is irrelevant, and I guess the answer is 6|$5 is lost: the incorrect answer is 6
$5 is paid, so it would be wrong to say \boxed{6}|I paid $5, so it is wrong to say $\boxed{6}$|\mathbf{Never} \boxed{6}
<answer>6</answer> is wrong|The answer is 6, no 7|The answer is 6. Actually it is 7|It is not the case that it is 6
""".strip()
    .replace("\n", "|")
    .split("|")
)
FORMS = ("The answer is {}.", r"\boxed{{{}}}", "#### {}", "<answer>{}</answer>")
#: Question, answer, reference.
RIGHT_WITH_QUESTION = [
    ("Leo buys 3 dozen pens. He gives 4 to each friend. How many friends does Leo have?",
     "Therefore, Leo has \\(\\boxed{9}\\) friends", "9"),
    ("Let $x > 2$. Find the number of different integer roots of this polynomial.",
     r"Thus, the number of different integer roots of the polynomial is $\boxed{4}$.", "4"),
    (LEGS, "### Final Answer\n6", "6"),
    ("What is the temperature?", "negative 8", "-8"), ("When does it leave?", "6:40 p.m.", "6:40 PM"),
    ("How many hours?", "8 hrs", "8"),
    ("How many minutes did Ann need for the second part?", "Ann needed 6 minutes for the second part.", "6"),
    ("How many hours does Ann stay at work?", "Ann stays at work for 7 hours.", "7"),
    ("What is f(4)?", "The value of f(4) is 21.", "21"), ("Compute it.", r"\frac{10!}{3!7!} = 120", "120"),
    ("Factor 2x^3 - 18x.", "2x(x^2-9) = 2x(x-3)(x+3)", "2x(x-3)(x+3)"),
    (FRACTION, "1/2", r"\frac{1}{2}"), (FRACTION, r"\boxed{1/2}", r"\frac{1}{2}"), (FRACTION, "½", r"\frac{1}{2}"),
    (ALL, "6, -2", "-2, 6"), (ALL, r"\boxed{3, 2 \text{ and } 1}", "1,2,3"),
    (ALL, "x = 6 or x = -2", "-2, 6"), (LEGS, "6 legs", "6"),
    (LEGS, "8 - 2 = 6 legs\n\n\\boxed{6}", "6"),
    ("Ida has 22 shells. She found 9 today. How many shells did Ida have?", "Ida had 13 shells.", "13"),
    ("What is the limit?", "oo", r"\infty"), ("What is the limit?", "-infinity", r"-\infty"),
    (RANGE, r"$y \le 0$", r"(-\infty, 0]"),
    ("What is the price in cents?", "5.4", r"5.4\text{ cents}"),
    ("Simplify it.", "The expression simplifies to 5.", "5"),
    ("How many of the people were adults?", "6 of the people were adults.", "6"), (LEGS, "There are 6 legs left.", "6"),
    (LEGS, r"Thus, the number of legs left is $\boxed{6}$.", "6"), (LEGS, "8 - 2 = 6\n\n**Answer: 6**", "6"),
    (LEGS, r"There are \boxed{6} legs.", "6"), (LEGS, "We get 8 - 2.\n\nFinal answer\n\n6", "6"),
    ("How long is it in km?", "6 km", "6"),
    ("Compute it.", r"\log_2(8) = 3", "3"), ("Compute it.", r"\sin(\frac{\pi}{2}) = 1", "1"), ("", "x²", "x^2"),
    ("", "3x² + 2x", "3x^2+2x"), ("", "−½", r"-\frac12"), ("", "2½", "5/2"), ("", "1 to 2", "1:2"),
    ("What percent of them is red?", "40", r"40\%"), ("What percent of them is red?", "40%", "40"),
    ("How many minutes does it take?", "5 minutes", "5"), ("How many metres and how many km?", "5 km", "5"),
    ("How many cm long is it?", r"6\pi \text{ cm}", r"6\pi"), ("How many dollars are left?", "$5", "5"),
    ("Factor x^2 - 1.", "(x+1)(x-1)", "(x-1)(x+1)"), ("Factor x^2 - 1.", "x^2 - 1 = (x-1)(x+1)", "(x+1)(x-1)"),
    (SPEED, "60 mph", "60"), (SPEED, "120 / 2 = 60", "60"),
    ("How many liters is it?", "2.5 L", "2.5"), ("How much is it, in cents?", "75 cents", "75"),
    (PENS, r"\boxed{8\text{ pens}}", "8"),
    ("What percent of 250 is 40?", "40/250 = 0.16 = 16%", "16"),
    ("Write 0.00005 in scientific notation.", "5e-5", r"5 \times 10^{-5}"), (ALL, r"\frac{-1}{8}", r"-\frac18"),
    ("What is AB?", "AB = 5", "5"), ("Solve x^2 = 4.", "x = 2, x = -2", "-2, 2"), ("How many?", "1.2 × 10^3", "1200"),
    ("Find the matrix.", r"\begin{bmatrix}1&0\\0&1\end{bmatrix}", r"\begin{pmatrix}1&0\\0&1\end{pmatrix}"),
    ("Find the inverse of [[1, 2], [3, 5]].", r"\begin{bmatrix}-5&2\\3&-1\end{bmatrix}",
     r"\begin{pmatrix}-5&2\\3&-1\end{pmatrix}"),
]  # fmt: skip
#: Question, reference, and answers of that value: of another quantity, in another unit or form, or not worked out.
OTHER_QUANTITY = [
    (TWO_SELL, "24", "Her profit is $24.|The profit is $24.|Tom's profit is $24.|His profit is $24.|profit: 24"),
    (HATS, "24", "Her cost is $24.|The hats' profit is $24 more.|Her friend's profit is $24.|Her loss is $24."),
    (HATS, "24", "Her profit is $60 - $30 = $24.|Her profit is not $24.|Her profit is 24%."),
    (JARS, "29", "Leo finds 24 + 5 = 29 figs in total.|Leo has 24 + 6 = 29 figs in total.|Leo has 29 + 1 = 30 figs."),
    (JARS, "29", "Leo has a total of 29 jars.|Leo has a total of 5 and 29 figs.|Ann has a total of 29 figs."),
    ("Ann has 10 pens. Bob has 4 fewer. How many pens does Bob have?", "6",
     "The answer is 12. 12 - 6 = 6|Answer: 4\n10 - 4 = 6|Bob has only 6 of the pens.|Ann has 6 pens, so Ann has 6."),
    ("Jack and Jill pick 48 apples. How many apples does Jill pick?", "12", "He picks 12 apples."),
    ("How many geckos has he sold in both years?", "172",
     "2 years ago: 86 * 2 = 172|The film was twice that, so 2 * 86 = 172.|Two were sold, and therefore is 172."),
    ("How many birds are left?", "580", "There are 300 + 200 + 80 = 580 birds in total."),
    ("How old was Ann's mother when Ann was born?", "38", "Her mother is 40 - 2 = 38 years old."),
    ("Dana is 14. How old will her brother be in 10 years?", "17", "She will be 17 years old."),
    ("How many pairs of shoes does he need?", "6", "He needs 6 shoes.|6 shoes"),
    ("How many red pens does Ann have?", "6", "Ann has 6 pens.|6 pens"),
    ("By how many percent did it rise from $50?", "20", "It rose from 20."),
    ("What is the median of 3, 7, 9?", "7", "There are 7 numbers."),
    (TANK, "216.6",
     "It loses 216.6 liters.|The tank loses 216.6 liters after 2 days|216.6 liters are lost|in 216.6 days"),
    (COST, "20",
     "The pens cost $20.|The cost of the books is $20|Total pens: 20|The total cost of 3 books and 2 pens is $20"),
    (MINIMUM, "5",
     "The value of x is 5|The minimum value of x is 5|The value of $x$ is $\\boxed{5}$|x = 5|The value of x^2 is 5"),
    (MORE, "5", "Sue bought 5 apples.|Sue bought 5 more pears than apples.|She bought 5 pears.|apples: 5"),
    ("If 5 pencils cost $3, how many dollars do 20 cost?", "12", "5 pencils cost $12.|12 pencils cost $3"),
    ("What is the coefficient of $x^3$?", "80", "x^3 = 80"),
    ("What is 5! - 4!?", "96", "The value of 5! is 96"),
    ("If x = y + 1, what is y?", "33", "x = 33|The value of x is 33"),
    (PENS, "8", "Ann and Bob have 8 pens|Bob does not have 8 pens|Bob has 8 pens more|Bob has 8 more pens"),
    ("Of 30 students 18 play. How many students play neither?", "5", "5 students play|5 students play neither 6"),
    (PENS, "8", "The number of pens Ann has is 8.|Pens of Ann: 8|Ann = 8|Minimum: 8|Sold: 8|pens sold = 8"),
    ("What is the sum of the roots?", "5", "The product of the roots is 5|The smallest root is 5|roots: 5|x = 5"),
    ("What is the perimeter of a square whose area is 49 square inches?", "28", "Area = 28|The area is 28.|square: 28"),
    ("What is x?", "4", "y = 4|f(x) = 4|x_1 = 4|error = 4|upper bound = 4|2x = 4"),
    ("What is P(A)?", "0.5", "P(B) = 0.5"),
    (SHEEP, "80", "Ann has 80 sheep.|Together, Ann and Bob have 80 sheep.|Ann, Bob, and Cid have 80 sheep each."),
    (AGES, "21", "Kate will be 21 years old."),
    ("He owns 3 dogs and 2 cats. How many shoes does he need?", "20", "The dogs need 20 shoes."),
    (TOMATOES, "150", "Ted planted 150 seeds altogether.|At noon, they planted 150 seeds altogether."),
    ("Ann has 4 pens. Today Bob has 2 more. How many pens does Bob have?", "6", "They have 6 pens."),
    ("They share 24 apples. How many apples do they have each?", "12", "They have a total of 12 apples."),
    ("How many feet less than Sue does Jim walk?", "200", "Sue walks 200 feet less than Jim."),
    ("Let x = t^3. Find the point at $t = 2.$", "(8, 1)", "At $t = 3$, the point is $(8, 1)$."),
    (RANGE, r"(-\infty, 0]", r"x \le 0"), (r"What is the period of $y = \sin x$?", r"2\pi", r"x = 2\pi"),
    ("She has 12 pens and he 36. How many pens does she need to have as many as he has?", "24", "She has 24 pens."),
    ("How much taller is the oak than the pine if the oak is 12 meters and the pine is 9 meters tall?", "3",
     "The pine is 3 meters taller than the oak.|The oak is 3 meters tall."),
    ("Find the minimum value of $f(x)$ for real $x$.", "3", "x = 3"),
    (r"What is the amplitude of $y = 3 \cos x$?", "3", r"\cos x = 3"),
    ("What is a + b?", "7", "a = 7|b = 7|ab = 7|3 + 4"), ("What is a_{10}?", "5", "a_9 = 5"),
    ("What is |z|?", "5", "z = 5"),
    ("What is the measure of angle ABC?", "45", r"\angle ACB = 45^\circ"),
    ("Find 2^10.", "1024", "2^9 * 2|2^10 = 1024 + 0"),
]  # fmt: skip
OTHER_UNIT = [
    (TRIP, "4", "The trip took 4 miles.|4 miles"),
    ("Peeling takes a minute and cutting 5 seconds. How long does it take?", "95", "It takes 95 seconds.|95 seconds"),
    (SPEED, "60", "60 hours|60 miles|60 km/h|60 minutes|$60"),
    ("How many meters are 2 km?", "2000", "2000 km|2000 g"),
    ("What is the perimeter of a square whose area is 49 square inches?", "28", "28 square inches|28 feet|28 cm"),
    ("Find the area in square centimeters.", r"9\pi", r"9\pi\text{ cm}|9\pi\text{ cm}^3|9\pi square inches"),
    ("What is the volume of a cube with edge 3 cm?", "27", "27 liters|27 cm|27 m^3"),
    ("A shirt costs $20, less 15%. How many dollars is it now?", "17", "17%|17 cents|17 euros"),
    ("How old is Tom?", "12", "$12|12 kg|12%"), ("In which year was it?", "1945", "$1945|1945 km"),
    ("John earns $50 a day. How many days does he need to earn $600?", "12", "$12|12 dollars|12 weeks"),
    ("By what percent did it rise from $4?", "25", "$25|0.25"),
    ("How much does he earn in 8 hours?", "15", "15 hours"), ("What is the area?", "25", "25 units|25 cubic units"),
    ("How old is Tom?", "12", "12 months|in 12 years"),
]  # fmt: skip
OTHER_FORM = [
    ("What is the slope?", r"-\frac{3}{4}", "-75%"), ("What is the circumference?", r"18\pi", r"2*9*\pi - 0"),
    ("What is the ratio? Answer as a fraction in lowest terms.", r"\frac34", r"\frac{6}{8}"),
    ("Express 0.4 as a fraction in lowest terms.", r"\frac{2}{5}", r"0.4|4/10|40\%|\frac{20}{50}"),
    ("Write 3/8 as a decimal.", "0.375", r"3/8|37.5%|\frac{3}{8}"),
    ("Write 2^10 as an integer.", "1024", "4^5|512*2"),
    (r"Simplify \sqrt{72}.", r"6\sqrt{2}", r"2\sqrt{18}|72^{1/2}|\sqrt{8}\sqrt{9}"),
    ("Simplify 12/18.", "2/3", "6/9|12/18 = 6/9"), ("Write 7/20 as a percent.", r"35\%", "0.35|7/20"),
    ("Express in simplest form the sum of the roots.", r"8\sqrt{2}", r"\sqrt{128}|5\sqrt{2}+3\sqrt{2}|4\sqrt{8}"),
    ("Write 0.00005 in scientific notation.", r"5 \times 10^{-5}", r"0.00005|50 \times 10^{-6}"),
    ("Find the line in the form y = mx + b.", "y = 3x - 1", "y - 2 = 3(x - 1)"),
    ("What is the mean of 3, 5, 7, 9?", "6", "(3+5+7+9)/4|24/4|(5+7)/2"), ("How many remain of 24?", "18", "24*3/4"),
    ("Find the equation of the line.", "y = 2x + 1", "2x + 1"), ("What is half of 15?", "7.5", "150/20|300/2/20"),
]  # fmt: skip
WRONG_WITH_QUESTION = [
    *((LEMONADE, said, "24") for said in (
        "Mia makes a loss of $24.", "Mia makes a profit of $23.", "A profit of $24 was made by Bo.",
        "A profit of $24 was lost.",
        "Mia was made a profit of $24.", "Mia makes a profit of $24 less.", "A profit of $24 was not made by Mia.",
        "Half a profit of $24 was made.", "A profit of $24 each was made.", "Mia could make a profit of $24.")),
    *((TICKETS, said, "9") for said in (
        "Jo was paid a total of $9.", "A total of $9 was paid to Jo.", "A total of $9 was paid by Al.",
        "9 dollars were given.",
        "9 dollars were paid by Jo's aunt.", "9 dollars were nearly paid.", "A total of 8 was paid.",
        "9 tickets were paid by Jo.", "9 dollars were paid by Jo and Al.", "9 dollars were paid by Jo per ticket.")),
    ("Of 40 eggs 10 broke. What percentage of the eggs broke?", "25 of the eggs broke.", "25"),
    ("Of 40 eggs 10 broke. What percentage of the eggs broke?", "25% of the eggs did not break.", "25"),
    ("Six boys bring 5 pens each, 8 girls 4 each. How many pens did the girls bring?", "32 girls were brought.", "32"),
    ("Six boys bring 5 pens each, 8 girls 4 each. How many pens did the girls bring?", "32 girls brought.", "32"),
    ("How many more pens than Sue does Jim own?", r"Sue owns \boxed{20} more pens than Jim.", "20"),
    ("How many more bags must Ann pack?", r"Ann packs \boxed{6} bags.", "6"),
    ("How many friends does Leo have?", r"Leo had \boxed{9} friends.", "9"),
    ("How many different jars are there?", "There are 7 equal jars.", "7"),
    ("Ann and Bo run. How much farther does Ann run in a day?", "Ann runs 5 miles in a day.", "5"),
    ("Put the two roots in ascending order.", "6, -2", "-2, 6"), ("What is 3/4 as a decimal?", "3/4", "0.75"),
    ("What is 12/3?", "12/3", "4"), ("What percent of them is red?", "0.4", "40"),
    ("How many minutes does it take?", "5 hours", "5"), ("How many dollars are left?", "£5", "5"),
    ("How many meters long is it?", r"6\pi \text{ cm}", r"6\pi"), (r"What is \sqrt{144}?", r"\sqrt{144}", "12"),
    ("Compute 5!.", "5!", "120"), ("What is 17*23?", "17*23+0", "391"), ("What is 17 * 23?", r"23 \cdot 17", "391"),
    ("Simplify (x^2-1)/(x-1) + x.", "(x^2-1)/(x-1) + x", "2x+1"), ("Factor x^2 - 1.", "-1 + x^2", "(x-1)(x+1)"),
    ("Expand (x+1)^2.", "(1+x)^2", "x^2+2x+1"),
]  # fmt: skip
QA_RIGHT_WITH_QUESTION = [
    ("Which team won the 2010 World Cup?", "Spain won the 2010 World Cup.", "Spain"),
    ("Who led when the wall fell, George H. W. Bush or Bob?", "George H. W. Bush led when the wall fell.",
     "George H. W. Bush"),
    ("Which rock band was formed before 1990?", "The Cure was formed before 1990.", "The Cure"),
    ("What is the charge?\nA. 1 C\nB. 2 C", "Q = CV = 2 C\n\nAnswer: B", "B"),
    ("Who was Odo's heir?", "Odo's heir was Guy Roux.", "Guy Roux"),
    ("A film with Ann Lee was shown on what channel?", "A film with Ann Lee was shown on BBC.", "BBC"),
    ("Are both Ann Lee and Bo Roux poets?", "Yes, both Ann Lee and Bo Roux are poets.", "yes"),
    (CAPITAL, "It is Paris.", "Paris"), (CAPITAL, "The capital of France is Paris.", "Paris"),
    ("When was it founded?", "It was founded in 1816.", "1816"), ("How many left?", "0", "none"),
    ("Who?", "O\u2019Hara", "O'Hara"),
    ("Which place?", "1st", "first"),
    (OLDER, "Terry Richardson is older.", "Terry Richardson"), ("What percentage is rural?", "37.5", "37.5%"),
    ("Did Rome fall?", "No, Rome did not fall.", "no"),
    (HUNGRY, "People eat when they are hungry.", "eat"), ("What is it?", r"\boxed{\text{Paris}}", "Paris"),
    ("Which day?", "It is a Monday.", "Monday"),
    ("When?", "4 July 1776", "July 4, 1776"), ("When?", "July 4th, 1776", "4th of July 1776"),
    ("Which?\nA. a lamp\nB. a heart", "B. a heart", "B"), ("Which?\nA. a lamp\nB. no or not", "B. no or not", "B"),
    ("Which?\nA. a lamp\nB. a heart", "(B) a heart", "B"),
]  # fmt: skip
QA_WRONG_WITH_QUESTION = [
    *((NOVEL, said, "Jane Austen") for said in (
        "Emma was not written by Jane Austen.", "Emma was found by Jane Austen.", "Jane Austen was written by Emma.",
        "Emma was written by a friend of Jane Austen.", "Emma was written for Jane Austen in 1815.",
        "Emma was written by Jane Austen in 1750.", "Jane Austen named Emma.",
        "Emma was partly written by Jane Austen.")),
    ("Which city did the Goths sack?", "The Goths were sacked by Rome.", "Rome"),
    ("Which city did the Goths sack?", "Rome was sacked.", "Rome"),
    ("Who runs Leith?", "Leith was run by Ann Lee.", "Ann Lee"),
    ("The singer of the band Queen was born on which island?", "Queen was born on Mull.", "Mull"),
    ("Which?\nA. a lamp\nB. a heart\nC. a pen", "A and C", "C"),
    ("Who was Ann's son?", "Ann was the son of Bob.", "Bob"),
    ("Which?\nA. a lamp\nB. a heart", "B. a lamp", "B"), (CAPITAL, "The capital of Gaul is Paris.", "Paris"),
    (SUCCESSOR, "Paul succeeded John Adams as mayor of Springfield.", "John Adams"), (HUNGRY, "A. eat", "eat"),
    (SUCCESSOR, "John Adams was succeeded by Paul.", "John Adams"),
    (OLDER, "Annie Morton is older, Terry Richardson", "Terry Richardson"),
    ("Are Ann and Bob American?", "Yes, they are not American.", "yes"), ("Did Rome fall?", "No, Rome did fall.", "no"),
    ("What year did it begin, and what year did it end?", "It did end in 1870.", "1870"),
    (HUNGRY, "They do not eat.", "eat"),
    ("Did Rome fall before Athens?", "No, Athens did not fall before Rome.", "no"), ("When?", "c. 1945", "1945"),
    ("What is the third largest city?", "The largest city is Cork.", "Cork"), ("What percentage?", "52 votes", "52%"),
    (CAPITAL, "The capital of Paris is France", "Paris"), (CAPITAL, "The capital of France is near Paris", "Paris"),
    (CAPITAL, "John says it is Paris.", "Paris"), (CAPITAL, "Paris?", "Paris"),
    ("When did Mary sell it?", "Mary was sold it in 1520.", "1520"),
    ("The actor who was born in Ohio lived in which state?", "He was born in Texas.", "Texas"),
    (CAPITAL, "It is Paris, London", "Paris"), (CAPITAL, "The capital of France is not Paris.", "Paris"),
    (LEGS, "6 km", "6"), (LEGS, '6"', "6"), (LEGS, "6'", "6"), ("When?", "$1945", "1945"),
    ("When?", "5 July 1776", "July 4, 1776"),
]  # fmt: skip
BUS = "A bus has 31 passengers. 14 get off and 5 get on. How many passengers are on the bus now?"
ROOT = "What is the larger root of $x^2 - 11x + 24 = 0$?"
CENTER = "Find the center of the circle $x^2 + y^2 - 6x + 4y = 12$."
GAS = "What gas do plants take in?\nA. oxygen\nB. nitrogen\nC. carbon dioxide\nD. helium"
SUNK = "In what year did the Titanic sink?"
DESSERT = "Ann baked 20 cookies and ate 8. How many cookies did Ann not eat?"
#: Kind of mistake, domain, question, references, and replies that do not certainly state one of them.
HOSTILE: list[tuple[str, Domain, str, list[str], list[str]]] = [
    ("rejected before a tag", "math", BUS, ["22"], [
        "The answer is definitely not <answer>22</answer>", "I reject #### 22", "A typical wrong answer:\n#### 22"]),
    ("rejected around a boxed letter", "qa", GAS, ["C", "C. carbon dioxide", "carbon dioxide"], [
        r"It is definitely not \boxed{C}", r"\boxed{C} \text{ is wrong; it is } \text{A}", "The answer is ~~C~~."]),
    ("several values", "math", BUS, ["22"], [
        "21\n22", "Either 22 or 27.\n\n" + r"\boxed{22}",
        "There are 27 passengers.\n\n27 - 5 = 22", r"<answer>17</answer>" + "\n\n" + r"\boxed{22}"]),
    ("several roots", "math", ROOT, ["8"], ["* $3$\n* $8$", r"1. \boxed{3}" + "\n" + r"2. \boxed{8}", "x = 3\nx = 8"]),
    ("several facts", "qa", SUNK, ["1912"], [
        "Answer: 1910\nAnswer: 1912", "It sank in 1911.\nIt sank in 1912.", "The answer is 1910. The answer is 1912."]),
    ("a heading that rejects", "math", BUS, ["22"], [
        "**Common mistake**\n\n22", "## Attempt 1 (discarded)\n22", "错误答案：\n22", "La réponse refusé\n22"]),
    ("a sentence without the value", "math", BUS, ["22"], [
        r"Here is a common mistake. \boxed{22}", r"Which number do careless readers give?" + "\n\n" + r"\boxed{22}",
        r"There are at min. \boxed{22}"]),
    ("no equals sign", "math", BUS, ["22"], [r"n >= \boxed{22}", r"n = not \boxed{22}", r"n += \boxed{22}"]),
    ("words in a formula", "math", BUS, ["22"], [
        r"$\text{Wrong answer} = \boxed{22}$", r"\[ \text{passengers who left} = \boxed{22} \]"]),
    ("counted values", "math", "How many values of x satisfy x^2 = 4?", ["2"], ["x = 2", r"Thus $x = \boxed{2}$."]),
    ("a given name", "math", "What is x when y is 7?", ["5"], ["y = 5", r"$y = \boxed{5}$"]),
    ("an unknown name", "math", "O is the center of rectangle ABCD. What is the area of triangle BCD?", ["12"], [
        "AO = 12", "W = 12"]),
    ("a name of the condition", "math", "For which values of $k$ does $x^2 + kx + 1 = 0$ have two real roots?", [
        r"(-\infty,-2)\cup(2,\infty)"], ["x < -2 or x > 2"]),
    ("nested words", "math", "What is the square of the sum of the roots of x^2 - 5x + 6?", ["25"], [
        "The sum of the squares is 25."]),
    ("prepositions", "qa", "Who invested in Google?", ["Sequoia"], ["Google invested in Sequoia."]),
    ("a pronoun for not", "math", DESSERT, ["12"], ["She ate 12 cookies.", r"She ate \boxed{12} cookies."]),
    ("a pronoun for a verb", "qa", "In which year did the company stop selling phones?", ["2013"], [
        "It sold phones in 2013.", "It did sell phones in 2013."]),
    ("words cut", "qa", "Who never married Henry VIII?", ["Anne Askew"], ["Anne Askew married Henry VIII."]),
    ("agent and patient", "qa", "Abel was killed by whom?", ["Cain"], ["Abel killed Cain.", "He killed Cain."]),
    ("a total", "math", "Ben has 19 stamps and Cora 12. How many more stamps does Ben have?", ["7"], [
        "The total is 7.", "Total: 7"]),
    ("all of those left", "math", "Of 40 birds, 12 fly away. How many birds are left?", ["28"], ["28 birds in all"]),
    ("another time", "qa", "Who is the mayor?", ["Al Fox"], ["Al Fox was the mayor."]),
    ("what one had", "math", "Ida had 31 shells and gave 9 away. How many shells does Ida have now?", ["22"], [
        "Ida had 22 shells.", "She had 22 shells."]),
    ("what one has", "math", "Ida has 22 shells. She found 9 today. How many shells did Ida have?", ["13"], [
        "Ida has 13 shells."]),
    ("notes", "math", "How many notes does the second song have?", ["6"], ["Not 6.", "The answer is not 6."]),
    ("another unit in words", "math", "What is the length of the rope in meters if it is 12 feet long?", ["6"], [
        "The length in feet is 6.", "It is 6 in inches."]),
    ("the unit of another", "math", "How many feet long is the wall whose length in yards is 4?", ["12"], ["12 yards"]),
    ("an unknown unit", "math", "How much does it cost in rupees?", ["600"], ["$600", "600 cents"]),
    ("a unit of another quantity", "qa", "How long is the bridge?", ["300"], ["300 seconds"]),
    ("a conclusion of words", "math", BUS, ["22"], [
        r"A naive solver subtracts 9, so \boxed{22}", r"The old key counts one stop, so the answer is \boxed{22}"]),
    ("two that are asked", "math", "The integers m and n satisfy m - n = 6. What are m and n?", ["8, 2"], [
        "2, 8", "2 and 8"]),
    ("two nouns", "math", "Find the numbers of boys and girls.", ["12 and 7"], [
        "7 and 12", "12 or 7", r"\boxed{12} or \boxed{7}"]),
    ("respectively", "math", "Find the coordinates of A and B, respectively.", ["(1,2), (3,4)"], ["(3,4), (1,2)"]),
    ("no interval", "math", CENTER, ["(3,-2)"], ["3 < x < -2"]),
    ("a word of the reference", "math", "How many people live there?", [r"5\text{ million}"], ["5", "5 people"]),
    ("a unit of the reference", "math", "Compute $(1+2i)(3-i)$.", [r"5+5\mathrm{i}"], ["10", "5+5"]),
    ("a code", "qa", "What is Bond's code number?", ["007"], ["7", "seven", "7.0"]),
    ("a version", "qa", "Which version introduced match statements?", ["3.10"], ["3.1", "It is 3.1."]),
    ("several letters", "qa", GAS, ["C", "C. carbon dioxide", "carbon dioxide"], [
        "Answer: A\nAnswer: C", "Which one is wrong? C", "It is A vs. C", "A. It is carbon dioxide."]),
    ("echoed options", "qa", "What is 17 + 26?\nA. 33\nB. 42\nC. 43", ["C", "C. 43", "43"], ["A. 33\nB. 42\nC. 43"]),
    ("no factors", "math", "What is the prime factorization of 84?", [r"2^2 \cdot 3 \cdot 7"], ["84", r"\boxed{84}"]),
    ("no power", "math", "Write 32 as a power of 2.", ["2^5"], ["32", "16*2"]),
    ("a form", "math", "Write $x^2-6x+14$ in vertex form.", ["(x-3)^2+5"], ["14 - 6x + x^2"]),
    ("a mantissa", "math", "Write 0.000072 in scientific notation.", [r"7.2 \times 10^{-5}"], [r"0.72 \times 10^{-4}"]),
    ("a myth", "qa", CAPITAL, ["Paris"], ["The following is a myth. The capital of France is Paris."]),
    ("a dash", "math", "What is the $y$-intercept of the line?", ["-5"], ["Answer – 5", "Solution:\n- 5"]),
]  # fmt: skip
#: Right replies of the same kinds.
NATURAL: list[tuple[Domain, str, list[str], list[str]]] = [
    ("math", "A coat that costs $80 is sold for $68. By what percent was it reduced?", ["15"], [
        "15%", ]),
    ("math", BUS, ["22"], [
        "<answer>22 passengers</answer>", "It's 22.", "31 - 14 + 5 = 22 passengers are left\n#### 22",
        "She counts 22 passengers\n\n" + r"\boxed{22}",
        "1. At first 31.\n2. Then 31 - 14 = 17.\n3. Now 17 + 5 = 22.\n\n" + r"\boxed{22}"]),
    ("qa", "Context: Jo opened a bakery in Leith. Question: What did Jo open?", ["a bakery"], ["A bakery"]),
    ("qa", GAS, ["C", "C. carbon dioxide", "carbon dioxide"], [
        "I would choose C.", "C - carbon dioxide", "They take in carbon dioxide.\n\n**C**", r"\boxed{C}"]),
]  # fmt: skip
GOLDS = [r"\boxed{42}", r"$\boxed{42}$", "#### 42", "The answer is 42", "6*7 = 42\n#### 42", r"so $\boxed{42}$."]


def accepted(domain: Domain, rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """The rows (question, answer, reference) that the rules accept."""
    return [row for row in rows if matches(row[1], [row[2]], domain, row[0])]


def plain(cases: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    return [("", *case) for case in cases]


def test_right_answers_are_accepted_however_they_are_written() -> None:
    for domain, rows in (
        ("math", plain(MATHS_RIGHT) + RIGHT_WITH_QUESTION),
        ("qa", plain(QA_RIGHT) + QA_RIGHT_WITH_QUESTION),
    ):
        said = accepted(domain, rows)
        assert not [row for row in rows if row not in said]


def test_wrong_hedged_and_withdrawn_answers_are_never_accepted() -> None:
    assert not accepted("math", plain(MATHS_UNDECIDED) + WRONG_WITH_QUESTION)
    assert not accepted("qa", plain(QA_UNDECIDED) + QA_WRONG_WITH_QUESTION)


def test_another_quantity_unit_or_form_than_the_asked_one_is_undecided() -> None:
    for rows in (OTHER_QUANTITY, OTHER_UNIT, OTHER_FORM):
        said = [(question, text, gold) for question, gold, texts in rows for text in texts.split("|")]
        said += [(question, form.format(text), gold) for question, text, gold in said for form in FORMS]
        assert not accepted("math", said)
        assert not [gold for question, gold, _ in rows if not matches(gold, [gold], "math", question)]


def test_a_number_with_other_words_is_undecided() -> None:
    said = [form.format(text) for text in PHRASES for form in ("{}", "The answer is {}.", r"\boxed{{{}}}")]
    said += [rf"\boxed{{6}}{text[1:]}" for text in PHRASES if text.startswith("6")]
    assert not [text for text in said if compare(text, ["6"], "math", LEGS) == "same"]
    for gold, said in (("6%", ["6 per mille", "6 times", "600%"]), ("$6", ["6 dollars each", "$6 per kg", "6 cents"])):
        assert not [text for text in said if matches(text, [gold], "math")]


def test_each_kind_of_hostile_reply_is_undecided_and_the_references_themselves_are_accepted() -> None:
    wrong = []
    for kind, domain, question, golds, replies in HOSTILE:
        wrong += [(kind, reply) for reply in replies if matches(reply, golds, domain, question)]
        wrong += [] if matches(golds[0], golds, domain, question) else [(kind, golds[0])]
    for domain, question, golds, replies in NATURAL:
        wrong += [("right", reply) for reply in replies if not matches(reply, golds, domain, question)]
    assert not wrong


def test_an_answer_that_is_not_the_replys_own_is_undecided() -> None:
    assert not [(q, text) for q in ("", LEGS) for text in ATTRIBUTED if matches(text, ["6"], "math", q)]
    assert not [text for text in ATTRIBUTED if matches(text, ["6"], "qa", LEGS)]


def test_references_are_read_like_replies() -> None:
    said = ["42", "42.0", r"The answer is \boxed{42}", "#### 42", "The answer is 42."]
    assert not [(gold, text) for gold in GOLDS for text in said if not matches(text, [gold], "math", "What is it?")]
    assert not [gold for gold in GOLDS if matches("43", [gold], "math")]


def test_equal_texts_are_equivalent_both_ways_and_others_never() -> None:
    wrong: list[tuple[str, str]] = []
    for domain, cases, same in (
        ("math", EQUAL_MATHS, True), ("math", UNEQUAL_MATHS, False), ("qa", EQUAL_QA, True), ("qa", UNEQUAL_QA, False),
    ):  # fmt: skip
        both = [pair for a, b in cases for pair in ((a, b), (b, a))]
        wrong += [(a[:50], b[:50]) for a, b in both if equivalent(a, b, domain) is not same]
    assert not wrong
