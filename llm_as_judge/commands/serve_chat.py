"""Chat requests to ``llm-as-judge serve``: one question, and how the policy samples.

``temperature``, ``top_p`` and ``seed`` apply to the policy, which writes the workflow; the executor keeps its own.
Fields beyond the protocol (``extra_body`` of the OpenAI client): ``domain``, ``context``, ``entry_point``,
``public_tests``. Without ``domain`` the model name decides (``nano:qa``). ``max_tokens`` has no effect, because the
answer is what the workflow returns. Everything unsupported is refused, not ignored.
"""

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from llm_as_judge.llm.protocol import BadRequest, NoModel, shown
from llm_as_judge.solver import Draw
from llm_as_judge.types import Domain, Question

_UNSUPPORTED = (
    "tools", "functions", "tool_choice", "function_call", "logprobs", "top_logprobs", "logit_bias", "audio",
    "prediction", "web_search_options", "frequency_penalty", "presence_penalty",
)  # fmt: skip
_SPEAKERS = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeError:
        raise ValueError("the text has invalid characters (lone surrogates)") from None
    return text


Unicode = Annotated[str, AfterValidator(_unicode)]


class Text(BaseModel):
    type: Literal["text"]
    text: Unicode = ""


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Text], BeforeValidator(_parts)]


def _function(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError("not the name of a function")
    return name


def _stops(given: Any) -> Any:
    return [given] if isinstance(given, str) and given else given or []


class Body(BaseModel):
    """The fields of a request that have an effect, or are checked; others are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    messages: list[Message] = Field(min_length=1)
    n: int = Field(1, ge=1, le=16)
    temperature: float | None = Field(None, ge=0, le=10)
    top_p: float | None = Field(None, ge=1e-6, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_stops)] = Field([], max_length=16)
    stream: bool = False
    stream_options: dict[str, Any] = {}
    max_tokens: int = Field(1, ge=1, le=1 << 31)
    max_completion_tokens: int = Field(1, ge=1, le=1 << 31)
    response_format: Text | None = None
    modalities: list[Literal["text"]] = []
    domain: Domain | None = None
    context: Unicode = ""
    entry_point: Annotated[str, AfterValidator(_function)] | None = None
    public_tests: tuple[Unicode, ...] = Field((), strict=False)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    model: str
    question: Question
    draw: Draw
    n: int
    stop: Sequence[str]
    stream: bool
    usage: bool  # at the end of the stream


def read_request(body: Mapping[str, Any], models: Mapping[str, Domain]) -> ChatRequest:
    """``models`` are the served names and their domains. Raises ``BadRequest`` or ``NoModel``."""
    if refused := [name for name in _UNSUPPORTED if body.get(name) and body[name] != "none"]:
        raise BadRequest(f"{', '.join(refused)}: not supported, because the answer is what a workflow returns")
    model = body.get("model")
    if not isinstance(model, str) or model not in models:
        raise NoModel(f"no model {shown(model)} here; use one of {', '.join(models)}")
    try:
        read = Body.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise BadRequest(f"{place}: {reason}, got {shown(first['input'])}") from error
    text, domain = _conversation(read.messages), read.domain or models[model]
    question = Question("request", text, domain, read.context, read.entry_point, read.public_tests)
    draw, usage = Draw(read.temperature, read.top_p, read.seed), read.stream_options.get("include_usage") is True
    return ChatRequest(model, question, draw, read.n, read.stop, read.stream, usage)


def cut_at(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the first of ``stops``."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def _conversation(messages: Sequence[Message]) -> str:
    """A single message as it is; several as a dialogue, preceded by the instructions."""
    turns = [(_SPEAKERS[one.role], "".join(part.text for part in one.content)) for one in messages]
    if turns[-1][0] != "User" or not turns[-1][1].strip():
        raise BadRequest("the last message must be the user's and hold the problem; it is another's or empty")
    instructions = [text for speaker, text in turns if speaker == "System"]
    dialogue = [f"{speaker}: {text}" for speaker, text in turns if speaker != "System"]
    return "\n\n".join([*instructions, *(dialogue if len(dialogue) > 1 else [turns[-1][1]])])
