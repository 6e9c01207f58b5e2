"""Shared by all tests: one thread, no network of Hugging Face, the repository's root."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.benchmarks import benchmark
from helpers.samples import write_samples

# Before torch is imported anywhere: tests run side by side with other work, and the models are tiny.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A script that runs the tests in the background has them ignore Ctrl-C, which some of them send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The invented samples of all eight benchmarks, in the layout of ``data/raw``."""
    return write_samples(tmp_path_factory.mktemp("samples"))


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The embedded server, one for all tests that only ask it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{s.getsockname()[1]}/v1"
    from llm_as_judge.embedded.supervise import EmbeddedServer

    server = EmbeddedServer(address)
    asyncio.run(server.__aenter__())
    yield address
    server.stop()


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of endpoints in this process wait a hundredth of a second at first, not half a second."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("llm_as_judge.llm.transport._BACKOFF_S", 0.01)


@pytest.fixture(params=["invented", "published"])
def sample(request: pytest.FixtureRequest, samples: Path) -> Callable[[str], Path]:
    """A benchmark's file by name: of the invented samples, and once more the real one, where this machine has it."""
    return benchmark if request.param == "published" else samples.joinpath
