"""Files are there whole or not at all, and a failure names the file that it is about."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from llm_as_judge.files import locked, write_whole


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "old")
    path.with_name(f".results.json.{os.getpid()}").symlink_to("/dev/full")  # what is written aside goes there
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write_whole(path, b"new")
    assert path.read_text() == "new"


def test_a_lock_is_held_where_there_is_no_room_to_say_by_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / ".lock", os.write

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for writes, told in ((full, "unknown"), (write, f"process {os.getpid()}")):
        monkeypatch.setattr(os, "write", writes)
        with locked(path), pytest.raises(RuntimeError, match=told), locked(path, RuntimeError):
            pass
        with locked(path, RuntimeError):  # and free again
            path.write_text("")


def test_a_name_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"results\.json'$"):
        write_whole(tmp_path / "results.json", "x")
    assert list(tmp_path.iterdir()) == [tmp_path / "results.json"]
