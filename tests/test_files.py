"""Files are there whole or not at all, and a failure names the file that it is about."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from llm_as_judge.files import write_whole


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


def test_a_name_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    with pytest.raises(IsADirectoryError, match=r"results\.json'$"):
        write_whole(tmp_path / "results.json", "x")
    assert list(tmp_path.iterdir()) == [tmp_path / "results.json"]
