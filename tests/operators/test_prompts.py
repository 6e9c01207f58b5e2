"""Prompts by executor: the nano one's as it was trained on them, all others' with form once and problem last."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, fields

import pytest
from scripted import ARGUMENTS, CODE, Chat, Runner

from llm_as_judge.config.schema import EndpointConfig
from llm_as_judge.operators import catalog
from llm_as_judge.operators.base import Toolbox
from llm_as_judge.operators.prompts import FULL, SHORT, prompts_of

MARK = "ZQX17"
ASKING = [name for name in catalog.OPERATORS if name != "Custom"]


async def prompts(name: str, style: object) -> list[str]:
    """What the operator sends when nothing succeeds; the problem is marked."""
    chat, arguments = Chat("def f(x):\n    return 1"), dict(ARGUMENTS[name])
    arguments["input" if "input" in arguments else "problem"] = MARK
    await catalog.OPERATORS[name](Toolbox(chat, Runner(), CODE, prompts=style), **{})(**arguments)  # type: ignore[arg-type]
    return chat.prompts


def test_the_embedded_executor_has_the_prompts_it_was_trained_on() -> None:
    """Another text here wants another training of the executor."""
    assert prompts_of(EndpointConfig(provider="embedded")) is SHORT
    assert prompts_of(EndpointConfig(provider="openai")) is FULL
    assert (
        hashlib.sha256("\0".join(astuple(SHORT)).encode()).hexdigest()
        == "a24231bcb4bbd7f09985431f714cf1e31d756d62badc7edd53f868151e1946c9"
    )


@pytest.mark.parametrize("name", ASKING)
async def test_the_problem_is_last_and_the_form_said_once(name: str) -> None:
    for prompt in await prompts(name, FULL):
        assert prompt.endswith(f"Problem:\n{MARK}")
        assert prompt.count("and nothing else") == (0 if name == "Format" else 1)


@pytest.mark.parametrize("name", catalog.OPERATORS)
async def test_no_place_of_a_template_is_left_open(name: str) -> None:
    for style in (FULL, SHORT):
        for prompt in await prompts(name, style):
            assert MARK in prompt and "{" not in prompt and "\n\n\n" not in prompt


def test_both_styles_tell_all_there_is() -> None:
    for field in fields(FULL):
        assert getattr(FULL, field.name), field.name
