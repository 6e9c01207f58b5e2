"""The local executor: answers of frozen weights, which depend on nothing but the request."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from helpers.tiny import tiny_policy
from torch import Tensor

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.errors import ConfigError, PromptRefused, ProviderError, RequestRefused
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.llm.concurrency import Places
from llm_as_judge.policy import answering, attention, packed
from llm_as_judge.policy.answering import Answerer, FrozenModel, Request
from llm_as_judge.policy.local import LocalEngine
from llm_as_judge.policy.local_server import LocalServer
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.sampling import Sampling

ROWS = 4


def frozen(policy: Policy) -> FrozenModel:
    off = policy.model.disable_adapter
    return FrozenModel(policy.base, policy.tokenizer, policy.eos_token_ids, policy.packed, off)


def answerer(policy: Policy, context: int = 300) -> Answerer:
    return Answerer(frozen(policy), ROWS, context)


def requests(count: int = 9) -> list[Request]:
    """Prompts of one to 150 tokens; a third is greedy, the others are drawn at two temperatures."""
    draw = random.Random(0)
    return [
        Request(
            [draw.randrange(4, 24) for _ in range(draw.choice((1, 7, 40, 150)))], 5 + 9 * (i % 3), i % 3 / 2, 0.9, i
        )
        for i in range(count)
    ]


def answered(engine: Answerer, wanted: list[Request]) -> dict[int, tuple[list[int], list[Tensor]]]:
    """Tokens and logits of each request, by its seed."""
    seen: dict[int, list[Tensor]] = {r.seed or 0: [] for r in wanted}
    record, waiting, done = engine._record, list(wanted), list[Request]()

    def watched(requests: Sequence[Request], logits: Tensor) -> None:
        for row, request in enumerate(requests):
            seen[request.seed or 0].append(logits[row : row + 1].clone())
        record(requests, logits)

    engine._record = watched  # type: ignore[method-assign]
    while len(done) < len(wanted):
        engine.round(lambda: waiting.pop(0) if waiting else None, done.append)
    engine._record = record  # type: ignore[method-assign]
    return {r.seed or 0: (r.output, seen[r.seed or 0]) for r in done}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("smallest", [0, packed.SMALL_MODEL])  # with and without packed weights
def test_neighbours_change_no_bit(dtype: str, smallest: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SMALL_MODEL", smallest)
    policy = tiny_policy(perturb=0.1, hidden=64, dtype=dtype, device=device)
    assert policy.packed.wanted is (smallest == 0 and device == "cpu")
    engine = answerer(policy)
    together, shuffled = answered(engine, requests()), requests()
    random.Random(1).shuffle(shuffled)
    otherwise = answered(engine, shuffled)
    for one in requests():
        alone = answered(engine, [one])[one.seed or 0]
        for other in (together[one.seed or 0], otherwise[one.seed or 0]):
            assert alone[0] == other[0]
            assert all(torch.equal(a, b) for a, b in zip(alone[1], other[1], strict=True))


def test_steps_have_only_numbers_of_rows_that_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, tried = Answerer._forward, []

    def rounded(self: Answerer, size: int) -> Tensor:
        """As kernels would that sum in another order for two rows."""
        tried.append(size)
        return forward(self, ROWS)[:size] * (1 + 1e-5 * (size == 2))

    monkeypatch.setattr(Answerer, "_forward", rounded)
    engine = answerer(tiny_policy())
    assert engine.sizes == (*(size for size in (1, 2, 4, 8, 16) if size < ROWS and size != 2), ROWS)
    tried.clear()
    answered(engine, [Request([5, 6, 7], 20, seed=0)])
    assert {*tried} == {1}, "one request takes the smallest step"


def test_answers_are_the_base_models_own_whatever_the_adapter_is() -> None:
    prompt = [5, 9, 11, 6]
    bare, trained = tiny_policy(), tiny_policy(perturb=0.5)
    greedy = LocalEngine(bare, bare.tokenizer).generate([prompt], 1, sampling=Sampling(0.0), max_new_tokens=12)[0][0]
    moved = LocalEngine(trained, trained.tokenizer).generate([prompt], 1, sampling=Sampling(0.0), max_new_tokens=12)
    request = Request(prompt, 12, seed=0)
    answered(answerer(trained), [request])
    assert request.output == list(greedy.token_ids)
    assert request.output != list(moved[0][0].token_ids), "the adapter must matter, or this test shows nothing"
    assert trained.model.training and trained.base.config._attn_implementation != attention.DECODE


def test_packed_weights_compute_the_same_and_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SMALL_MODEL", 0)
    policy = tiny_policy(perturb=0.1)
    if not policy.packed.wanted:
        pytest.skip("this build of torch has no packed weights")
    ids = torch.tensor([[4, 5, 6, 7]])
    with torch.no_grad():
        before = policy.base(input_ids=ids).logits
        with policy.packed.used():
            inside = policy.base(input_ids=ids).logits
        after = policy.base(input_ids=ids).logits
    assert torch.allclose(before, inside, atol=1e-5) and torch.equal(before, after)
    assert len(policy.packed._forward) == 15, "seven frozen layers in each of two blocks, and the head"
    assert not [m for m in policy.base.modules() if "forward" in vars(m)]


def test_what_cannot_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = tiny_policy(more={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0})
    with pytest.raises(ConfigError, match="attends to a window of 8 tokens"):
        answerer(windowed, context=64)
    with pytest.raises(ConfigError, match="context=513: qwen2 reads at most 512 tokens"):
        answerer(tiny_policy(), context=513)
    monkeypatch.setattr(answering.Cache, "attend", lambda cache, layer, query, *more: query.transpose(1, 2))
    with pytest.raises(ConfigError, match="provider=local would answer with qwen2 wrongly"):
        answerer(tiny_policy())


@contextlib.asynccontextmanager
async def served(policy: Policy, timeout_s: float = 60, **settings: Any) -> Any:
    server = LocalServer("policy", lambda: answerer(policy), ROWS, timeout_s)
    values = {"provider": "local", "model": "policy", "max_tokens": 6, **settings}
    async with LLMClient(EndpointConfig(**values), [server]) as client:
        yield client


async def test_replies_have_the_form_of_a_servers() -> None:
    async with served(tiny_policy()) as client:
        reply = await client.chat("5 6 7")
        ended = reply.finish_reason == "stop"
        assert reply.prompt_tokens == 5 and len(reply.reply.split()) == reply.completion_tokens - ended
        assert ended or (reply.finish_reason, reply.completion_tokens) == ("length", 6)
        sampled = [await client.chat("5 6 7", temperature=2.0, seed=seed) for seed in (1, 1, 2, 3, 4)]
        assert sampled[0].reply == sampled[1].reply and len({r.reply for r in sampled}) > 1
        unseeded = [(await client.chat("5 6 7", temperature=2.0)).reply for _ in range(6)]
        assert len(set(unseeded)) > 1, "without a seed every reply is drawn anew"
        assert (await client.chat("5 6 7", max_tokens=2)).completion_tokens <= 2
        with pytest.raises(RequestRefused, match="response_format: not supported"):
            await client.chat("5", response_format={"type": "json_object"})
        with pytest.raises(PromptRefused, match=r"has 402 tokens, it reads at most 299; raise executor.context"):
            await client.chat("5 " * 400)
        assert client.usage.calls == 12 and client.usage.cached == 1 and client.usage.failed == 2


async def test_any_number_of_requests_wait_for_rows() -> None:
    async with served(tiny_policy(perturb=0.2)) as client:
        asked = [client.chat(f"{i} 5 6", temperature=1.0, seed=i) for i in range(3 * ROWS)]
        together = await asyncio.gather(*asked)
    async with served(tiny_policy(perturb=0.2)) as client:
        apart = [await client.chat(f"{i} 5 6", temperature=1.0, seed=i) for i in reversed(range(3 * ROWS))]
    assert [r.reply for r in together] == [r.reply for r in reversed(apart)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """The seconds that decoding reads, and how many pass at each reading."""
    state = {"now": 0.0, "each": 0.0}

    def monotonic() -> float:
        state["now"] += state["each"]
        return state["now"]

    monkeypatch.setattr(answering, "time", type("Time", (), {"monotonic": staticmethod(monotonic)}))
    yield state


async def test_time_limits_count_decoding_alone(clock: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, rounds = Answerer.round, list[float]()

    def followed_by_an_update(self: Answerer, *arguments: Any) -> None:
        plain(self, *arguments)
        rounds.append(clock["now"])
        clock["now"] += 1000

    monkeypatch.setattr(answering, "_ROUND_STEPS", 2)
    async with served(tiny_policy(), timeout_s=100) as client:
        monkeypatch.setattr(Answerer, "round", followed_by_an_update)
        assert (await client.chat("5 6")).completion_tokens == 6 and len(rounds) >= 2
        clock["each"] = 30
        with pytest.raises(ProviderError, match=r"took \d+ s of decoding; raise timeout_s=100"):
            await client.chat("5 6 7 8")


async def test_a_failure_of_the_device_fails_its_requests_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tiny_policy()) as client:
        await client.chat("5 6")
        step, broken = Answerer._step, [RuntimeError("CUDA error"), RuntimeError("out of memory")]

        def failing(self: Answerer) -> Tensor:
            if broken:
                raise broken.pop(0)
            return step(self)

        monkeypatch.setattr(Answerer, "_step", failing)
        with pytest.raises(ProviderError, match="CUDA error"):
            await client.chat("6 7 8 9")
        with pytest.raises(ProviderError, match=r"out of memory; lower executor\.concurrency"):
            await client.chat("6 7 8 10")
        assert (await client.chat("6 7 8 11")).completion_tokens


def test_rows_that_nothing_uses_do_not_grow() -> None:
    engine = answerer(tiny_policy())
    for number in range(12):
        answered(engine, [Request([5 + number, 6], 20, seed=number)])
    assert not engine._cache.lengths.any() and engine._cache._layers[0][0].shape[2] == 64


def test_answering_first_leaves_the_adapter_to_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off, an adapter looks frozen: packed with the base, it would sample with old weights."""
    monkeypatch.setattr(packed, "SMALL_MODEL", 0)
    policy = tiny_policy()
    answered(answerer(policy), [Request([5, 6], 3, seed=0)])
    moved = tiny_policy(perturb=0.5)
    for own, other in zip(policy.trainable_parameters, moved.trainable_parameters, strict=True):
        own.data.copy_(other.data)
    drawn = [
        LocalEngine(one, one.tokenizer).generate([[5, 9, 11]], 1, sampling=Sampling(0.0), max_new_tokens=12)[0][0]
        for one in (policy, moved)
    ]
    assert drawn[0].token_ids == drawn[1].token_ids


