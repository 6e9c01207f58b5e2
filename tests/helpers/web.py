"""HTTP servers in a thread, which replace services."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def raw(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def send(self, status: int, reply: Any = "", **headers: str) -> None:
        """``reply`` is text, or a value that is sent as JSON."""
        data = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.send(404)


def completion(content: str | None, finish: str = "stop", read: int = 20, written: int = 10, **more: Any) -> Any:
    """A chat completion of the OpenAI protocol; ``more`` are fields of its message."""
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def post(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Status and JSON of the reply to bytes, or to a value as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=300) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # a whole group connects at once

    def handle_error(self, *_: object) -> None: ...  # a client that hangs up


@contextmanager
def serving(handler: type[Handler], port: int = 0) -> Iterator[str]:
    """The address of a server whose requests ``handler`` answers."""
    with _Server(("127.0.0.1", port), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
