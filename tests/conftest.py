"""Fixtures of all tests: one thread, no network of Hugging Face, one embedded server and one finished run.

``finished_run`` is a real ``llm-as-judge train`` of two steps with the nano models, made once per session. Tests that
only read a run use it as it is; those that change something work on ``finished_run.copy(tmp_path)``.
"""

import contextlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from filelock import FileLock
from helpers.benchmarks import benchmark
from helpers.cli import CommandLine
from helpers.finished import FinishedRun
from helpers.samples import put
from helpers.tables import tables
from hypothesis import settings

from llm_as_judge.llm import transport

# Before torch is imported anywhere: tests run side by side with other work, and the models are tiny.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# The tests' own clients reach local servers past a proxy, as the package does by itself.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost"

# A script that runs the tests in the background makes them ignore Ctrl-C, which some of them send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Retries of endpoints in this process wait a hundredth of a second at first, not half a second.
transport._BACKOFF_S = 0.01

_undo = pytest.MonkeyPatch.undo


def _undo_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Undo, also in modules that were first imported meanwhile and took a stub by ``from ... import``."""
    stubs = [
        (stub, place, name)
        for place, name, _ in patch._setattr
        if isinstance(place, ModuleType) and (callable(stub := vars(place).get(name)) or stub is None)
    ]
    _undo(patch)
    for module in [module for name, module in sys.modules.items() if stubs and name.startswith("llm_as_judge")]:
        for name, value in list(vars(module).items()):
            for stub, place, known in stubs:
                original = vars(place).get(known)  # of a name that was patched twice, the first
                if value is stub is not original and (stub is not None or name == known):
                    setattr(module, name, original)


pytest.MonkeyPatch.undo = _undo_everywhere  # type: ignore[method-assign]

# How long an example takes says nothing on a machine that runs other tests beside it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--except-passed", metavar="XML", help="leave out tests that passed in this JUnit file")
    parser.addoption("--device", help="device of the tests marked gpu (default: cpu, without those for CUDA alone)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (file := config.getoption("--except-passed")):
        return
    cases = ElementTree.parse(file).iter("testcase")
    passed = {(case.get("classname"), case.get("name")) for case in cases if not len(case)}
    places = {item: item.nodeid.partition(".py::") for item in items}
    out = [item for item, (path, _, name) in places.items() if (path.replace("/", "."), name) in passed]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Device of the tests marked ``gpu``."""
    return str(request.config.getoption("--device") or "cpu")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).parents[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, an empty one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented samples of all eight benchmarks, in the layout of ``data/raw``, under their authors' names.

    They have what the real files are known for: thousands commas and signs, several boxes, unanswerable questions with
    plausible answers, annotators who differ, records with two paragraphs, CRLF, tests that build what the solution
    defines.
    """
    return shutil.copytree(Path(__file__).with_name("samples"), tmp_path_factory.mktemp("samples"), dirs_exist_ok=True)


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workflows as AFlow, its descendants and capable models write them: files, and folders with ``prompt.py``."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, text in tables(Path(__file__).parent / "workflow/graphs").items():
        put(folder / name, text)
    return folder


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an embedded server for all tests of this process."""
    from llm_as_judge.embedded.server import own_server

    with own_server(tmp_path_factory.mktemp("embedded") / "server.log") as address:
        yield address


@pytest.fixture(scope="session")
def finished_run(address: str, shared: Path) -> FinishedRun:
    """A real ``llm-as-judge train`` of two steps, through the command line."""
    from llm_as_judge.commands.app import main

    folder, printed, out = shared / "finished_run", shared / "printed", io.StringIO()
    with FileLock(f"{printed}.lock"):
        if not printed.exists():
            with contextlib.redirect_stdout(out):
                assert main(["train", *FinishedRun(folder, address, "").options]) == 0
            printed.write_text(out.getvalue())
    return FinishedRun(folder, address, printed.read_text())


@pytest.fixture(params=["invented", "published"])
def sample(request: pytest.FixtureRequest, samples: Path) -> Callable[[str], Path]:
    """A benchmark's file by name: of the invented samples, and the published one where this machine has it."""
    return benchmark if request.param == "published" else samples.joinpath
