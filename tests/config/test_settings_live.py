"""No setting is dead: a run reads every setting."""

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from helpers.finished import EMBEDDED
from helpers.processes import free_port
from helpers.tinker_server import World, tinker_server
from pydantic import BaseModel, create_model

import llm_as_judge
from llm_as_judge.assembly.policy import load_author
from llm_as_judge.assembly.problems import open_problems
from llm_as_judge.assembly.services import open_judge, open_services
from llm_as_judge.commands.train import run_training
from llm_as_judge.commands.warmup import run_warmup
from llm_as_judge.config.loading import load_config
from llm_as_judge.config.schema import LEAVES, SECTIONS, Config, ModelConfig
from llm_as_judge.errors import ConfigError, ProviderError
from llm_as_judge.judging.llm_judge import LLMJudge
from llm_as_judge.judging.own import OwnJudge
from llm_as_judge.llm.client import LLMClient
from llm_as_judge.policy.model import Policy
from llm_as_judge.policy.tinker import TinkerPolicy
from llm_as_judge.policy.vllm import VLLMEngine
from llm_as_judge.types import Question
from llm_as_judge.workflow.prompt import Layer1
from llm_as_judge.workflow.shapes import SHAPES, workflow

PACKAGE = llm_as_judge.__name__
SCHEMA = (f"{PACKAGE}.config.schema", f"{PACKAGE}.config.endpoints")
MATHS = "{math: 1, code: 0, qa: 0}"


class Recorder:
    """Loads configurations that record which settings the package reads, outside of ``config``."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        proxies = {name: self._proxy(name, cls) for name, cls in SECTIONS.items()}
        sections: dict[str, Any] = {name: (proxy, proxy()) for name, proxy in proxies.items()}
        self._config = create_model("Config", __base__=Config, **sections)

    def _proxy(self, section: str, cls: type[BaseModel]) -> type[BaseModel]:
        recorder, leaves = self, set(cls.model_fields)

        class Proxy(cls):  # type: ignore[valid-type, misc]
            def __getattribute__(self, name: str) -> Any:
                if name in leaves and reads_for_a_run(sys._getframe(1)):
                    recorder.read.add(f"{section}.{name}")
                return super().__getattribute__(name)

        return Proxy

    def load(self, path: str | None = None, **settings: object) -> Config:
        overrides = [f"{name.replace('__', '.')}={value}" for name, value in settings.items()]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("llm_as_judge.config.loading.Config", self._config)
            return load_config(path, overrides)


def reads_for_a_run(frame: FrameType | None) -> bool:
    """Whether the reader is a folder of the package that counts; a property of a section counts as its caller."""
    while frame is not None and frame.f_globals["__name__"] in SCHEMA:
        frame = frame.f_back
    package, _, folder = str(frame and frame.f_globals["__name__"]).partition(".")
    return package == PACKAGE and folder.partition(".")[0] != "config"


@pytest.mark.slow
def test_every_setting_is_read_on_the_path_of_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of the embedded run with its measurements, then the settings that this configuration does not use."""
    recorder, closed = Recorder(), f"http://127.0.0.1:{free_port()}/v1"
    run = recorder.load(
        EMBEDDED, persistence_dir="buffer", max_steps=3,
        rollout_batch_size=1, num_return_sequences_in_group=2, refill_rounds=1, eval_every=1, eval_problems=2,
        max_problems=6, domain_ratios=MATHS, lookahead=0, experience_buffer__top_k=1, reward_threshold=-100,
    )  # fmt: skip
    asyncio.run(run_training(run))

    files = {f"{split}_dataset": f"{split}.jsonl" for split in ("train", "val", "test")}
    for name in files.values():
        Path(name).write_text(json.dumps({"problem": "1 + 1?", "answer": "2", "type": "math"}), "utf-8")
    open_problems(recorder.load(**files, domain_ratios=MATHS, eval_every=1))

    own = {"domain": "math", "workflow": workflow(SHAPES["answer"], "math")}
    Path("workflows.jsonl").write_text(json.dumps(own), "utf-8")
    cold = recorder.load(
        EMBEDDED, max_problems=12, domain_ratios=MATHS, response_max_length=8, own_workflows="workflows.jsonl",
        sft_steps=1, problems_per_step=12, workflows_per_problem=1, look_every=1,
    )  # fmt: skip
    load_author(recorder.load(EMBEDDED, model__adapter=run_warmup(cold).adapter))

    OwnJudge(recorder.load(judge__function="math:gcd").judge)

    told = recorder.load(prefill=True, prompt="full", executors__other__model="m")
    Layer1(told.workflow, told.data.domains, told.choices)(Question("q", "1 + 1?", "math"))

    async def open_and_close(services: AbstractAsyncContextManager[object]) -> None:
        async with services:
            pass

    down = {f"{role}__{name}": value for role in ("executor", "judge")
            for name, value in (("provider", "openai"), ("base_url", closed), ("max_retries", 0))}  # fmt: skip
    for opened in (open_services, open_judge):
        with pytest.raises(ProviderError):
            asyncio.run(open_and_close(opened(recorder.load(**down, second_model="second"))))
    local = {f"{role}__{name}": value for role in ("executor", "judge")
             for name, value in (("provider", "local"), ("model", "./missing"))}  # fmt: skip
    with pytest.raises(ConfigError, match=r"\./missing cannot be loaded"):
        asyncio.run(open_and_close(open_services(recorder.load(**local))))
    with suppress(ProviderError):
        asyncio.run(
            LLMJudge(recorder.load(**down).judge, LLMClient(recorder.load(**down).judge)).decide("?", ["x"], "y")
        )
    with pytest.raises(ProviderError):
        VLLMEngine(recorder.load(engine__base_url=closed, engine__max_retries=0).engine, "m", here, None).check()

    with pytest.raises(ConfigError, match="own vLLM server ended"):
        load_author(recorder.load(EMBEDDED, generation__engine="vllm", engine__python="/bin/false"))
    with pytest.raises(ConfigError, match="knows no thinking"):
        load_author(recorder.load(EMBEDDED, thinking=True, prefill=False))

    if find_spec("tinker"):
        path = run.base_model.path
        own = World(lambda rank, seed: Policy.load(path, ModelConfig(lora_rank=rank, lora_alpha=32)), path)
        served: dict[str, object] = {
            "generation__engine": "tinker", "lora_target_modules": "all-linear", "lora_alpha": 32, "lora_rank": 8
        }  # fmt: skip
        with tinker_server(own) as url:
            policy = load_author(recorder.load(EMBEDDED, engine__base_url=url, **served)).policy
            assert isinstance(policy, TinkerPolicy)
            policy.share()
            policy.usage()
    else:
        recorder.read |= {name for name in LEAVES if name.startswith(("engine.price", "engine.loss"))}

    dead = [name for name in LEAVES if name not in recorder.read]
    assert not dead, f"no run reads {', '.join(dead)}: use them or remove them from schema.py"


def test_a_setting_that_nothing_reads_is_noticed() -> None:
    """Reading by the test, by ``config`` and by pydantic does not count; reading by the rest of the package does."""
    recorder = Recorder()
    config = recorder.load(seed=7)
    assert (config.training.seed, config.model_dump()["training"]["seed"]) == (7, 7)
    assert not recorder.read
    assert config.base_model.key == "nano"
    assert not recorder.read
    Layer1(config.workflow)
    assert "workflow.operators" in recorder.read and "training.seed" not in recorder.read
