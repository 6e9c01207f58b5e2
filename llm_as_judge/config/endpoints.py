"""Configuration sections of servers: policy engine, executor and judge."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from llm_as_judge.config.fields import Access, Float, FunctionName, InputPath, Names, Strict, Url, Urls, as_tuple

DEFAULT_API_KEY = "sk-dummy"
#: Fields that a request may do without.
LeftOut = Annotated[tuple[Literal["temperature", "top_p", "seed", "reasoning_effort"], ...], BeforeValidator(as_tuple)]


class ServerConfig(Strict):
    """Connection to an OpenAI-compatible server."""

    base_url: Access[Url] = Field("", description="URL with /v1; empty: own server.")
    api_key: Access[str] = Field(DEFAULT_API_KEY, repr=False, description="Write ${OPENAI_API_KEY}, not the key.")
    timeout_s: Access[Float] = Field(120.0, gt=0, description="Seconds for one request or call of judge.function.")
    max_retries: Access[int] = Field(4, ge=0, description="Retries of a failed request, and of an unreadable reply.")
    concurrency: Access[int] = Field(32, gt=0, description="Most requests of a role in flight; fewer while overloaded.")


class EngineConfig(ServerConfig):
    """The server that samples workflows if ``generation.engine`` is vllm, or also trains the policy if it is tinker."""

    api_key: Access[str] = Field(DEFAULT_API_KEY, repr=False, description="Write ${VLLM_API_KEY}, not the key itself.")
    timeout_s: Access[Float] = Field(600.0, gt=0, description="Seconds for all workflows of one problem.")
    restart_s: Float = Field(300.0, ge=0, description="Seconds to wait for a server to start or restart.")
    gpu_memory_utilization: Float = Field(0.35, gt=0, le=1, description="GPU memory share of the run's own server.")
    gpus: str = Field(
        "",
        pattern=r"^[\w-]+(,[\w-]+)*$|^$",
        description="CUDA devices of its own server, as 1 or 2,3; empty: the policy's.",
    )
    python: str = Field("", description="Python interpreter with vLLM; empty: this one.")
    options: Names = Field((), description="Further vLLM options of the run's own server.")
    price_per_million_input: Float = Field(0.0, ge=0, description="Tinker: price per million tokens read or scored.")
    price_per_million_output: Float = Field(0.0, ge=0, description="Tinker: price per million sampled tokens.")
    price_per_million_training: Float = Field(0.0, ge=0, description="Tinker: price per million trained tokens.")

    def cost(self, read: float, sampled: float, trained: float) -> float:
        """Compute the price of so many tokens of a Tinker server."""
        prices = self.price_per_million_input, self.price_per_million_output, self.price_per_million_training
        return sum(price * tokens for price, tokens in zip(prices, (read, sampled, trained), strict=True)) / 1e6


class EndpointConfig(ServerConfig):
    """An OpenAI-compatible LLM service: the executor's, and extended by ``JudgeConfig`` the judge's."""

    provider: Literal["embedded", "openai", "local"] = Field(
        "embedded",
        description="embedded: the nano model, served by the run or at base_url; openai: the service at base_url; "
        "local: weights in this process, without a server.",
    )
    more_urls: Access[Urls] = Field((), description="Further addresses of the model; the least busy one is used.")
    model: str = Field(
        "nano-executor", min_length=1, description="Model at the service; local: policy, a folder, GGUF file or hub id."
    )
    temperature: Float = Field(0.0, ge=0, description="Sampling temperature.")
    top_p: Float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 = off.")
    max_tokens: int = Field(2048, gt=0, description="Maximum tokens of a reply, including reasoning.")
    context: int = Field(4096, gt=1, description="Maximum tokens of a prompt with its reply, if local.")
    price_per_million_input: Float = Field(0.0, ge=0, description="Price per million prompt tokens.")
    price_per_million_output: Float = Field(0.0, ge=0, description="Price per million completion tokens.")
    reasoning_effort: str = Field("", pattern=r"^[a-z]*$", description="Reasoning effort such as low; empty: not sent.")
    leave_out: LeftOut = Field((), description="Request fields not to send, such as temperature, top_p or seed.")

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Compute the price of so many tokens."""
        return (prompt_tokens * self.price_per_million_input + completion_tokens * self.price_per_million_output) / 1e6

    @model_validator(mode="after")
    def _fits_a_local_model(self) -> "EndpointConfig":
        if self.provider != "local":
            return self
        if of_services := [name for name in ("more_urls", "reasoning_effort", "leave_out") if getattr(self, name)]:
            raise ValueError(f"{of_services[0]} is for a service, and provider=local has none; remove it")
        if self.context <= self.max_tokens:
            raise ValueError(
                f"context={self.context} has no room for a prompt beside a reply of max_tokens={self.max_tokens}; "
                "raise context or lower max_tokens"
            )
        return self


class ExecutorConfig(EndpointConfig):
    description: str = Field("", pattern=r"^.*$", description="Line about it in the prompt, if there are several.")


class JudgeConfig(EndpointConfig):
    mode: Literal["hybrid", "llm", "rules", "metric"] = Field(
        "hybrid",
        description="hybrid: rules accept, the LLM decides the rest; llm: no rules; rules: no LLM; metric: the "
        "benchmark's usual scorer, no LLM.",
    )
    structured: bool = Field(True, description="Request the verdict as JSON, if the server supports it.")
    extract: bool = Field(
        True,
        description="First copy the final answer out of a reply, without the reference; in mode llm too, numbers are "
        "then compared by rules (provider openai).",
    )
    second_model: str = Field("", description="Model name of a second judge, which must accept too; empty = none.")
    second_base_url: Access[Url] = Field("", description="URL of the second judge; empty: the first judge's.")
    prompts: InputPath | None = Field(None, description="YAML file with instructions per dataset; null = built in.")
    function: FunctionName | None = Field(
        None, description="Your own verdict instead of mode: package.module:function or file.py:function."
    )
    rubric: InputPath | None = Field(None, description="YAML file of weighted criteria that the model scores instead.")
    relative: bool = Field(False, description="The model ranks a group's answers instead; evaluations count wins.")
    right_at: Float = Field(1.0, gt=0, le=1, description="Score from which an answer counts as right.")

    @model_validator(mode="after")
    def _one_judge(self) -> "JudgeConfig":
        if (self.function is not None) + (self.rubric is not None) + self.relative > 1:
            raise ValueError("function, rubric and relative each decide alone; set one of them")
        if self.own and self.asks_model and (self.provider == "embedded" or self.second_model):
            cure = "set judge.provider to openai or local, and no judge.second_model"
            raise ValueError(f"{self.own} needs one model that follows instructions, unlike the embedded judge: {cure}")
        return self

    @property
    def own(self) -> str:
        """The setting that decides instead of ``mode``; empty for none."""
        return "function" if self.function else "rubric" if self.rubric else "relative" * self.relative

    @property
    def asks_model(self) -> bool:
        return self.own != "function" if self.own else self.mode in ("hybrid", "llm")
