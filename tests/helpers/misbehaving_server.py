"""A chat endpoint that fails as the model's name says, in a separate process: ``python THIS_FILE``.

Prints its port on 127.0.0.1. Behaviours joined by ``+`` apply one per request; the last one remains.
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SEEN: Counter[str] = Counter()
LOG: dict[str, list[dict[str, Any]]] = {}
LOCK = threading.Lock()
VERDICT = "<analysis>a</analysis><true_false>{}</true_false>"
#: Content, finish reason and reasoning of replies.
REPLIES: dict[str, tuple[str | None, str, str]] = {
    "true": (VERDICT.format("True"), "stop", ""),
    "false": (VERDICT.format("False"), "stop", ""),
    "empty_length": (None, "length", ""),
    "cut_verdict": (VERDICT.format("True"), "length", ""),
    "truncated_verdict": ('{"analysis": "the same", "true_fal', "stop", ""),
    "reasoning_only": ("", "stop", VERDICT.format("True")),
    "wrong_word": (VERDICT.format("Maybe"), "stop", ""),
}
#: HTTP status and text of other answers.
STATUSES = {
    "busy": (429, "slow down"),
    "broken": (500, "oops"),
    "unauthorised": (401, "no key"),
    "too_long": (400, "This model's maximum context length is 8 tokens"),
    "truncated_body": (200, '{"choices": [{"message": {"content": "<true_fal'),
}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        """Requests to a model so far."""
        self._send(200, json.dumps(LOG.get(self.path.strip("/"), [])))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = body["model"]
        with LOCK:
            LOG.setdefault(model.partition("/")[0], []).append({**body, "at": time.time()})
            steps = model.partition("/")[2].split("+")
            step = steps[min(SEEN[model], len(steps) - 1)]
            SEEN[model] += 1
        if step in REPLIES:
            self._reply(*REPLIES[step])
        elif step in STATUSES:
            self._send(*STATUSES[step], **({"Retry-After": "0.3"} if step == "busy" else {}))
        else:
            getattr(self, f"do_{step}")(body)

    def _send(self, status: int, text: str, **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _reply(self, content: str | None, finish: str = "stop", reasoning: str = "") -> None:
        message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        choices = [{"index": 0, "message": message, "finish_reason": finish}]
        self._send(200, json.dumps({"choices": choices, "usage": usage}))

    def do_silent(self, body: Any) -> None:
        time.sleep(30)

    def do_no_schema(self, body: Any) -> None:
        if "response_format" in body:
            self._send(400, "response_format is not supported")
        else:
            self._reply(*REPLIES["true"])

    def do_schema(self, body: Any) -> None:
        self._reply(json.dumps({"analysis": "a", "true_false": "response_format" in body}))

    def do_drip(self, body: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(100):
            try:
                self.wfile.write(b" ")
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.1)

    def do_hang_up(self, body: Any) -> None:
        self.connection.close()


@contextmanager
def running() -> Iterator[str]:
    """The address of a server in a process of its own."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
