"""The models behind the configured endpoints, and the judge that asks them; nothing here needs torch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from llm_as_judge.cache import ResponseCache
from llm_as_judge.config.schema import Config, EndpointConfig, JudgeConfig
from llm_as_judge.embedded.supervise import EmbeddedServer
from llm_as_judge.judging.judge import Judge
from llm_as_judge.llm import LLMClient


def open_client(endpoint: EndpointConfig, cache: Path | None = None) -> LLMClient:
    """A client of ``endpoint`` whose deterministic replies are kept in ``cache`` (None: in memory)."""
    return LLMClient(endpoint, ResponseCache(cache))


@asynccontextmanager
async def open_judge(config: Config) -> AsyncIterator[Judge]:
    """The configured judge alone, without a sandbox: it cannot judge code. Raises ``ProviderError``."""
    settings = config.judge
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = second = None
        if settings.mode != "rules":
            if settings.provider == "embedded":
                config.output.log_dir.mkdir(parents=True, exist_ok=True)
                await enter(EmbeddedServer(settings.base_url, config.output.log_dir / "embedded_server.log"))
            model, second = await enter(open_client(settings, settings.cache)), await second_client(settings, stack)
            await model.check()
        yield Judge(settings, model, second=second)


async def second_client(judge: JudgeConfig, stack: AsyncExitStack) -> LLMClient | None:
    """The client of the second judge, checked; None where none is configured."""
    if not judge.second_model or judge.mode == "rules":
        return None
    changed = {"model": judge.second_model, "base_url": judge.second_base_url or judge.base_url}
    client = await stack.enter_async_context(open_client(judge.model_copy(update=changed), judge.cache))
    await client.check()
    return client
