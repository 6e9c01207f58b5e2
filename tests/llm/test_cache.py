"""The response cache: content-addressed, persistent, honest about files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_as_judge.errors import DataError
from llm_as_judge.llm import cache as cache_module
from llm_as_judge.llm.cache import ResponseCache, request_key


def test_key_ignores_key_order_and_nothing_else() -> None:
    assert request_key({"a": 1, "b": [1, 2]}) == request_key({"b": [1, 2], "a": 1})
    assert request_key({"a": 1, "b": [1, 2]}) != request_key({"a": 1, "b": [2, 1]})


def test_entries_survive_reopening(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "deep" / "cache.sqlite")
    assert cache.get({"q": "ü"}) is None
    cache.put({"q": "ü"}, {"text": "4"})
    cache.close()
    again = ResponseCache(tmp_path / "deep" / "cache.sqlite")
    assert again.get({"q": "ü"}) == {"text": "4"}
    assert len(again) == 1


def test_first_response_stays(tmp_path: Path) -> None:
    cache = ResponseCache()
    cache.put({"q": 1}, {"text": "first"})
    cache.put({"q": 1}, {"text": "second"})
    assert cache.get({"q": 1}) == {"text": "first"}


def test_a_file_that_may_grow_no_further_is_told(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "c.sqlite")
    cache.put({"q": 1}, {"text": "kept"})
    cache._db.execute("PRAGMA max_page_count=8")
    with pytest.raises(DataError, match=r"c\.sqlite cannot be written: .*full; make room"):
        for i in range(100):
            cache.put({"q": i}, {"text": "x" * 1000})
    assert cache.get({"q": 1}) == {"text": "kept"}


def test_two_handles_share_one_file(tmp_path: Path) -> None:
    one, two = ResponseCache(tmp_path / "c"), ResponseCache(tmp_path / "c")
    one.put({"q": 1}, {"text": "x"})
    assert two.get({"q": 1}) == {"text": "x"}


def test_a_file_that_is_no_cache_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"this is not a database " * 100)
    with pytest.raises(DataError, match="delete it"):
        ResponseCache(tmp_path / "c")


def test_memory_keeps_the_newest_and_a_file_keeps_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "IN_MEMORY", 3)
    memory, file = ResponseCache(), ResponseCache(tmp_path / "c")
    for cache in (memory, file):
        for number in range(9):
            cache.put({"q": number}, {"text": "x"})
            cache.put({"q": 8}, {"text": "y"})
    assert (len(memory), len(file)) == (3, 9)
    assert memory.get({"q": 7}) and not memory.get({"q": 0})
