"""A chat endpoint that answers known problems, but only requests for a program; every other reply is wrong.

A policy that learns from it learns to write ``Programmer``.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm_as_judge.types import Problem


@dataclass
class Knowing:
    """``down``: HTTP 500 to every request. ``finish_reason``: of every reply."""

    url: str = ""
    answers: dict[str, str] = field(default_factory=dict)  # by statement
    asked: int = 0
    down: bool = False
    finish_reason: str = "stop"

    def tell(self, problem: Problem) -> None:
        self.answers[problem.question.statement] = problem.reference.answers[0]

    def reply(self, prompt: str, seed: int | None = None) -> str:
        self.asked += 1
        right = next((answer for statement, answer in self.answers.items() if statement in prompt), None)
        if right is not None and "solve()" in prompt:
            return f"```python\ndef solve():\n    return {right!r}\n```"
        return "no idea"


@contextmanager
def knowing(served: Knowing | None = None) -> Iterator[Knowing]:
    """Serve ``served`` (default: one that knows no problem yet)."""
    served = served or Knowing()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": served.reply(body["messages"][-1]["content"], body.get("seed"))}
            usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
            choices = [{"index": 0, "message": message, "finish_reason": served.finish_reason}]
            head = {"id": "1", "object": "chat.completion", "created": 1, "model": "knowing"}
            self._send(500 if served.down else 200, {**head, "choices": choices, "usage": usage})

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": "knowing"}]})

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # a whole group connects at once

        def handle_error(self, *_: object) -> None: ...  # a client that hangs up

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
