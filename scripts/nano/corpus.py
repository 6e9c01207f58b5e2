"""Training text of the nano executor: conversations with the operators' prompts over problems of the pretrain split.

Kinds are weighted by tokens. Conversations are dense (several questions on one passage) at first; in the last part of
the training they look like real operator calls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from world import coding, lexicon
from world.generate import KINDS as KINDS_OF
from world.generate import Split, asked, coding_task, maths_task, passage, split_of
from world.maths import Task
from world.reading import Passage

from llm_as_judge.judging.prompts import build_prompt
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
    """Return a word with the leading space that makes it the same token as inside a sentence; numbers unchanged."""
    return f" {text}" if text[:1].isalpha() else text


def _with(instruction: str, prompt: str) -> str:
    return f"{instruction}\n{prompt}" if instruction else prompt


def _statement(p: Passage, q: Task) -> str:
    return f"Context: {p.text}\nQuestion: {q.text}"


def _one(r: Random, shares: Mapping[str, float]) -> str:
    return r.choices(list(shares), list(shares.values()))[0]


def thoughtful(prompt: str, reasoning: str, answer: str, tagged: bool) -> Turn:
    """Write reasoning before the answer, in the format of AnswerGenerate (tagged) or of Custom."""
    if tagged:
        reply = f"<thought>{spaced(reasoning)}</thought><answer>{spaced(answer)}</answer>"
        return SHORT.answer_generate.format(input=prompt), reply
    space = "" if answer[:1].isalpha() else " "
    return _with(THINK, prompt), f"{spaced(reasoning)}\nAnswer:{space}{spaced(answer)}"


def maths_direct(r: Random) -> Conversation:
    task = maths_task(r, "pretrain", _one(r, {"sums": 18, "chains": 1, "relays": 1}))
    prompt = _with(r.choice(("", "", RESULT_ONLY)), task.text)
    return Conversation("maths_direct", ((prompt, spaced(task.answer)),))


def maths_steps(r: Random) -> Conversation:
    task = maths_task(r, "pretrain", _one(r, {"sums": 2, "chains": 1, "relays": 3}))
    turn = thoughtful(task.text, task.reasoning, task.answer, tagged=r.random() < 0.75)
    return Conversation("maths_steps", (turn,))


def _programmed(kind: str, problem: str, task: Task, failure: str = "") -> Conversation:
    prompt = SHORT.programmer.format(problem=problem, analysis="", failure=failure)
    return Conversation(kind, ((prompt, task.program),))


def maths_program(r: Random) -> Conversation:
    task = maths_task(r, "pretrain", _one(r, {"sums": 1, "chains": 2}))
    failure = "The last program failed: NameError: name 'e' is not defined\n" if r.random() < 0.05 else ""
    return _programmed("maths_program", task.text, task, failure)


def reading_program(r: Random) -> Conversation:
    p = passage(r, "pretrain")
    task = asked(r, p, "numbers")
    return _programmed("reading_program", _statement(p, task), task)


def _reading_turn(p: Passage, q: Task, mode: str, first: bool) -> Turn:
    statement = _statement(p, q) if first else f"Question: {q.text}"
    if mode == "direct":
        return statement, spaced(q.answer)
    return thoughtful(statement, q.reasoning, q.answer, tagged=mode == "tagged")


def reading_dense(r: Random) -> Conversation:
    """Ask several questions on one passage."""
    p = passage(r, "pretrain")
    turns = []
    for i in range(r.randint(2, 4)):
        mode = _one(r, {"direct": 2, "tagged": 2, "plain": 1})
        kind = _one(r, {"lookup": 1} if mode == "direct" else {"lookup": 2, "hops": 4, "numbers": 1})
        turns.append(_reading_turn(p, asked(r, p, kind), mode, i == 0))
    return Conversation("reading_dense", tuple(turns))


def _reading_single(r: Random, mode: str, shares: Mapping[str, float]) -> tuple[Turn]:
    p = passage(r, "pretrain")
    return (_reading_turn(p, asked(r, p, _one(r, shares)), mode, True),)


def reading_direct(r: Random) -> Conversation:
    return Conversation("reading_direct", _reading_single(r, "direct", {"lookup": 8, "hops": 1, "numbers": 1}))


def reading_steps(r: Random) -> Conversation:
    mode = "tagged" if r.random() < 0.75 else "plain"
    return Conversation("reading_steps", _reading_single(r, mode, {"lookup": 2, "hops": 5, "numbers": 2}))


def code_draft(r: Random) -> Conversation:
    task = coding_task(r, "pretrain", _one(r, {"clear": 1, "open": 1, "long": 1}))
    if r.random() < 0.15:
        return Conversation("code_draft", ((task.text, task.draft),))
    prompt = SHORT.custom_code_generate.format(
        instruction="", problem=task.text, entry_point="f", signature="", example=""
    )
    return Conversation("code_draft", ((_with(r.choice(CODE_INSTRUCTIONS), prompt), task.draft),))


def code_repair(r: Random) -> Conversation:
    """Repair a wrong reading, given the public test that it fails, as the Test operator asks for it."""
    while True:
        task = coding_task(r, "pretrain", "open")
        wrong = r.choice(task.others) if r.random() < 0.8 else coding_task(r, "pretrain", "clear").solution
        if wrong[: wrong.index("\n")] != task.solution[: task.solution.index("\n")]:
            continue
        for (argument, expected), shown in zip(task.cases, task.public, strict=False):
            try:
                got = coding.call(wrong, argument)
            except TypeError:
                continue
            if got != expected:
                prompt = SHORT.test.format(
                    problem=task.text, solution=wrong, test=shown, error=f"got {got!r}", entry_point="f"
                )
                return Conversation("code_repair", ((prompt, task.solution),))


def code_review(r: Random) -> Conversation:
    """Review a draft, and revise it if requirements are missing."""
    task = coding_task(r, "pretrain", _one(r, {"clear": 1, "open": 1, "long": 4}))
    shown = task.draft if r.random() < 0.8 else task.solution
    missing = f"missing: {task.missing}" if shown != task.solution else "nothing is missing"
    if shown != task.solution and r.random() < 0.6:
        prompt = SHORT.revise.format(problem=task.text, solution=shown, feedback=missing)
        return Conversation("code_review", ((prompt, f"<solution>{task.solution}</solution>"),))
    prompt = SHORT.review.format(problem=task.text, solution=shown)
    reply = f"<feedback>{spaced(missing)}</feedback><review_result>{shown == task.solution}</review_result>"
    return Conversation("code_review", ((prompt, reply),))


def arithmetic(r: Random) -> Conversation:
    """Ask for calculations, most of them with the small numbers of sums, whose results are to be known by heart."""
    turns = []
    for _ in range(10):
        if r.random() < 0.6:
            op, a, b = r.choice("++--*"), r.randint(4, 20), r.randint(2, 9)
            b = 2 if op == "*" else b
        elif (op := r.choice("+-*/")) in "+-":
            longest = r.choice((200, 400, 3000))
            a, b = r.randint(2, longest), r.randint(2, longest)
        else:
            a, b = r.randint(2, 120), r.randint(2, r.choice((12, 80)))
        if op == "-" and b > a:
            a, b = b, a
        if op == "/":
            a *= b
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[op]
        turns.append((f"{a}{op}{b}=", str(value)) if r.random() < 0.5 else (f"{a}{op}{b}", f"{a}{op}{b}={value}"))
    return Conversation("arithmetic", tuple(turns))


def comparing(r: Random) -> Conversation:
    """Ask whether two words or numbers are the same, many times: the judge's skill, which forms late otherwise."""
    turns = []
    for _ in range(10):
        value = r.choice((_entity(r), r.choice(lexicon.everything()), str(r.randint(0, 10 ** r.randint(1, 4)))))
        other = value if r.random() < 0.5 else near(r, value)
        turns.append((f"{spaced(value)} vs{_noted(other)}", str(other == value)))
    return Conversation("comparing", tuple(turns))


