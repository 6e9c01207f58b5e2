"""Prompts by chat templates that accept more or less, and text of sampled ids."""

from typing import Any

from jinja2 import Environment

from llm_as_judge.policy.chat import chat_ids, text_of
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
    """A tokenizer with one token per letter."""

    all_special_tokens = ("<eos>", "")

    def __init__(self, template: str = "") -> None:
        environment = Environment()
        environment.globals["raise"] = self._refuse
        self._template = environment.from_string(template)

    def _refuse(self, why: str) -> str:
        raise ValueError(why)

    def encode(self, text: str, **options: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: list[int]) -> str:
        return "".join("<eos>" if i == 0 else chr(i) for i in token_ids)

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, **options: Any) -> Any:
        text = self._template.render(messages=messages, **options)
        return self.encode(text) if tokenize else text


def test_what_a_template_does_not_accept_is_put_in_front_of_the_next_message() -> None:
    rest = "\n<|assistant|>one\n<|user|>Second?\n<|assistant|>two\n<|user|>Third?\n<|assistant|>Well, "
    cases = {
        CHATML: f"<|system|>Rules.\n<|user|>First?{rest}",
        NO_SYSTEM: f"<|user|>Rules.\n\nFirst?{rest}",
        DROPS_SYSTEM: f"<|user|>Rules.\n\nFirst?{rest}",
        LAST_ONLY: "<|user|>Rules.\n\nFirst?\n\none\n\nSecond?\n\ntwo\n\nThird?\n<|assistant|>Well, ",
    }
    found = {template: "".join(map(chr, chat_ids(Letters(template), PROMPT))) for template in cases}
    assert found == cases
    ids = chat_ids(Letters(CHATML), Prompt("", "Only?"))
    assert "".join(map(chr, ids)) == "<|system|>\n<|user|>Only?\n<|assistant|>"


def test_text_has_no_special_tokens_at_its_ends() -> None:
    cases = {
        "x = 1": "x = 1", "x = 1 \0\0\n\0": "x = 1", "\0 x = 1": "x = 1", "s = '\0' + 1": "s = '<eos>' + 1", "\0": "",
        "": "",
    }  # fmt: skip
    assert {written: text_of(Letters(), list(map(ord, written))) for written in cases} == cases