async def test_weights_that_cannot_answer_are_a_fault_of_ours_and_never_the_workflows() -> None:
    def load() -> Answerer:
        raise ConfigError("no weights here")

    server = LocalServer("policy", load, ROWS)
    with pytest.raises(ConfigError, match="no weights here"):
        await server.open()
    async with LLMClient(EndpointConfig(provider="local", model="policy"), [server]) as client:
        with pytest.raises(ProviderError, match="no weights here"):
            await client.chat("5 6")


async def test_a_policy_that_is_sampled_on_a_server_answers_there_under_its_name() -> None:
    seen = list[dict[str, Any]]()

    class Elsewhere:
        root, places = "elsewhere", Places(3)

        async def ask(self, path: str, body: Any, parse: Callable[[str], Any], who: str = "") -> Any:
            seen.append(body)
            return parse(path)

        async def aclose(self) -> None:
            seen.clear()

    server, elsewhere = LocalServer("policy", lambda: answerer(tiny_policy()), ROWS), Elsewhere()
    server.move(elsewhere, "tiny/model")
    assert await server.ask("/chat/completions", {"model": "policy", "max_tokens": 3}, str) == "/chat/completions"
    assert (seen[0]["model"], seen[0]["max_tokens"], server.places) == ("tiny/model", 3, elsewhere.places)
    assert seen[0]["chat_template_kwargs"] == {"enable_thinking": False}
    await server.aclose()
    assert not seen


async def test_closing_cancels_requests_under_way() -> None:
    server = LocalServer("policy", lambda: answerer(tiny_policy()), ROWS)
    body = {"messages": [{"role": "user", "content": "5 6"}], "temperature": 0, "max_tokens": 200}
    asked = [asyncio.ensure_future(server.ask("/chat/completions", body, str)) for _ in range(2 * ROWS)]
    await server.open()
    while server._rounds is None:
        await asyncio.sleep(0)
    await server.aclose()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert any(isinstance(one, asyncio.CancelledError) for one in done)


async def test_texts_with_lone_surrogates_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    template = policy.tokenizer.apply_chat_template

    def strict(messages: list[dict[str, str]], **options: Any) -> Any:
        assert all(message["content"].encode() for message in messages)
        return template(messages, **options)

    monkeypatch.setattr(policy.tokenizer, "apply_chat_template", strict)
    async with served(policy) as client:
        assert (await client.chat("5 \ud800 6")).completion_tokens