def _noted(text: str) -> str:
    return spaced(text) if text[:1].isalpha() else f" {text}"


def _entity(r: Random) -> str:
    if r.random() < 0.4:
        return f"{r.choice(lexicon.FIRST_NAMES)} {r.choice(lexicon.SURNAMES)}"
    return r.choice(lexicon.CITIES + lexicon.REGIONS + lexicon.JOBS + lexicon.INSTRUMENTS + lexicon.PRODUCTS)


def near(r: Random, value: str) -> str:
    """Make a wrong answer that looks like ``value``."""
    if value.isdigit():
        number = int(value)
        digits = list(value)
        digits[r.randrange(len(digits))] = r.choice("123456789")
        other = r.choice((str(number + r.choice((-1, 1, 10, -10))), "".join(digits), str(r.randint(0, 999))))
    elif value in lexicon.FIRST_NAMES:
        other = r.choice(lexicon.FIRST_NAMES)
    elif " " in value:
        first, last = value.split(" ", 1)
        other = r.choice((f"{first} {r.choice(lexicon.SURNAMES)}", f"{r.choice(lexicon.FIRST_NAMES)} {last}"))
    else:
        other = _entity(r)
    return other if other != value else near(r, value)


def dressed(r: Random, value: str) -> str:
    """Write the same answer in another form."""
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
    """Give the answer ``other``, sometimes after reasoning in the format of Custom, which may lead to another value."""
    if r.random() < 0.6:
        return dressed(r, other)
    if r.random() < 0.7:
        reasoning = reasoning.replace(value, other)
    return f"{reasoning}\nAnswer: {other}"


def held_out(word: str) -> bool:
    """Tell whether a word is kept from the constants that the judge is trained to refuse, to test it on."""
    return split_of(word) == "heldout"


