"""The hand-written engine computes the same as ``Lfm2ForCausalLM``, and the same bits in any batch."""

import random

import pytest
import torch
from transformers import Lfm2ForCausalLM

from llm_as_judge.embedded.engine import Engine, Request
from llm_as_judge.embedded.server import EXECUTOR


@pytest.fixture(scope="module")
def reference() -> Lfm2ForCausalLM:
    model = Lfm2ForCausalLM.from_pretrained(EXECUTOR, dtype=torch.float32)
    return model.eval()


def prompts() -> list[list[int]]:
    g = torch.Generator().manual_seed(0)
    return [torch.randint(5, 1400, (n,), generator=g).tolist() for n in (3, 17, 40, 2, 1, 60)]


def greedy(model: Lfm2ForCausalLM, prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            token = int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
        if token == model.config.eos_token_id:
            break
        ids.append(token)
    return ids[len(prompt) :]


def test_greedy_tokens_equal_transformers(reference: Lfm2ForCausalLM) -> None:
    for slots in (2, 8):
        requests = [Request(p, 10) for p in prompts()]
        Engine(EXECUTOR, slots=slots, max_length=128).generate(requests)
        for request in requests:
            assert request.output == greedy(reference, request.prompt, 10)
            assert request.finish_reason in ("stop", "length")


def test_logits_are_the_same_bits_in_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the seed of a request decides its reply, whatever other requests are decoded with it."""
    draw = random.Random(0)
    shapes = [
        ([draw.randrange(5, 1400) for _ in range(draw.choice((1, 9, 70, 200, 250, 300, 420)))], i) for i in range(40)
    ]
    sample, seen = Engine._sample, {}

    def recorded(logits: torch.Tensor, requests: list[Request]) -> torch.Tensor:
        for row, request in zip(logits, requests, strict=True):
            key = request.seed, len(request.output)
            assert torch.equal(seen.setdefault(key, row.clone()), row)
        return sample(logits, requests)

    monkeypatch.setattr(Engine, "_sample", staticmethod(recorded))
    engine = Engine(EXECUTOR)

    def wanted() -> list[Request]:
        return [Request(prompt, 12, temperature=1.5, seed=seed) for prompt, seed in shapes]

    for request in wanted():
        engine.generate([request])
    alone = len(seen)
    for _ in range(3):
        waiting = wanted()
        draw.shuffle(waiting)
        while waiting or engine.active:
            if waiting and draw.random() < 0.5:
                engine.admit([waiting.pop() for _ in range(min(len(waiting), engine.free, draw.randint(1, 16)))])
            elif engine.active:
                engine.step()
    assert len(seen) == alone > 100


def test_a_repeated_prompt_is_not_forwarded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same result: the test above holds with and without kept prompts."""
    forward, forwarded = Engine._forward, list[int]()

    def counted(self: Engine, prompt: tuple[int, ...]) -> object:
        forwarded.append(len(prompt))
        return forward(self, prompt)

    monkeypatch.setattr(Engine, "_forward", counted)
    engine = Engine(EXECUTOR, slots=4)

    def outputs() -> list[list[int]]:
        requests = [Request([7, 8, 9] * 30, 6, temperature=1.0, seed=seed) for seed in range(6)]
        engine.generate(requests)
        return [request.output for request in requests]

    assert outputs() == outputs() and forwarded == [90]


def test_a_prompt_that_does_not_fit_is_refused_and_an_output_ends_with_the_context() -> None:
    engine = Engine(EXECUTOR, slots=1, max_length=16)
    with pytest.raises(ValueError, match="17 tokens"):
        engine.check(Request([5] * 17, 1))
    request = Request([5] * 12, 100)
    engine.generate([request])
    assert len(request.output) <= 4
