"""Thoughts before the workflow, for policies whose chat template knows them (Qwen3), within a limit of tokens.

Thoughts that reach the limit are closed by force, as in Qwen's documentation of a thinking budget; the closing text is
given, so it is not trained on. Thoughts are sampled, trained on and kept in later turns like the rest of a reply.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from llm_as_judge.errors import ConfigError
from llm_as_judge.policy.chat import THOUGHTS_END, joined, text_of, thinks
from llm_as_judge.policy.sampling import PLAIN, Sampling
from llm_as_judge.types import Completion, OnCompletion

#: What closes thoughts that are too long (Qwen's documentation).
_CLOSING = (
    "\n\nConsidering the limited time by the user, I have to give the solution based on the thinking directly now.\n"
    f"{THOUGHTS_END}\n\n"
)


class ThinkingEngine:
    """Samples by ``engine`` up to ``limit`` tokens of thoughts, then up to ``max_new_tokens`` of the reply."""

    def __init__(self, engine: Any, tokenizer: Any, limit: int) -> None:
        """Raise ``ConfigError`` if the chat template knows no thoughts."""
        if not thinks(tokenizer):
            raise ConfigError("generation.thinking: the policy's chat template knows no thinking; set it to false")
        self.engine, self.limit, self._tokenizer = engine, limit, tokenizer
        self._closing = [int(i) for i in tokenizer.encode(_CLOSING, add_special_tokens=False)]

    def sync(self, policy: object, version: int) -> None:
        self.engine.sync(policy, version)

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int = 1, *, sampling: Sampling = PLAIN, max_new_tokens: int = 1024,
        seed: int = 0, on_completion: OnCompletion | None = None,
    ) -> list[list[Completion]]:  # fmt: skip
        """Sample as ``LocalEngine.generate``; a reply that goes on after the limit is sampled in a second pass."""
        groups: list[list[Completion]] = self.engine.generate(
            prompts, n, sampling=sampling, max_new_tokens=self.limit, seed=seed
        )
        places = [(i, k) for i, group in enumerate(groups) for k, c in enumerate(group) if c.finish_reason == "length"]
        if places:
            begun = [groups[i][k] for i, k in places]
            going = [[*c.prompt_ids, *c.token_ids, *(() if THOUGHTS_END in c.text else self._closing)] for c in begun]
            # Any other seed: the first pass has used the noise of this one.
            rest = self.engine.generate(going, 1, sampling=sampling, max_new_tokens=max_new_tokens, seed=seed + 1)
            for (i, k), first, prompt, (last,) in zip(places, begun, going, rest, strict=True):
                whole = joined(first, prompt, last)
                ids = whole.token_ids[:-1] if whole.finish_reason == "stop" else whole.token_ids
                groups[i][k] = replace(whole, text=text_of(self._tokenizer, ids))
        for i, group in enumerate(groups):
            for k, completion in enumerate(group):
                if on_completion is not None:
                    on_completion(i, k, completion)
        return groups
