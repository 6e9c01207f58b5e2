"""The response cache: keyed by content, persistent, clear about files that are not caches."""

from pathlib import Path

import pytest

from llm_as_judge.errors import DataError
from llm_as_judge.llm import cache as cache_module
from llm_as_judge.llm.cache import ResponseCache


def test_the_first_response_stays_for_every_handle_and_any_order_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cache.sqlite"
    one, two = ResponseCache(path), ResponseCache(path)
    assert one.get({"q": "ü"}) is None
    one.put({"q": "ü", "n": [1, 2]}, {"text": "first"})
    two.put({"n": [1, 2], "q": "ü"}, {"text": "second"})
    assert two.get({"q": "ü", "n": [1, 2]}) == {"text": "first"} and len(ResponseCache(path)) == 1
    assert two.get({"q": "ü", "n": [2, 1]}) is None


def test_a_full_disk_and_a_file_that_is_no_cache_are_data_errors(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "c.sqlite")
    cache.put({"q": 1}, {"text": "kept"})
    cache._db.execute("PRAGMA max_page_count=8")
    with pytest.raises(DataError, match=r"c\.sqlite cannot be written: .*full; free some space"):
        for i in range(100):
            cache.put({"q": i}, {"text": "x" * 1000})
    assert cache.get({"q": 1}) == {"text": "kept"}
    (tmp_path / "c").write_bytes(b"this is not a database " * 100)
    with pytest.raises(DataError, match="delete the file"):
        ResponseCache(tmp_path / "c")


def test_memory_keeps_the_newest_entries_and_a_file_keeps_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "IN_MEMORY", 3)
    memory, file = ResponseCache(), ResponseCache(tmp_path / "c")
    for cache in (memory, file):
        for number in range(9):
            cache.put({"q": number}, {"text": "x"})
    assert (len(memory), len(file)) == (3, 9)
    assert memory.get({"q": 7}) and not memory.get({"q": 0})
