"""Texts of policy, executor and judge that the host reads: none makes it raise, or takes much time or memory.

``READERS`` must reach every module of the host that parses, matches or decodes; ``OWN_TEXTS`` names those that read
only what the user or this package wrote.
"""

import asyncio
import inspect
import json
import re
import sys
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

import pytest
from helpers.judging import asked
from helpers.tables import tables

from llm_as_judge import types
from llm_as_judge.answers import algebra
from llm_as_judge.answers.code import LONGEST_PARSED
from llm_as_judge.answers.metrics import Metric, scores
from llm_as_judge.config.endpoints import JudgeConfig
from llm_as_judge.config.schema import RewardConfig
from llm_as_judge.evaluation.voting import _chosen
from llm_as_judge.events import PromptEvent, RolloutEvent
from llm_as_judge.files import cut
from llm_as_judge.judging import extracting
from llm_as_judge.judging.grading import Ranking
from llm_as_judge.judging.judge import OFFICIAL, RULES_ONLY, Judge
from llm_as_judge.judging.llm_judge import LLMJudge
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.operators.base import Toolbox
from llm_as_judge.operators.catalog import OPERATORS, type_word
from llm_as_judge.rewards.terms import RewardFunction
from llm_as_judge.rl.rollout import extract_code
from llm_as_judge.runlog import encoded
from llm_as_judge.sandbox.public_test import run_assert
from llm_as_judge.sandbox.results import KEPT, CodeResult, CodeVerdict
from llm_as_judge.workflow.lint.check import lint
from llm_as_judge.workflow.structure import normalise_code

PACKAGE = Path(__file__).parents[1] / "llm_as_judge"
MEGABYTES = 12
#: CPU time for 50,000 characters, as a multiple of the time that ``unit`` takes on the same CPU: reading takes up to 8,
#: anything quadratic hundreds.
UNITS_OF_TIME = 20

UNITS = tables(__file__)["UNITS"]


#: Around a text: a fence, a workflow, a box.
FRAMES = (
    ("```python\na", "x\n```"),
    ("class Workflow:\n    async def __call__(self, problem):\n        return ", "\n"),
    ("The answer is \\boxed{", "5}"),
)


