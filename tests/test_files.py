"""Writes are atomic, and errors name the file."""

import errno
import os
from pathlib import Path

import pytest

from llm_as_judge.files import locked, write_whole


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "old")
    path.with_name(f".results.json.{os.getpid()}").symlink_to("/dev/full")  # the temporary file
    with pytest.raises(OSError, match="No space left") as caught:
        write_whole(path, "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write_whole(path, b"new")
    assert path.read_text() == "new"


def test_a_lock_works_on_a_full_disk_without_naming_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / ".lock", os.write

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for writes, told in ((full, "unknown"), (write, f"process {os.getpid()}")):
        monkeypatch.setattr(os, "write", writes)
        with locked(path), pytest.raises(RuntimeError, match=told), locked(path, RuntimeError):
            pass
        with locked(path, RuntimeError):  # and free again
            path.write_text("")


def test_a_folder_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"results\.json'$"):
        write_whole(tmp_path / "results.json", "x")
    assert list(tmp_path.iterdir()) == [tmp_path / "results.json"]
