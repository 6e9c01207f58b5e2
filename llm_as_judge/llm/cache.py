"""Cached replies by the content of their request, so that a deterministic request is paid for only once.

A cache is one SQLite file (safe for several processes) or, without a path, memory of this process, which keeps the
newest entries only. ``client`` decides which requests are deterministic. Entries of a file never expire.
"""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_as_judge.errors import DataError
from llm_as_judge.files import make_folder

#: Maximum entries in memory; a long run makes hundreds of thousands of requests.
IN_MEMORY = 10_000


def request_key(request: Mapping[str, Any]) -> str:
    """SHA-256 of the request as canonical JSON: key order and spacing do not matter."""
    canonical = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class ResponseCache:
    """Maps requests to responses; both are plain JSON objects."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Raises ``DataError`` when the file is not a cache."""
        self._path = path
        if path is not None:
            make_folder(Path(path).parent)
        try:
            self._db = sqlite3.connect(path or ":memory:", timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS responses (key TEXT PRIMARY KEY, response TEXT NOT NULL)")
        except sqlite3.Error as error:
            raise DataError(
                f"response cache {path} cannot be opened: {error}; delete the file or choose another"
            ) from error

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        row = self._db.execute("SELECT response FROM responses WHERE key = ?", (request_key(request),)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def put(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Store ``response``; the first one stored for a request stays, so that runs repeat. Raises ``DataError``."""
        entry = request_key(request), json.dumps(dict(response))
        try:
            self._db.execute("INSERT OR IGNORE INTO responses VALUES (?, ?)", entry)
            if self._path is None:
                self._db.execute("DELETE FROM responses WHERE rowid <= last_insert_rowid() - ?", (IN_MEMORY,))
        except sqlite3.Error as error:
            cure = "free some space, or set judge.cache to another file"
            raise DataError(f"response cache {self._path} cannot be written: {error}; {cure}") from error

    def __len__(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM responses").fetchone()[0])
