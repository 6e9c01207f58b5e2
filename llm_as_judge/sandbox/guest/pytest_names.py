"""The parts of pytest that tests may use, since children lack pytest. ``split_plan`` refuses tests that use more."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from llm_as_judge.sandbox.guest.runtime import finished


class raises:
    """Context manager that expects an exception of the given class or classes; ``value`` is the exception."""

    def __init__(self, expected: Any, *, match: str | None = None) -> None:
        self._expected = expected
        self._match = match
        self.value: BaseException | None = None

    def __enter__(self) -> "raises":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is None:
            raise AssertionError(f"did not raise {self._expected}")
        self.value = error
        if not isinstance(error, self._expected):
            return False
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError(f"{error!r} does not match {self._match!r}")
        return True


class approx:
    """Equal to numbers, and to lists, tuples and dictionaries of numbers, within a tolerance."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float = 1e-6, abs: float = 1e-12) -> None:
        self._expected, self._rel, self._abs = expected, rel, abs

    def __eq__(self, other: Any) -> bool:
        match self._expected:
            case dict() as expected if isinstance(other, dict):
                return expected.keys() == other.keys() and all(self._same(expected[key], other[key]) for key in other)
            case list() | tuple() as expected if isinstance(other, (list, tuple)):
                return len(expected) == len(other) and all(map(self._same, expected, other))
        try:
            return math.isclose(other, self._expected, rel_tol=self._rel, abs_tol=self._abs)
        except TypeError:
            return bool(self._expected == other)

    def _same(self, expected: Any, other: Any) -> bool:
        return bool(approx(expected, self._rel, self._abs) == other)


class mark:
    """``mark.parametrize`` runs a test with each row of values; ``mark.asyncio`` changes nothing."""

    @staticmethod
    def parametrize(argnames: Any, argvalues: Iterable[Any], **options: Any) -> Callable[[Any], Any]:
        keys = [name.strip() for name in argnames.split(",")] if isinstance(argnames, str) else list(argnames)
        rows = list(argvalues)

        def decorate(test: Any) -> Any:
            if inspect.isclass(test):
                for name in filter(lambda name: name.startswith("test"), dir(test)):
                    setattr(test, name, decorate(getattr(test, name)))
                return test

            @functools.wraps(test)
            def run(*args: Any, **kwargs: Any) -> None:
                for row in rows:
                    values = (row,) if len(keys) == 1 and not isinstance(row, param) else row
                    finished(test(*args, **kwargs, **dict(zip(keys, values, strict=True))))

            return run

        return decorate

    @staticmethod
    def asyncio(test: Any) -> Any:
        return test


class param(tuple[Any, ...]):
    """One row of ``parametrize``."""

    def __new__(cls, *values: Any, **options: Any) -> "param":
        return super().__new__(cls, values)


def main(*args: Any, **kwargs: Any) -> None:
    """The tests are run after the file that calls this."""


def fail(reason: str = "") -> NoReturn:
    raise AssertionError(reason)
