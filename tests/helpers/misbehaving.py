"""A chat endpoint that fails as the model's name says, such as ``m1/busy``.

Behaviours joined by ``+`` apply one per request; the last one remains.
"""

import json
import threading
import time
from collections import defaultdict
from typing import Any

from helpers.web import Handler, completion

#: Requests so far, by the model's name before the slash.
REQUESTS: dict[str, list[dict[str, Any]]] = defaultdict(list)
_LOCK = threading.Lock()
VERDICT = "<analysis>a</analysis><true_false>{}</true_false>"
#: Content, finish reason and reasoning of replies.
REPLIES: dict[str, tuple[str | None, str, str]] = {
    "true": (VERDICT.format("True"), "stop", ""), "false": (VERDICT.format("False"), "stop", ""),
    "empty_length": (None, "length", ""), "cut_verdict": (VERDICT.format("True"), "length", ""),
    "truncated_verdict": ('{"analysis": "the same", "true_fal', "stop", ""),
    "reasoning_only": ("", "stop", VERDICT.format("True")), "wrong_word": (VERDICT.format("Maybe"), "stop", ""),
}  # fmt: skip
#: HTTP status and text of other answers.
STATUSES = {
    "busy": (429, "slow down"), "broken": (500, "oops"), "unauthorised": (401, "no key"),
    "too_long": (400, "This model's maximum context length is 8 tokens"),
    "truncated_body": (200, '{"choices": [{"message": {"content": "<true_fal'),
}  # fmt: skip


class Misbehaving(Handler):
    protocol_version = "HTTP/1.0"  # a connection for each request

    def do_POST(self) -> None:
        body = json.loads(self.raw())
        name, _, behaviour = body["model"].partition("/")
        steps = behaviour.split("+")
        with _LOCK:
            step = steps[min(len(REQUESTS[name]), len(steps) - 1)]
            REQUESTS[name].append({**body, "at": time.time()})
        if step in REPLIES:
            self._reply(*REPLIES[step])
        elif step in STATUSES:
            self.send(*STATUSES[step], **({"Retry-After": "1"} if step == "busy" else {}))
        else:
            getattr(self, f"_{step}")("response_format" in body)

    def _reply(self, content: str | None, finish: str = "stop", reasoning: str = "") -> None:
        self.send(200, completion(content, finish, 1, 1, reasoning_content=reasoning))

    def _silent(self, schema: bool) -> None:
        time.sleep(30)

    def _no_schema(self, schema: bool) -> None:
        if schema:
            self.send(400, "response_format is not supported")
        else:
            self._reply(*REPLIES["true"])

    def _schema(self, schema: bool) -> None:
        self._reply(json.dumps({"analysis": "a", "true_false": schema}))

    def _drip(self, schema: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b" ")
            time.sleep(0.1)

    def _hang_up(self, schema: bool) -> None:
        self.connection.close()
