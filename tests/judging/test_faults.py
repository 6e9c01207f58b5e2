"""A misbehaving judge server over real HTTP: a verdict, or unscored with a clear reason; never a wrong answer."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from helpers.judging import HYBRID, asked
from helpers.misbehaving import REQUESTS, VERDICT, Misbehaving
from helpers.web import Handler, serving

from llm_as_judge.config.endpoints import EndpointConfig, JudgeConfig
from llm_as_judge.judging.judge import Judge
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.types import Problem, Question, Reference, Verdict

PROBLEM = Problem(Question("p", "How many?", "math", dataset="gsm8k"), Reference(("12",)))
_names = count()
pytestmark = pytest.mark.usefixtures("quick_retries")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Misbehaving) as address:
        yield address


async def judged(
    server: str, behaviour: str, config: JudgeConfig = HYBRID, *, times: int = 1, **settings: Any
) -> tuple[Verdict, list[dict[str, Any]]]:
    """The last verdict on an answer that only a model can judge, and the requests for all."""
    name = f"m{next(_names)}"
    settings = {"timeout_s": 1.0, "max_retries": 2, **settings}
    async with LLMClient(EndpointConfig(base_url=server, model=f"{name}/{behaviour}", **settings)) as llm:
        judge = Judge(config, llm)
        verdicts = [await judge.verdict(PROBLEM, "a baker's dozen less one") for _ in range(times)]
    return verdicts[-1], REQUESTS[name]


PASSING = (
    "true busy+true broken+broken+true silent+true hang_up+true drip+true truncated_body+true empty_length+true "
    "cut_verdict+true truncated_verdict+true reasoning_only+true wrong_word+true"
).split()
LASTING = {
    "busy": "HTTP 429", "broken": "HTTP 500", "silent": "timeout_s", "drip": "timeout_s", "hang_up": "broke off",
    "truncated_body": "not JSON", "unauthorised": "check api_key", "empty_length": "cut off", "cut_verdict": "cut off",
    "truncated_verdict": "no verdict", "reasoning_only": "an empty reply", "wrong_word": "no verdict",
    "too_long": "context",
}  # fmt: skip


async def test_after_a_passing_fault_the_verdict_is_given(server: str) -> None:
    results = await asyncio.gather(*(judged(server, behaviour) for behaviour in PASSING))
    found = {name: (v.correct, v.tier, len(asked)) for name, (v, asked) in zip(PASSING, results, strict=True)}
    assert found == {name: (True, "llm", name.count("+") + 1) for name in PASSING}
    assert (await judged(server, "false"))[0].correct is False
    retried = results[PASSING.index("busy+true")][1]
    assert retried[1]["at"] - retried[0]["at"] >= 0.95, "Retry-After"


async def test_a_lasting_fault_leaves_the_answer_unscored_with_its_reason(server: str) -> None:
    results = await asyncio.gather(*(judged(server, name, max_retries=1) for name in LASTING))
    reasons = {name: (v.correct, v.abstained, v.reason) for name, (v, _) in zip(LASTING, results, strict=True)}
    wrong = [name for name, found in reasons.items() if found[:2] != (None, True) or LASTING[name] not in found[2]]
    assert not wrong, reasons


class _Short(Handler):
    """A judge that reads 700 characters in all, and rambles on over more than 400 of the candidate's."""

    def do_POST(self) -> None:
        prompt = json.loads(self.raw())["messages"][-1]["content"]
        candidate = prompt.partition("Candidate: ")[2].partition("\n")[0]
        if "tabu" in candidate:
            self.send(400, "this request was flagged")
        elif "crash" in candidate:
            self.send(500, "the tokenizer failed")
        elif "mute" in candidate or "secret" in candidate:
            finish = "content_filter" if "secret" in candidate else "stop"
            self.send(200, {"choices": [{"message": {"content": None}, "finish_reason": finish}]})
        elif len(prompt) > 700 or "everything" in prompt:
            self.send(400, "the prompt is longer: this model reads at most 700 tokens")
        else:
            said, finish = (
                (VERDICT.format(candidate.endswith("dozen")), "stop") if len(candidate) < 400 else ("...", "length")
            )
            message = {"role": "assistant", "content": said}
            self.send(200, {"choices": [{"message": message, "finish_reason": finish}], "usage": {"prompt_tokens": 9}})

    do_GET = Misbehaving.do_GET


async def test_no_answer_makes_itself_unscored_by_its_length_or_its_words() -> None:
    wrong = []
    with serving(_Short) as address:
        async with LLMClient(EndpointConfig(base_url=address, max_retries=0)) as llm:
            judge = Judge(HYBRID, llm)
            for answer, right in (
                ("a dozen", True), ("a score", False), ("x " * 900 + "a dozen", True), ("x " * 900, False),
                ("x " * 150 + "a dozen", True), ("x " * 230, False), ("a tabu dozen", False), ("x tabu " * 300, False),
                ("a crash dozen", False), ("a mute dozen", False), ("a secret dozen", False),
            ):  # fmt: skip
                verdict = await judge.verdict(PROBLEM, answer)
                if verdict.correct is not right:
                    wrong.append((answer[-20:], verdict.correct, verdict.reason))
            ours = replace(PROBLEM, question=replace(PROBLEM.question, text="everything " * 90))
            verdict = await judge.verdict(ours, "a dozen")
            assert verdict.correct is None and "700 tokens" in verdict.reason, "the question is too long"
    assert not wrong


async def test_a_server_without_schemas_is_asked_plainly_and_only_once_refuses(server: str) -> None:
    structured = asked(structured=True)
    verdict, requests = await judged(server, "no_schema", structured)
    assert verdict.correct is True
    assert ["response_format" in request for request in requests] == [True, False]
    for behaviour, times in (("schema", 1), ("too_long+schema", 2)):  # too long a prompt is no refusal of schemas
        verdict, requests = await judged(server, behaviour, structured, times=times)
        assert verdict.correct is True
        assert requests[-1]["response_format"]["json_schema"]["schema"]["required"] == ["analysis", "true_false"]


async def test_a_request_has_the_datasets_line_and_the_judges_temperature(server: str) -> None:
    _, requests = await judged(server, "true")
    system = requests[0]["messages"][0]
    assert system["role"] == "system" and "one number" in system["content"] and requests[0]["temperature"] == 0
    config = asked(provider="embedded", temperature=0.4)
    _, requests = await judged(server, "true", config, temperature=0.4)
    assert [[m["role"] for m in r["messages"]] for r in requests] == [["user"]], "no system prompt"
    assert [request["temperature"] for request in requests] == [0.4]
