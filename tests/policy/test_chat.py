"""A prompt by chat templates that take more and less."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import Environment

from llm_as_judge.policy.chat import chat_ids
from llm_as_judge.types import Prompt

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise('no system role') }}{% endif %}" + CHATML
DROPS_SYSTEM = CHATML.replace("in messages %}", "in messages if m.role != 'system' %}")
LAST_ONLY = CHATML.replace("in messages %}", "in messages[-1:] %}")
PROMPT = Prompt("Rules.", "Third?", (("First?", "one"), ("Second?", "two")), "Well, ")


class Letters:
    """A token is a letter."""

    def __init__(self, template: str) -> None:
        environment = Environment()
        environment.globals["raise"] = self._refuse
        self._template = environment.from_string(template)

    def _refuse(self, why: str) -> str:
        raise ValueError(why)

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **options: Any) -> Any:
        text = self._template.render(messages=messages, **options)
        return self.encode(text) if tokenize else text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            CHATML,
            "<|system|>Rules.\n<|user|>First?\n<|assistant|>one\n<|user|>Second?\n<|assistant|>two\n"
            "<|user|>Third?\n<|assistant|>Well, ",
        ),
        (
            NO_SYSTEM,
            "<|user|>Rules.\n\nFirst?\n<|assistant|>one\n<|user|>Second?\n<|assistant|>two\n"
            "<|user|>Third?\n<|assistant|>Well, ",
        ),
        (
            DROPS_SYSTEM,
            "<|user|>Rules.\n\nFirst?\n<|assistant|>one\n<|user|>Second?\n<|assistant|>two\n"
            "<|user|>Third?\n<|assistant|>Well, ",
        ),
        (
            LAST_ONLY,
            "<|user|>Rules.\n\nFirst?\n\none\n\nSecond?\n\ntwo\n\nThird?\n<|assistant|>Well, ",
        ),
    ],
    ids=["all", "no system", "drops system", "last message only"],
)
def test_what_a_template_does_not_take_is_told_in_the_next_message(template: str, text: str) -> None:
    assert "".join(map(chr, chat_ids(Letters(template), PROMPT))) == text


def test_a_prompt_of_two_messages_stays_as_it_is() -> None:
    ids = chat_ids(Letters(CHATML), Prompt("", "Only?"))
    assert "".join(map(chr, ids)) == "<|system|>\n<|user|>Only?\n<|assistant|>"
