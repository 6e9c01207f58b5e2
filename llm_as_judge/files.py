"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_whole(path: Path, text: str) -> None:
    """Writes ``text`` aside, to the disk, and renames: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """``value`` as indented JSON, whole or not at all. Raises ``ValueError`` for NaN, which JSON has not."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
