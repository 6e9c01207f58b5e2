"""Chat requests to ``llm-as-judge serve``: one question, and how the policy samples.

``temperature``, ``top_p`` and ``seed`` apply to the policy, which writes the workflow; the executor keeps its own.
Fields beyond the protocol (``extra_body`` of the OpenAI client): ``domain``, ``context``, ``entry_point``,
``public_tests``. Without ``domain`` the model name decides (``nano:qa``). ``max_tokens`` has no effect, because the
answer is what the workflow returns. Everything unsupported is refused, not ignored.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_as_judge.llm.protocol import BadRequest, NoModel, number, seed_of, shown
from llm_as_judge.solver import Draw
from llm_as_judge.types import DOMAINS, Domain, Question

_UNSUPPORTED = (
    "tools", "functions", "tool_choice", "function_call", "logprobs", "top_logprobs", "logit_bias", "audio",
    "prediction", "web_search_options", "frequency_penalty", "presence_penalty",
)  # fmt: skip
_SPEAKERS = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}
_MOST_CHOICES = 16
_MOST_STOPS = 16


@dataclass(frozen=True, slots=True)
class ChatRequest:
    model: str
    question: Question
    draw: Draw
    n: int
    stop: tuple[str, ...]
    stream: bool
    usage: bool  # at the end of the stream


def read_request(body: Mapping[str, Any], models: Mapping[str, Domain]) -> ChatRequest:
    """``models`` are the served names and their domains. Raises ``BadRequest`` or ``NoModel``."""
    refused = [name for name in _UNSUPPORTED if body.get(name) and body[name] != "none"]
    if body.get("response_format") not in (None, {"type": "text"}):
        refused.append("response_format")
    if body.get("modalities") not in (None, ["text"]):
        refused.append("modalities")
    if refused:
        raise BadRequest(f"{', '.join(refused)}: not supported, because the answer is what a workflow returns")
    model = body.get("model")
    if not isinstance(model, str) or model not in models:
        raise NoModel(f"no model {shown(model)} here; use one of {', '.join(models)}")
    stream, options = body.get("stream") or False, body.get("stream_options") or {}
    if not isinstance(stream, bool) or not isinstance(options, dict):
        raise BadRequest("stream must be true or false, stream_options an object")
    count = number(body, "n", 1, 1, _MOST_CHOICES)
    for name in ("max_tokens", "max_completion_tokens"):
        number(body, name, 1, 1, 1 << 31)
    if count != int(count):
        raise BadRequest(f"n must be a whole number, got {count}")
    draw = Draw(
        None if body.get("temperature") is None else number(body, "temperature", 0, 0, 10),
        None if body.get("top_p") is None else number(body, "top_p", 1, 1e-6, 1),
        seed_of(body),
    )
    question = _question(body, models[model])
    return ChatRequest(model, question, draw, int(count), _stops(body), stream, options.get("include_usage") is True)


def cut_at(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the first of ``stops``."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > _MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise BadRequest(f"stop must be a text or a list of at most {_MOST_STOPS} texts, got {shown(stop)}")
    return tuple(stops)


def _question(body: Mapping[str, Any], domain: Domain) -> Question:
    given, entry, tests = body.get("domain", domain), body.get("entry_point"), body.get("public_tests") or []
    if given not in DOMAINS:
        raise BadRequest(f"domain must be one of {', '.join(DOMAINS)}, got {shown(given)}")
    if entry is not None and (not isinstance(entry, str) or not entry.isidentifier() or keyword.iskeyword(entry)):
        raise BadRequest(f"entry_point must be the name of a function, got {shown(entry)}")
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise BadRequest(f"public_tests must be a list of assert statements, got {shown(tests)}")
    context = body.get("context") or ""
    if not isinstance(context, str):
        raise BadRequest(f"context must be text, got {shown(context)}")
    text = _conversation(body.get("messages"))
    for part in (text, context, *tests):
        try:
            part.encode()
        except UnicodeError as error:
            raise BadRequest("the text has invalid characters (lone surrogates)") from error
    return Question("request", text, given, context, entry, tuple(tests))


def _conversation(messages: object) -> str:
    """A single message as it is; several as a dialogue, preceded by the instructions."""
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list with at least one message")
    turns = [(_role(message), _text(message)) for message in messages]
    if turns[-1][0] != "User":
        raise BadRequest("the last message must be the user's: it is the problem")
    if not turns[-1][1].strip():
        raise BadRequest("the last message is empty; it must hold the problem")
    instructions = [text for role, text in turns if role == "System"]
    dialogue = [(role, text) for role, text in turns if role != "System"]
    if len(dialogue) == 1:
        return "\n\n".join([*instructions, dialogue[0][1]])
    return "\n\n".join([*instructions, *(f"{role}: {text}" for role, text in dialogue)])


def _role(message: object) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise BadRequest(f"a message needs a role ({', '.join(_SPEAKERS)}), got {shown(message)}")
    return _SPEAKERS[role]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise BadRequest(f"a message needs text content, got {shown(message)}")
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise BadRequest(f"content may hold text only, got {shown(part)}")
    return "".join(part["text"] for part in parts)
