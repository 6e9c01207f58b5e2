"""Chat requests to ``llm-as-judge serve``: one question, and how the policy samples.

``temperature``, ``top_p`` and ``seed`` apply to the policy, which writes the workflow; the executor keeps its own.
Fields beyond the protocol (``extra_body`` of the OpenAI client): ``domain``, ``context``, ``entry_point``,
``public_tests``. Without ``domain`` the model name decides (``nano:qa``). ``max_tokens`` has no effect, because the
answer is what the workflow returns. Everything unsupported is refused, not ignored.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from llm_as_judge.answers.code import is_name
from llm_as_judge.config.data import DataConfig
from llm_as_judge.errors import ConfigError
from llm_as_judge.llm.protocol import Body, RequestError, Unicode, checked
from llm_as_judge.types import Domain, Question

_UNSUPPORTED = (
    "tools", "functions", "tool_choice", "function_call", "logprobs", "top_logprobs", "logit_bias", "audio",
    "prediction", "web_search_options", "frequency_penalty", "presence_penalty",
)  # fmt: skip
_SPEAKERS = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def _function(name: str) -> str:
    if not is_name(name):
        raise ValueError("not the name of a function")
    return name


def _stops(given: Any) -> Any:
    return [given] if isinstance(given, str) and given else given or []


class ChatBody(Body):
    """The fields that have an effect, or are checked."""

    n: int = Field(1, ge=1, le=16)
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_stops)] = Field([], max_length=16)
    stream: bool = False
    stream_options: dict[str, Any] = Field({})
    modalities: list[Literal["text"]] = Field([])
    domain: Domain | None = None
    context: Unicode = ""
    entry_point: Annotated[str, AfterValidator(_function)] | None = None
    public_tests: tuple[Unicode, ...] = Field((), strict=False)


def read_request(body: Mapping[str, Any], models: Mapping[str, Domain], data: DataConfig) -> tuple[ChatBody, Question]:
    """``models`` are the served names and their domains. Raises ``RequestError``."""
    read = checked(body, ChatBody, models, _UNSUPPORTED)
    turns = [(_SPEAKERS[one.role], one.text) for one in read.messages]
    if turns[-1][0] != "User" or not turns[-1][1].strip():
        raise RequestError("the last message must be the user's and hold the problem; it is another's or empty")
    instructions = [text for speaker, text in turns if speaker == "System"]
    dialogue = [f"{speaker}: {text}" for speaker, text in turns if speaker != "System"]
    # A single message as it is; several as a dialogue, preceded by the instructions.
    text = "\n\n".join([*instructions, *(dialogue if len(dialogue) > 1 else [turns[-1][1]])])
    domain = read.domain or models[read.model]
    try:
        like = data.like(domain)
    except ConfigError as error:
        raise RequestError(str(error)) from None
    return read, Question("request", text, domain, read.context, read.entry_point, read.public_tests, like=like)


def cut_at(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the first of ``stops``."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]
