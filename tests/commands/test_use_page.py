"""The page on using a policy: its Python examples run unchanged, and its tables are complete."""

from __future__ import annotations

import ast
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llm_as_judge.commands.serve_chat import Body, read_request
from llm_as_judge.llm import protocol

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/using.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def example(page: str, word: str) -> str:
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in code]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, PAGE], ids=["README", "use"])
def test_the_solver_example_answers(page: str, tmp_path: Path) -> None:
    """In a separate process, with the embedded configuration."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"executor.base_url=http://127.0.0.1:{s.getsockname()[1]}/v1"
    code = re.sub(r'Solver\(".*?"\)', f'Solver("config/embedded.yaml", [{address!r}])', example(page, "import Solver"))
    compile(code, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    body = "".join(f"    {line}\n" for line in code.splitlines())
    script = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7")


def test_the_page_names_every_status_and_field() -> None:
    errors = [
        cls for cls in vars(protocol).values() if isinstance(cls, type) and issubclass(cls, protocol.RequestError)
    ]
    assert len(errors) > 5
    assert not [cls for cls in errors if str(cls.status) not in PAGE]
    fields = set(Body.model_fields) - {"response_format", "modalities", "stream_options", "max_completion_tokens"}
    assert not [name for name in fields if f"`{name}`" not in PAGE]


def test_the_example_of_the_endpoint_fits_the_client() -> None:
    code = example(PAGE, "import OpenAI")
    pytest.importorskip("openai", reason="the openai client is a peer: make peers installs it")
    asked: list[object] = []
    namespace: dict[str, object] = {}
    lines = code.splitlines()
    exec("\n".join(line for line in lines if not line.startswith(("reply", "print"))), namespace)
    call = next(line for line in lines if line.startswith("reply")).partition(" = ")[2]
    completions = namespace["client"].chat.completions  # type: ignore[attr-defined]
    completions.create = lambda **request: asked.append(request)
    eval(call, namespace)
    request = read_request(asked[0], {"nano": "math"})  # type: ignore[arg-type]
    assert request.question.text == "What is 2 + 2?"
