"""Training text of the nano executor: conversations with the operators' prompts over problems of the pretrain split.

Kinds are weighted by tokens. Conversations are dense (several questions on one passage) at first; in the last part of
the training they look like real operator calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from llm_as_judge.embedded import lexicon
from llm_as_judge.embedded.tasks import coding, reading
from llm_as_judge.embedded.tasks.generate import PUBLIC_TESTS, coding_item, maths_item, passage
from llm_as_judge.judging.prompts import build_prompt
from llm_as_judge.operators.base import listing
from llm_as_judge.operators.prompts import SHORT

THINK = "Think step by step."
RESULT_ONLY = "Answer with the result only."
CODE_INSTRUCTIONS = ("", "", "Return only code.", "Write simple code.")
#: Layer 2 instructions of ``config/operator_descriptions/nano.yaml``, by the first word of a kind.
ENHANCEMENTS = {
    "maths": "Show every calculation.",
    "reading": "Use only the context.",
    "code": "Mind empty lists.",
}
_ENHANCED_SHARE = 0.2
Turn = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Conversation:
    kind: str
    turns: tuple[Turn, ...]


def spaced(text: str) -> str:
    """A word with the leading space that makes it the same token as inside a sentence; numbers unchanged."""
    return f" {text}" if text[:1].isalpha() else text


def _with(instruction: str, prompt: str) -> str:
    return f"{instruction}\n{prompt}" if instruction else prompt


def _statement(p: reading.Passage, q: reading.Query) -> str:
    return f"Context: {p.text}\nQuestion: {q.text}"


def thoughtful(prompt: str, reasoning: str, answer: str, tagged: bool) -> Turn:
    """Reasoning before the answer, in the format of AnswerGenerate (tagged) or of Custom."""
    if tagged:
        reply = f"<thought>{spaced(reasoning)}</thought><answer>{spaced(answer)}</answer>"
        return SHORT.answer_generate.format(input=prompt), reply
    space = "" if answer[:1].isalpha() else " "
    return _with(THINK, prompt), f"{spaced(reasoning)}\nAnswer:{space}{spaced(answer)}"


def maths_direct(r: Random) -> Conversation:
    item = maths_item(r, "pretrain")
    return Conversation("maths_direct", ((_with(r.choice(("", "", RESULT_ONLY)), item.text), item.answer),))


def maths_steps(r: Random) -> Conversation:
    item = maths_item(r, "pretrain")
    turn = thoughtful(item.text, item.reasoning, item.answer, tagged=r.random() < 0.75)
    return Conversation("maths_steps", (turn,))


def maths_program(r: Random) -> Conversation:
    item = maths_item(r, "pretrain")
    feedback = "The last program failed: NameError: name 'e' is not defined\n" if r.random() < 0.05 else ""
    prompt = SHORT.programmer.format(problem=item.text, analysis="", failure=feedback)
    return Conversation("maths_program", ((prompt, item.program),))


def _reading_turn(p: reading.Passage, q: reading.Query, mode: str, first: bool) -> Turn:
    statement = _statement(p, q) if first else f"Question: {q.text}"
    if mode == "direct":
        return statement, spaced(q.answer)
    return thoughtful(statement, q.reasoning, q.answer, tagged=mode == "tagged")


def reading_dense(r: Random) -> Conversation:
    p = passage(r, "pretrain")
    queries = r.sample(p.queries, min(len(p.queries), r.randint(3, 6)))
    modes = ("direct", "tagged", "tagged", "plain")
    turns = [_reading_turn(p, q, r.choice(modes), i == 0) for i, q in enumerate(queries)]
    return Conversation("reading_dense", tuple(turns))


def _reading_single(r: Random, mode: str) -> Conversation:
    p = passage(r, "pretrain")
    return Conversation(f"reading_{mode}", (_reading_turn(p, p.draw(r), mode, True),))


def reading_direct(r: Random) -> Conversation:
    return _reading_single(r, "direct")


def reading_steps(r: Random) -> Conversation:
    made = _reading_single(r, "tagged" if r.random() < 0.75 else "plain")
    return Conversation("reading_steps", made.turns)


def code_draft(r: Random) -> Conversation:
    item = coding_item(r, "pretrain")
    if r.random() < 0.15:
        return Conversation("code_draft", ((item.text, item.solution),))
    prompt = SHORT.custom_code_generate.format(
        instruction="", problem=item.text, entry_point="f", signature="", example=""
    )
    return Conversation("code_draft", ((_with(r.choice(CODE_INSTRUCTIONS), prompt), item.solution),))


def code_repair(r: Random) -> Conversation:
    """Repair of a wrong reading, given the public test that it fails, as the Test operator asks for it."""
    while True:
        item = coding_item(r, "pretrain")
        wrong = r.choice(item.others) if item.others and r.random() < 0.8 else coding_item(r, "pretrain").solution
        if wrong[: wrong.index("\n")] != item.solution[: item.solution.index("\n")]:
            continue
        for (argument, expected), shown in list(zip(item.cases, item.asserts, strict=True))[:PUBLIC_TESTS]:
            try:
                got = coding.call(wrong, argument)
            except TypeError:
                continue
            if got != expected:
                prompt = SHORT.test.format(
                    problem=item.text, solution=wrong, test=shown, error=f"got {got!r}", entry_point="f"
                )
                return Conversation("code_repair", ((prompt, item.solution),))


def arithmetic(r: Random) -> Conversation:
    turns = []
    for _ in range(8):
        op = r.choice("+-**/")
        if op in "+-":
            longest = r.choice((200, 400, 3000))
            a, b = r.randint(2, longest), r.randint(2, longest)
        else:
            a, b = r.randint(2, 120), r.randint(2, r.choice((12, 80)))
        if op == "-" and b > a:
            a, b = b, a
        if op == "/":
            a *= b
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[op]
        turns.append((f"{a}{op}{b}=", str(value)))
    return Conversation("arithmetic", tuple(turns))


def _entity(r: Random) -> str:
    if r.random() < 0.4:
        return f"{r.choice(lexicon.FIRST_NAMES)} {r.choice(lexicon.SURNAMES)}"
    return r.choice(lexicon.CITIES + lexicon.REGIONS + lexicon.JOBS + lexicon.INSTRUMENTS + lexicon.PRODUCTS)


def near(r: Random, value: str) -> str:
    """A wrong answer that looks like ``value``."""
    if value.isdigit():
        number = int(value)
        digits = list(value)
        digits[r.randrange(len(digits))] = r.choice("123456789")
        other = r.choice((str(number + r.choice((-1, 1, 10, -10))), "".join(digits), str(r.randint(0, 999))))
    elif " " in value:
        first, last = value.split(" ", 1)
        other = r.choice((f"{first} {r.choice(lexicon.SURNAMES)}", f"{r.choice(lexicon.FIRST_NAMES)} {last}"))
    else:
        other = _entity(r)
    return other if other != value else near(r, value)


def dressed(r: Random, value: str) -> str:
    """The same answer in another form."""
    forms = [value, value, value, f"The answer is {value}.", f"It is {value}"]
    if value.isdigit():
        forms += [
            f"{value}.0",
            f"{value} {r.choice(lexicon.ITEMS)}",
            f"{value} dollars",
            f"\\boxed{{{value}}}",
        ]
    return r.choice(forms)


def explained(r: Random, reasoning: str, value: str, other: str) -> str:
    """The answer ``other``, sometimes after reasoning in the format of Custom, which may lead to another value."""
    if r.random() < 0.6:
        return dressed(r, other)
    if r.random() < 0.7:
        reasoning = reasoning.replace(value, other)
    return f"{reasoning}\nAnswer: {other}"


def judging(r: Random) -> Conversation:
    turns = []
    for _ in range(r.choice((1, 1, 3))):
        if r.random() < 0.5:
            item = maths_item(r, "pretrain")
            question, value = r.choice((item.text, item.text.split(". ")[-1])), item.answer
            reasoning = item.reasoning
        else:
            q = passage(r, "pretrain").draw(r)
            question, value, reasoning = q.text, q.answer, q.reasoning
        other = value if r.random() < 0.5 else near(r, value)
        prompt = build_prompt(question, [value], explained(r, reasoning, value, other))
        verdict = "True" if other == value else "False"
        scratch = f"<analysis>{spaced(value)} vs {other}</analysis>"
        turns.append((prompt, f"{scratch}<true_false>{verdict}</true_false>"))
    return Conversation("judging", tuple(turns))


def _solved(r: Random) -> tuple[str, str, str]:
    """(statement, reasoning, answer) of a maths or a reading problem."""
    if r.random() < 0.5:
        item = maths_item(r, "pretrain")
        return item.text, item.reasoning, item.answer
    p = passage(r, "pretrain")
    q = p.draw(r)
    return _statement(p, q), q.reasoning, q.answer


def choosing(r: Random) -> Conversation:
    """A vote among solutions; the majority is right where there is one."""
    statement, reasoning, answer = _solved(r)
    wrong = [near(r, answer) for _ in range(3)]
    shape = r.random()
    if shape < 0.5:
        options = [answer, answer, wrong[0]]
    elif shape < 0.75:
        options = [answer, wrong[0], wrong[1]]
    else:
        options = [answer, answer, answer, wrong[0], wrong[1]]
    r.shuffle(options)
    letter = "ABCDE"[options.index(answer)]
    thought = answer if options.count(answer) > 1 else f"{reasoning} {answer}"
    reply = f"<thought>{spaced(thought)}</thought><solution_letter>{letter}</solution_letter>"
    prompt = SHORT.ensemble.format(problem=statement, listing=listing(options))
    return Conversation("choosing", ((prompt, reply),))


def reviewing(r: Random) -> Conversation:
    statement, reasoning, answer = _solved(r)
    claimed = answer if r.random() < 0.5 else near(r, answer)
    prompt = SHORT.review.format(problem=statement, solution=claimed)
    verdict = "True" if claimed == answer else "False"
    feedback = f"{reasoning} {answer} vs {claimed}"
    reply = f"<feedback>{spaced(feedback)}</feedback><review_result>{verdict}</review_result>"
    if r.random() < 0.6:
        return Conversation("reviewing", ((prompt, reply),))
    prompt = SHORT.revise.format(
        problem=statement, solution=near(r, answer), feedback=f"{reasoning} {answer} vs {near(r, answer)}"
    )
    return Conversation("reviewing", ((prompt, f"<solution>{spaced(answer)}</solution>"),))


def formatting(r: Random) -> Conversation:
    statement, reasoning, answer = _solved(r)
    solution = r.choice((f"{reasoning}\nAnswer: {answer}", f"The answer is {answer}.", f"{reasoning} {answer}"))
    return Conversation("formatting", ((SHORT.format.format(problem=statement, solution=solution), spaced(answer)),))


#: kind -> (maker, share of the tokens in the dense part, share in the last part)
KINDS: Mapping[str, tuple[Callable[[Random], Conversation], float, float]] = {
    "maths_direct": (maths_direct, 4, 4),
    "maths_steps": (maths_steps, 12, 13),
    "maths_program": (maths_program, 12, 14),
    "arithmetic": (arithmetic, 6, 5),
    "reading_dense": (reading_dense, 26, 14),
    "reading_direct": (reading_direct, 2, 5),
    "reading_steps": (reading_steps, 8, 28),
    "code_draft": (code_draft, 7, 7),
    "code_repair": (code_repair, 9, 10),
    "judging": (judging, 9, 11),
    "choosing": (choosing, 3, 3),
    "reviewing": (reviewing, 3, 3),
    "formatting": (formatting, 2, 3),
}


def draw(r: Random, last_part: bool, lengths: Mapping[str, float]) -> Conversation:
    """One conversation; ``lengths`` turns token shares into draws."""
    names = list(KINDS)
    shares = {n: last if last_part else dense for n, (_, dense, last) in KINDS.items()}
    weights = [shares[n] / lengths[n] for n in names]
    made = KINDS[r.choices(names, weights)[0]][0](r)
    hint = ENHANCEMENTS.get(made.kind.split("_")[0])
    if hint is None or r.random() > _ENHANCED_SHARE:
        return made
    (prompt, reply), *rest = made.turns
    return Conversation(made.kind, ((f"{hint}\n{prompt}", reply), *rest))


def samples(r: Random, count: int) -> list[str]:
    """Texts of every kind in turn, from which the vocabulary is built."""
    texts = []
    for i in range(count):
        maker = list(KINDS.values())[i % len(KINDS)][0]
        texts += [part for turn in maker(r).turns for part in turn]
    return texts
