"""Token ids of a prompt by a model's chat template, and completions from sampled ids.

Some templates refuse or drop a system message, some refuse earlier turns. Text that a template does not accept is
prepended to the next message.
"""

import functools
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray

from llm_as_judge.config.schema import USER_TURN
from llm_as_judge.errors import ConfigError
from llm_as_judge.llm.client import Usage
from llm_as_judge.types import Completion, Prompt

Messages = list[dict[str, str]]
#: Tokens that a user turn leaves to the template and the head of the reply.
_TEMPLATE = 128
_DIMENSIONS = 512  # of vectors of texts
THOUGHTS_END = "</think>"


def chat_ids(tokenizer: Any, prompt: Prompt, thinking: bool = False) -> list[int]:
    """Return token ids up to where the policy begins."""
    prefill = tokenizer.encode(prompt.prefill, add_special_tokens=False) if prompt.prefill else ()
    return [*message_ids(tokenizer, messages_for(tokenizer, prompt), thinking), *map(int, prefill)]


def message_ids(tokenizer: Any, messages: Messages, thinking: bool = False) -> list[int]:
    """Return token ids of a chat; without ``thinking`` it is switched off if the template knows it."""
    options = {"add_generation_prompt": True, "return_dict": False, "enable_thinking": thinking}
    return [int(i) for i in tokenizer.apply_chat_template(messages, tokenize=True, **options)]


def messages_for(tokenizer: Any, prompt: Prompt) -> Messages:
    """Return messages of the chat without its prefill, in the most complete form that the template accepts."""
    return chat_messages(prompt, *_accepts(tokenizer, bool(prompt.turns)))


def chat_messages(prompt: Prompt, system: bool, turns: bool) -> Messages:
    """Return messages with or without a separate system message and separate earlier turns."""
    messages: Messages = []
    before = "" if system else prompt.system
    if system:
        messages.append({"role": "system", "content": prompt.system})
    for request, reply in prompt.turns:
        if turns:
            messages += [{"role": "user", "content": _joined(before, request)}, {"role": "assistant", "content": reply}]
            before = ""
        else:
            before = _joined(before, request, reply)
    return [*messages, {"role": "user", "content": _joined(before, prompt.user)}]


class Encoder(Protocol):
    """A model's token ids of prompts and repair turns, and vectors of texts; its weights may be anywhere."""

    tokenizer: Any
    name: str  # of the model, for messages
    trainable_parameters: Sequence[Any] = ()  # none of a policy that is not in this process
    thinking: bool = False  # before the reply; set together with ``policy.thinking.ThinkingEngine``

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts as unit vectors [N, dimensions]; here by their words, for policies without hidden states."""
        vectors = np.zeros((len(texts), _DIMENSIONS), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.lower().split() or [""]:
                vector[zlib.crc32(word.encode()) % _DIMENSIONS] += 1
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def holding(self, weights: Sequence[Any]) -> AbstractContextManager[None]:
        """Give the adapter other ``weights`` for the block, those of ``trainable_parameters``."""
        return nullcontext()

    def usage(self) -> Mapping[str, Usage]:
        """Return what a service bills for the policy, by role; empty if it runs here."""
        return {}

    def encode(self, prompt: Prompt) -> list[int]:
        """Encode the chat up to where the policy begins. Raises ``ConfigError`` without a chat template."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(f"model.model_name={self.name!r} has no chat template; choose an instruction-tuned model")
        return chat_ids(self.tokenizer, prompt, self.thinking)

    def told(self, completion: Completion, text: str) -> list[int]:
        """Return token ids of ``completion`` and of a user turn with ``text``, up to where the policy begins again."""
        ended = completion.token_ids[-1:] and completion.token_ids[-1] in self.eos_token_ids
        turn = self.user_turn.ids(self.tokenizer, text, completion.prefill, bool(ended))
        return [*completion.prompt_ids, *completion.token_ids, *turn]

    @functools.cached_property
    def user_turn(self) -> "UserTurn":
        """The ids around a user turn. Raises ``ConfigError`` if the chat template has no earlier turns."""
        return UserTurn.of(self.tokenizer, self.eos_token_ids, self.thinking)


