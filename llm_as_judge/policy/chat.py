"""A prompt as token ids, by the chat template of a model.

Templates differ in what they take: some refuse or drop a system message, some refuse earlier turns. What a template
does not take is told within the next message that it does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from llm_as_judge.types import Prompt

Messages = list[dict[str, str]]


def chat_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Ids up to where the policy begins; thinking is off where the template knows the switch."""
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
    """The chat without its prefill, in the fullest form that the model's template takes."""
    return chat_messages(prompt, *_takes(tokenizer, bool(prompt.turns)))


def chat_messages(prompt: Prompt, system: bool, turns: bool) -> Messages:
    """With or without a system message and earlier turns; what has no message of its own comes first in the next."""
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
def _takes(tokenizer: Any, turns: bool) -> tuple[bool, bool]:
    """Whether the template shows a system message and earlier turns; the fullest form that it does."""
    probe = Prompt("probe system", "probe question", (("probe earlier", "probe reply"),) if turns else ())
    for form in ((True, True), (False, True), (True, False), (False, False)):
        messages = chat_messages(probe, *form)
        if _shows(tokenizer, messages, [m["content"] for m in messages]):
            return form
    return False, False


def _shows(tokenizer: Any, messages: Messages, contents: Sequence[str]) -> bool:
    try:
        text = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except (TemplateError, ValueError):
        return False
    return all(content in text for content in contents)
