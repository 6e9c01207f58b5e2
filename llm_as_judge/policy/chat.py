"""Token ids of a prompt by a model's chat template, and completions from sampled ids.

Some templates refuse or drop a system message, some refuse earlier turns. Text that a template does not accept is
prepended to the next message.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal

from jinja2 import TemplateError

from llm_as_judge.types import Completion, Prompt

Messages = list[dict[str, str]]


def chat_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids up to where the policy begins; thinking is switched off if the template supports that."""
    ids = tokenizer.apply_chat_template(
        messages_for(tokenizer, prompt),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        enable_thinking=False,
    )
    prefill = tokenizer.encode(prompt.prefill, add_special_tokens=False) if prompt.prefill else ()
    return [int(i) for i in (*ids, *prefill)]


def messages_for(tokenizer: Any, prompt: Prompt) -> Messages:
    """Messages of the chat without its prefill, in the most complete form that the template accepts."""
    return chat_messages(prompt, *_accepts(tokenizer, bool(prompt.turns)))


def chat_messages(prompt: Prompt, system: bool, turns: bool) -> Messages:
    """Messages with or without a separate system message and separate earlier turns."""
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


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


@functools.lru_cache(maxsize=16)
def _accepts(tokenizer: Any, turns: bool) -> tuple[bool, bool]:
    """Whether the template renders a system message and earlier turns: the most complete form that it does."""
    probe = Prompt("probe system", "probe question", (("probe earlier", "probe reply"),) if turns else ())
    for form in ((True, True), (False, True), (True, False), (False, False)):
        messages = chat_messages(probe, *form)
        if _renders(tokenizer, messages, [m["content"] for m in messages]):
            return form
    return False, False


def _renders(tokenizer: Any, messages: Messages, contents: Sequence[str]) -> bool:
    try:
        text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except (TemplateError, ValueError):
        return False
    return all(content in text for content in contents)


def completion_of(
    tokenizer: Any, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float], stopped: bool, version: int
) -> Completion:
    """Completion from sampled ids; if ``stopped``, the last one ends the sequence and is not part of the text."""
    text = text_of(tokenizer, ids[:-1] if stopped else ids)
    reason: Literal["stop", "length"] = "stop" if stopped else "length"
    return Completion(text, tuple(prompt), tuple(ids), tuple(logprobs), reason, version)


def text_of(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Text of sampled ids without special tokens at either end; inside, they belong to what the policy wrote."""
    text = str(tokenizer.decode(list(token_ids))).strip()
    special = [t for t in getattr(tokenizer, "all_special_tokens", ()) if t]
    while ends := [t for t in special if text.startswith(t) or text.endswith(t)]:
        text = text.removeprefix(ends[0]).removesuffix(ends[0]).strip()
    return text