@dataclass(frozen=True, slots=True)
class UserTurn:
    """The ids that a model's chat template puts around a user message after a reply.

    They come from the template once; replies and earlier turns stay as they were sampled, because a template may render
    them in another way (Qwen3 leaves out earlier thoughts) and a text has other ids than the sampled ones.
    """

    end: int  # ends a reply that was cut off
    before: tuple[int, ...]  # after the reply's end
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, ends: Collection[int], thinking: bool = False) -> "UserTurn":
        """Raise ``ConfigError`` if the template cannot render a second user message."""
        reply, told = "the first reply", "the second request"
        chat = chat_messages(Prompt("", told, (("the first request", reply),)), False, True)
        if not _renders(tokenizer, chat, [reply, told]):
            raise ConfigError(
                "workflow.repairs needs a chat template with several turns, which this policy's refuses; set "
                "workflow.repairs=0"
            )
        between, after = _rendered(tokenizer, chat, thinking).rpartition(reply)[2].split(told)
        before, behind = (tokenizer.encode(part, add_special_tokens=False) for part in (between, after))
        end = before.pop(0) if before and before[0] in ends else tokenizer.eos_token_id
        return cls(int(end), tuple(map(int, before)), tuple(map(int, behind)))

    def ids(self, tokenizer: Any, text: str, prefill: str, ended: bool) -> list[int]:
        """List ids from a reply's end, which it has itself if it ``ended``, to where the policy begins its next one."""
        for special in filter(None, getattr(tokenizer, "all_special_tokens", ())):
            text = text.replace(special, " ")  # not "": what is around one may be another
        words = [int(i) for i in tokenizer.encode(text, add_special_tokens=False)][: USER_TURN - _TEMPLATE]
        head = tokenizer.encode(prefill, add_special_tokens=False) if prefill else ()
        return [*(() if ended else (self.end,)), *self.before, *words, *self.after, *map(int, head)]


def thinks(tokenizer: Any) -> bool:
    """Tell whether the chat template knows thoughts, and can be told to leave them out."""
    asked = [{"role": "user", "content": "a question"}]
    return _rendered(tokenizer, asked, True) != _rendered(tokenizer, asked, False)


def _rendered(tokenizer: Any, messages: Messages, thinking: bool = False) -> str:
    options = {"add_generation_prompt": True, "tokenize": False, "enable_thinking": thinking}
    return str(tokenizer.apply_chat_template(messages, **options))


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


@functools.lru_cache(maxsize=16)
def _accepts(tokenizer: Any, turns: bool) -> tuple[bool, bool]:
    """Tell whether the template renders a system message and earlier turns: the most complete form that it does."""
    probe = Prompt("probe system", "probe question", (("probe earlier", "probe reply"),) if turns else ())
    for form in ((True, True), (False, True), (True, False), (False, False)):
        messages = chat_messages(probe, *form)
        if _renders(tokenizer, messages, [m["content"] for m in messages]):
            return form
    return False, False


def _renders(tokenizer: Any, messages: Messages, contents: Sequence[str]) -> bool:
    try:
        text = _rendered(tokenizer, messages)
    except (TemplateError, ValueError):
        return False
    return all(content in text for content in contents)


def completion_of(
    tokenizer: Any, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float], stopped: bool, version: int
) -> Completion:
    """Make a completion of sampled ids; if ``stopped``, the last one ends the sequence and is not part of the text."""
    text = text_of(tokenizer, ids[:-1] if stopped else ids)
    return Completion(text, tuple(prompt), tuple(ids), tuple(logprobs), "stop" if stopped else "length", version)


def joined(completion: Completion, prompt: Sequence[int], turn: Completion) -> Completion:
    """Join the episode ``completion`` with a ``turn`` sampled after ``prompt``, which begins with the episode."""
    start = len(completion.prompt_ids)
    given = len(prompt) - start - len(completion.token_ids)
    return replace(
        turn,
        prompt_ids=completion.prompt_ids,
        token_ids=(*prompt[start:], *turn.token_ids),
        logprobs=(*completion.logprobs, *[0.0] * given, *turn.logprobs),
        mask=(*completion.sampled, *[False] * given, *turn.sampled),
        prefill=completion.prefill,
    )


def text_of(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Decode sampled ids without special tokens at either end; inside, they belong to what the policy wrote."""
    text = str(tokenizer.decode(list(token_ids))).strip()
    special = [t for t in getattr(tokenizer, "all_special_tokens", ()) if t]
    while ends := [t for t in special if text.startswith(t) or text.endswith(t)]:
        text = text.removeprefix(ends[0]).removesuffix(ends[0]).strip()
    return text
