"""Models of ``provider: local``: executor and judge answered by the policy's base weights or by others, loaded once."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import POLICY, Config
from llm_as_judge.errors import ConfigError
from llm_as_judge.llm.client import Server
from llm_as_judge.llm.places import Places

if TYPE_CHECKING:
    from llm_as_judge.evaluation.evaluate import PolicyAuthor
    from llm_as_judge.policy.answering import Answerer
    from llm_as_judge.policy.local_server import LocalServer
    from llm_as_judge.policy.model import Policy

T = TypeVar("T")


class HostedModels:
    """The run's own models by the name that ``executor.model`` or ``judge.model`` gives.

    ``share`` is called when the policy is loaded, before the first request. Without it, as in ``workflow run``, its
    base weights are loaded at the first request.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._author: PolicyAuthor | None = None
        self._policy: Policy | None = None
        self._hosted: dict[str, _Hosted] = {}

    def server(self, endpoint: EndpointConfig) -> "_Hosted":
        """The server of ``endpoint.model``, one for all roles that name it."""
        from llm_as_judge.policy.local_server import LocalServer  # here, as it imports torch

        name = endpoint.model
        if name not in self._hosted:
            roles = self._config.answered_by(name)
            rows, context = max(e.concurrency for e in roles), max(e.context for e in roles)
            load = partial(self._load, name, rows, context)
            timeout_s = max(e.timeout_s for e in roles)
            self._hosted[name] = _Hosted(LocalServer(name, load, rows, timeout_s))
        return self._hosted[name]

    async def share(self, author: "PolicyAuthor") -> None:
        """Answers for ``policy`` with the author's base weights, or with the vLLM server that it samples from.

        Raises ``ConfigError`` if the weights cannot answer.
        """
        if POLICY not in self._hosted:
            return
        from llm_as_judge.llm.transport import Transport
        from llm_as_judge.policy.model import Policy
        from llm_as_judge.policy.thinking import ThinkingEngine
        from llm_as_judge.policy.vllm import VLLMEngine

        self._author = author  # kept: the author's server ends with it
        self._policy = author.policy if isinstance(author.policy, Policy) else None
        engine = author.engine.engine if isinstance(author.engine, ThinkingEngine) else author.engine
        if isinstance(engine, VLLMEngine):
            self._hosted[POLICY].move(Transport(engine.config), self._config.base_model.path)
        else:
            await self._hosted[POLICY].open()

    def _load(self, name: str, rows: int, context: int) -> "Answerer":
        from llm_as_judge.assembly.policy import load_policy
        from llm_as_judge.policy.answering import Answerer, FrozenModel
        from llm_as_judge.policy.device import resolve_device, resolve_dtype
        from llm_as_judge.policy.packed import PackedLinears
        from llm_as_judge.policy.weights import end_ids, load_model

        config = self._config
        if name == POLICY:
            policy = self._policy = self._policy or load_policy(config)
            off = policy.model.disable_adapter
            frozen = FrozenModel(policy.base, policy.tokenizer, policy.eos_token_ids, policy.packed, off)
        else:
            device = resolve_device(config.model.device)
            tokenizer, base = load_model(locate_weights(name), config.model.dtype, f"executor or judge model {name!r}")
            base = base.to(device=device, dtype=resolve_dtype(config.model.dtype, device, base.num_parameters()))
            base.requires_grad_(False)
            frozen = FrozenModel(base, tokenizer, end_ids(base.generation_config, tokenizer), PackedLinears(base))
        if not getattr(frozen.tokenizer, "chat_template", None):
            raise ConfigError(f"model {name!r} has no chat template; choose an instruction-tuned model")
        return Answerer(frozen, rows, context)


class _Hosted:
    """A server that ``move`` may replace before its first request."""

    def __init__(self, local: "LocalServer") -> None:
        self.root = local.root
        self._server: Server = local
        self._local = local
        self._model = ""

    async def open(self) -> None:
        """Loads the weights of this process. Raises ``ConfigError`` if they cannot be used."""
        await self._local.open()

    def move(self, server: Server, model: str) -> None:
        """Sends all requests to ``server``, which knows the model as ``model``."""
        self._server, self._model = server, model

    @property
    def places(self) -> Places:
        return self._server.places

    async def aclose(self) -> None:
        for server in {self._local, self._server}:
            await server.aclose()

    async def get(self, path: str, parse: Callable[[str], T], who: str = "") -> T:
        return await self._server.get(path, parse, who)

    async def post(self, path: str, body: Mapping[str, Any] | None, parse: Callable[[str], T], who: str = "") -> T:
        if self._model:
            body = {**(body or {}), "model": self._model, "chat_template_kwargs": {"enable_thinking": False}}
        return await self._server.post(path, body, parse, who)