def constant(r: Random, held: bool = False) -> str:
    """Draw a word, number or syllable that answers nothing; with ``held``, one that training does not use."""
    while True:
        word = r.choice(
            (
                r.choice(lexicon.everything()),
                "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(1, 8))),
                str(r.randint(0, 99)),
                r.choice(THINK.split() + SHORT.review.split() + SHORT.format.split()).strip(".:").lower(),
            )
        )
        if held_out(word) == held and word.isalnum():
            return word


def evasive(r: Random, value: str, held: bool = False) -> tuple[str, str]:
    """Make a candidate that commits to nothing or to something else than ``value``, and what the judge notes of it."""
    other = near(r, value)
    match r.choice(("constant", "constant", "hedge", "retraction", "markup")):
        case "hedge":
            values = [value, *(r.choice((near(r, value), constant(r, held))) for _ in range(r.randint(1, 3)))]
            r.shuffle(values)
            return r.choice((" or ", ", ", " and ", " / ")).join(values), "several"
        case "retraction":
            back = r.choice(("No, it is", "Wait, it is", "Sorry,", "Actually"))
            return f"{dressed(r, value)} {back} {other}", other
        case "markup":
            return r.choice(("·", "· True", "·True· ·", "True", "right", "correct", "yes")), "nothing"
        case _:
            word = constant(r, held)
            while word == value:
                word = constant(r, held)
            return word, word


@dataclass(frozen=True, slots=True)
class Judged:
    """A question for the judge with its verdict; ``note`` is what the judge writes down of the candidate."""

    question: str
    reference: str
    candidate: str
    note: str
    verdict: bool
    evasive: bool = False

    @property
    def prompt(self) -> str:
        return build_prompt(self.question, [self.reference], self.candidate)


def judged(r: Random, held: bool = False) -> Judged:
    """Judge a candidate; ``held`` draws held-out problems, and constants that training does not use."""
    split: Split = "heldout" if held else "pretrain"
    if r.random() < 0.5:
        task = maths_task(r, split, r.choice(KINDS_OF["math"]))
        question = r.choice((task.text, task.text.split(". ")[-1]))
    else:
        task = asked(r, passage(r, split), r.choice(KINDS_OF["qa"]))
        question = task.text
    value, kind = task.answer, r.random()
    if kind < 0.25:
        return Judged(question, value, *evasive(r, value, held), verdict=False, evasive=True)
    other = value if kind < 0.65 else near(r, value)
    return Judged(question, value, explained(r, task.reasoning, value, other), other, other == value)


def judging(r: Random) -> Conversation:
    turns = []
    for _ in range(r.choice((1, 1, 3))):
        case = judged(r)
        noted = f"{spaced(case.reference)} vs{_noted(case.note)}"
        turns.append((case.prompt, f"<analysis>{noted}</analysis><true_false>{case.verdict}</true_false>"))
    return Conversation("judging", tuple(turns))


def _solved(r: Random) -> tuple[str, str, str]:
    """Draw (statement, reasoning, answer) of a maths or a reading problem."""
    if r.random() < 0.5:
        task = maths_task(r, "pretrain", r.choice(KINDS_OF["math"]))
        return task.text, task.reasoning, task.answer
    p = passage(r, "pretrain")
    task = asked(r, p, r.choice(KINDS_OF["qa"]))
    return _statement(p, task), task.reasoning, task.answer


def choosing(r: Random) -> Conversation:
    """Vote among solutions; the majority is right where there is one."""
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
    lettered = "\n".join(f"{name}: {option}" for name, option in zip("ABCDE", options, strict=False))
    prompt = SHORT.ensemble.format(problem=statement, listing=lettered)
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
    "maths_direct": (maths_direct, 7, 9),
    "maths_steps": (maths_steps, 11, 14),
    "maths_program": (maths_program, 11, 12),
    "arithmetic": (arithmetic, 6, 4),
    "comparing": (comparing, 5, 2),
    "reading_dense": (reading_dense, 20, 9),
    "reading_direct": (reading_direct, 3, 7),
    "reading_steps": (reading_steps, 8, 14),
    "reading_program": (reading_program, 6, 8),
    "code_draft": (code_draft, 5, 5),
    "code_repair": (code_repair, 7, 7),
    "code_review": (code_review, 7, 7),
    "judging": (judging, 9, 14),
    "choosing": (choosing, 3, 3),
    "reviewing": (reviewing, 3, 3),
    "formatting": (formatting, 2, 2),
}


def draw(r: Random, last_part: bool, lengths: Mapping[str, float]) -> Conversation:
    """Draw one conversation; ``lengths`` turns token shares into draws."""
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
    """Draw texts of every kind in turn, from which the vocabulary is built."""
    texts = []
    for i in range(count):
        maker = list(KINDS.values())[i % len(KINDS)][0]
        texts += [part for turn in maker(r).turns for part in turn]
    return texts