def texts(size: int) -> Iterator[str]:
    """``size`` characters of every unit, alone and in one of the frames; balanced brackets."""
    for unit, (head, tail) in zip(UNITS, cycle(FRAMES), strict=False):
        yield unit * (size // len(unit))
        yield head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail
    for opening, closing in (("\\boxed{", "}"), ("(", ")"), ("[", "]"), ("{", "}"), ("f(", ")")):
        n = size // len(opening + closing)
        yield opening * n + "5" + closing * n


class Scripted:
    """Executor, judge and sandbox that reply with one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def chat(self, prompt: str, **request: Any) -> types.Exchange:
        return types.Exchange(prompt, self.text, "stop", 1, 1, 0.0, 0.0)

    async def run_code(self, source: str, **options: Any) -> CodeResult:
        return CodeResult("raised", value=[False, self.text, self.text], stdout=self.text, error=self.text)

    async def verdict(self, *job: str, prelude: str = "") -> CodeVerdict:
        return CodeVerdict(False, "raised", error=self.text)


QUESTIONS = {
    "math": types.Question("p", "How many km is it, in percent?", "math"),
    "qa": types.Question("p", "Which one? (A) Paris (B) Rome", "qa", dataset="squad2"),
    "code": types.Question("p", "def f(x):\n    ...", "code", entry_point="f", public_tests=("assert f(1) == 2",)),
}
REFERENCES = {
    "math": types.Reference(("12", r"\frac{1}{2}")),
    "qa": types.Reference(("Paris", "B")),
    "code": types.Reference(tests="assert f(1) == 2"),
}
PROBLEMS = {domain: types.Problem(QUESTIONS[domain], REFERENCES[domain]) for domain in types.DOMAINS}
UNANSWERABLE = types.Problem(QUESTIONS["qa"], types.Reference(unanswerable=True))


def judge(problem: types.Problem, config: JudgeConfig = RULES_ONLY) -> Callable[[str], Coroutine[Any, Any, object]]:
    return lambda text: Judge(config, None, Scripted(text)).verdict(problem, text)


def ask_judge(**settings: Any) -> Callable[[str], Coroutine[Any, Any, object]]:
    return lambda text: LLMJudge(asked(**settings), Scripted(text)).decide("?", ("x",), text)


async def grade(text: str) -> None:
    """As an answer, and as the judge's reply about it."""
    await Ranking(asked(), Scripted(text), together=True).verdicts(PROBLEMS["qa"], [(text, ""), ("short", "")])


def copy_out(text: str) -> None:
    """The copy in a judge's reply, looked for in a candidate."""
    extracting.build("?", text, 1)
    for copy in (extracting.read_copy(text), "5", "a b"):
        extracting.is_part(copy, text)


def operate(name: str, *, reply: bool) -> Callable[[str], Coroutine[Any, Any, object]]:
    """The operator with the text as the executor's reply, or as every argument."""

    async def run(text: str) -> None:
        scripted = Scripted(text if reply else "short")
        tools, arguments = Toolbox(scripted, scripted.run_code, QUESTIONS["code"]), {}
        for key, parameter in list(inspect.signature(OPERATORS[name].__call__).parameters.items())[1:]:
            given = ("f" if key == "entry_point" else "short") if reply else text
            half = len(given) // 2
            kinds = {"str": given, "int": 3, "list[str]": [given[:half], given[half:]]}
            arguments[key] = kinds[type_word(parameter)]
        await OPERATORS[name](tools)(**arguments)

    return run


def rollout(text: str) -> types.Rollout:
    """A rollout whose texts are as long as they are kept."""
    exchange = types.Exchange(cut(text, KEPT), cut(text, KEPT), "stop", 1, 1, 0.0, 0.0)
    calls = [types.OperatorCall("Custom", {"input": text, text: [text]}, {"response": text}, (exchange,) * 3)] * 24
    run = types.Execution("finished", cut(text, KEPT), tuple(calls), error=text[:2000])
    verdict = types.Verdict(False, "llm", text[:200], exchanges=(exchange,))
    completion = types.Completion(text, (), (), (), "stop")
    return types.Rollout(PROBLEMS["math"], completion, extract_code(text), run, verdict, types.Reward(0.0))


def reward(text: str) -> None:
    RewardFunction(RewardConfig())(rollout(text))


def compare_calls(text: str) -> None:
    done, call = rollout("short"), types.OperatorCall("Custom", {"input": text}, {}, ())
    run = replace(done.execution, calls=(call, call))
    assert RewardFunction(RewardConfig())(replace(done, execution=run)).terms["repetition"] == 5.0


def read_response(text: str) -> None:
    from llm_as_judge.config.endpoints import EndpointConfig, ServerConfig
    from llm_as_judge.llm.client import Failure, model_names
    from llm_as_judge.llm.transport import Transport, _cause, _text

    body = text.encode("utf-8", "replace")
    read_reply = partial(
        LLMClient(EndpointConfig(base_url="http://127.0.0.1:9/v1"))._read, {"messages": [{"content": text}]}
    )
    for read in (read_reply, model_names):
        with suppress(Failure):
            read(text)
    read_reply('{"choices": [{"message": {"content": ' + json.dumps(text[: len(text) // 8] + ".") + "}}]}")
    _cause(429, _text(body)), _cause(400, _text(body))
    Transport(ServerConfig(base_url="http://localhost/v1"))._quote(_text(body))


def official_metric(name: Metric, text: str) -> object:
    return scores(name, text, QUESTIONS["qa"], REFERENCES["qa"])


def vote(domain: types.Domain) -> Callable[[str], Coroutine[Any, Any, object]]:
    def voted(text: str) -> Coroutine[Any, Any, object]:
        draft = replace(rollout("short"), execution=types.Execution("finished", text))
        return _chosen(types.Group(PROBLEMS[domain], [draft] * 2), Scripted(text).run_code)

    return voted


#: Reader -> characters of the largest text that reaches it.
READERS: dict[str, tuple[int, Callable[[str], object]]] = {
    "extract_code": (KEPT, extract_code),
    "extract_code after a prefill": (KEPT, lambda text: extract_code(text, "```python\nclass Workflow:")),
    "lint": (LONGEST_PARSED, lambda text: lint(extract_code(text))),
    "lint, longer": (KEPT, lint),
    "normalise_code": (LONGEST_PARSED, lambda text: normalise_code(extract_code(text))),
    **{f"verdict on {domain}": (KEPT, judge(problem)) for domain, problem in PROBLEMS.items()},
    "official verdict": (KEPT, judge(PROBLEMS["math"], OFFICIAL)),
    "unanswerable": (KEPT, judge(UNANSWERABLE)),
    **{f"vote on {domain}": (KEPT, vote(domain)) for domain in types.DOMAINS},
    **{f"metric {name}": (KEPT, partial(official_metric, name)) for name in get_args(Metric)},
    "judge's reply": (KEPT, ask_judge(structured=False)),
    "judge's JSON": (KEPT, ask_judge(structured=True)),
    "judge's copy": (KEPT, copy_out),
    "ranking": (KEPT, grade),
    **{f"reply to {name}": (KEPT, operate(name, reply=True)) for name in OPERATORS},
    **{f"arguments of {name}": (250_000, operate(name, reply=False)) for name in OPERATORS},
    "public test": (KEPT, lambda text: run_assert(Scripted(text).run_code, text, "assert f(1) == 2")),
    "reward": (KEPT, reward),
    "reward of arguments": (2_000_000, compare_calls),
    "log": (KEPT, lambda text: encoded(RolloutEvent(rollout=rollout(text)))),
    "log of a prompt": (KEPT, lambda text: encoded(PromptEvent(problem="p", question=text, user=text, examples=1))),
    "endpoint": (1_000_000, read_response),
}

#: Modules that parse, match or decode only texts of the user or of this package; ``sandbox/test_frames`` is for frames.
OWN_TEXTS = re.compile(
    r"config/.*|data/.*|commands/.*|assembly/.*|policy/.*|integrations/.*|embedded/.*|views/.*|(files|events|errors)\.py"
    r"|evaluation/(analysis|summary)\.py|rl/(buffer|checkpoint|pipeline)\.py|judging/calibration\.py|llm/protocol\.py"
    r"|workflow/(contract|user_file|writing)\.py|sandbox/split_plan\.py"
    r"|answers/(algebra_worker|algebra)\.py|sandbox/guest/.*"
)


def run(reader: Callable[[str], object], text: str) -> None:
    result = reader(text)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def test_every_reader_of_foreign_texts_is_tried() -> None:
    reached: set[str] = set()

    def note(frame: Any, event: str, value: object) -> None:
        reached.add(frame.f_code.co_filename)

    sample = "class Workflow:\n    async def __call__(self, problem):\n        return 'It is \\boxed{5 km}, or 1/2'\n"
    sys.setprofile(note)
    try:
        for _, reader in READERS.values():
            for text in (sample, "5 km", "(A) Paris", "x = 1 or 2", "I don't know"):
                run(reader, text)
    finally:
        sys.setprofile(None)
    matching = re.compile(r"^(?:import|from) (?:re|ast|json|msgspec)\b|quiet_parse", re.MULTILINE)
    modules = [path for path in PACKAGE.rglob("*.py") if matching.search(path.read_text(encoding="utf-8"))]
    left = [path.relative_to(PACKAGE).as_posix() for path in modules if str(path) not in reached]
    assert not [name for name in left if not OWN_TEXTS.fullmatch(name)]


@pytest.mark.parametrize(("part", "tried"), [(32, 2), pytest.param(4, 6, marks=pytest.mark.slow)])
def test_no_text_takes_much_time_or_memory(part: int, tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts are read at a ``part`` of the size, the slowest ones at full size."""
    monkeypatch.setattr(algebra._Worker, "ask", lambda *question: (None, 0.0))  # in a process of its own
    wrong: list[object] = []
    unit = min(seconds(lambda text: [hash(char) for char in text], "x" * 200_000) for _ in range(5))
    for name, (size, reader) in READERS.items():
        run(reader, "warm")
        allowed = UNITS_OF_TIME * unit * max(1, size // KEPT)
        screened = [seconds(reader, text) for text in texts(size // part)]
        slowest = sorted(zip(screened, texts(size), strict=True), key=itemgetter(0))[-tried:]
        for _, text in slowest:
            spent = seconds(reader, text)
            if spent > allowed:  # a busy machine is not the text's fault: the best of three
                spent = min(seconds(reader, text) for _ in range(3))
            tracemalloc.start()
            run(reader, text)
            megabytes = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            if spent > allowed or megabytes > MEGABYTES:
                wrong.append((name, text[:20], text[size // 2 :][:10], f"{spent:.2f} s, {megabytes:.0f} MB"))
    assert not wrong, "\n".join(map(str, wrong))


def seconds(reader: Callable[[str], object], text: str) -> float:
    """CPU time of reading ``text``."""
    begun = time.process_time()
    run(reader, text)
    return time.process_time() - begun
