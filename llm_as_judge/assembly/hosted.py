"""Models of ``provider: local``: executor and judge answered by the policy's base weights or by others, loaded once."""

from functools import partial
from typing import TYPE_CHECKING

from llm_as_judge.config.endpoints import EndpointConfig
from llm_as_judge.config.loading import locate_weights
from llm_as_judge.config.schema import POLICY, Config
from llm_as_judge.errors import ConfigError

if TYPE_CHECKING:
    from llm_as_judge.evaluation.evaluate import PolicyAuthor
    from llm_as_judge.policy.answering import Answerer
    from llm_as_judge.policy.local_server import LocalServer
    from llm_as_judge.policy.model import Policy


class HostedModels:
    """The run's own models by the name that ``executor.model`` or ``judge.model`` gives.

    ``share`` is called when the policy is loaded, before the first request. Without it, as in ``workflow run``, its
    base weights are loaded at the first request.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._author: PolicyAuthor | None = None
        self._policy: Policy | None = None
        self._hosted: dict[str, LocalServer] = {}

    def server(self, endpoint: EndpointConfig) -> "LocalServer":
        """Return the server of ``endpoint.model``, one for all roles that name it, with the largest of their limits."""
        from llm_as_judge.policy.local_server import LocalServer  # here, as it imports torch

        name = endpoint.model
        if name not in self._hosted:
            roles = self._config.local_roles()[name]
            rows, context = max(e.concurrency for e in roles), max(e.context for e in roles)
            load = partial(self._load, name, rows, context)
            self._hosted[name] = LocalServer(name, load, rows, max(e.timeout_s for e in roles))
        return self._hosted[name]

    async def share(self, author: "PolicyAuthor") -> None:
        """Answer for ``policy`` with the author's base weights, or with the vLLM server that it samples from.

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
