"""Runs tests in their own style: plain asserts, ``check(candidate)``, test functions and test classes."""

import inspect
import sys
import unittest
from typing import Any

from llm_as_judge.sandbox.guest import pytest_names
from llm_as_judge.sandbox.guest.runtime import finished

_FILENAME = "<tests>"


def run_tests(source: str, namespace: dict[str, Any], entry_point: str, may_exit: bool = False) -> None:
    """Execute the tests as a script in ``namespace``, then call ``check`` and every test that it defined.

    Tests that the script called are called again: it may have caught their failure. Raises the first failure.
    ``may_exit``: ``sys.exit(0)`` ends the script, not the run.
    """
    candidate, before = namespace[entry_point], dict(namespace)
    # The tests under ``if __name__ == "__main__"`` count.
    namespace.update(__name__="__main__", __file__="tests.py")
    unittest.main = lambda *args, **kwargs: None  # type: ignore[assignment]  # the classes are run below
    sys.modules.setdefault("pytest", pytest_names)
    try:
        exec(compile(source, _FILENAME, "exec", dont_inherit=True), namespace)
    except SystemExit as end:
        if end.code or not may_exit:
            raise
    defined = {name: value for name, value in namespace.items() if value is not before.get(name)}
    check = defined.get("check")
    if check is not None and check is not candidate:
        finished(check(candidate))
    _call(defined.get("setup_module"), None)
    for name, test in defined.items():
        if _is_test(name, test):
            _call(defined.get("setup_function"), test)
            finished(test())
            _call(defined.get("teardown_function"), test)
        else:
            _run_object(test)
    _call(defined.get("teardown_module"), None)


def _is_test(name: str, value: Any) -> bool:
    """Whether ``value`` is a test function; those with parameters (fixtures) are helpers."""
    if not (name.startswith("test") and inspect.isfunction(value)):
        return False
    return inspect.unwrap(value).__code__.co_filename == _FILENAME and not _required(value)


def _required(test: Any) -> list[inspect.Parameter]:
    """Parameters without a default."""
    parameters = inspect.signature(test, follow_wrapped=False).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _run_object(test: Any) -> None:
    """Run the tests of a class, a ``TestCase`` or a suite; anything else has none."""
    if isinstance(test, (unittest.TestCase, unittest.TestSuite)):
        _run_suite(test)
    elif inspect.isclass(test) and issubclass(test, unittest.TestCase):
        if not _required(test):
            _run_suite(unittest.defaultTestLoader.loadTestsFromTestCase(test))
    elif inspect.isclass(test):
        _run_class(test)


def _run_suite(suite: unittest.TestCase | unittest.TestSuite) -> None:
    result = unittest.TestResult()
    suite.run(result)
    for test, traceback in result.errors + result.failures:
        raise AssertionError(f"{test}: {traceback.strip().splitlines()[-1]}")
    for test in result.unexpectedSuccesses:
        raise AssertionError(f"{test}: unexpected success")


def _run_class(test_class: type) -> None:
    """A class ``Test...``: each test method on a new object, as pytest does; then the classes in it."""
    tests = [name for name in dir(test_class) if name.startswith("test")]
    if tests and test_class.__name__.startswith("Test") and not _required(test_class):
        _call(getattr(test_class, "setup_class", None), test_class)
        for name in tests:
            instance = test_class()
            method = getattr(instance, name)
            _call(getattr(instance, "setup_method", None), method)
            finished(method())
            _call(getattr(instance, "teardown_method", None), method)
        _call(getattr(test_class, "teardown_class", None), test_class)
    for inner in vars(test_class).values():
        _run_object(inner)


def _call(hook: Any, argument: Any) -> None:
    """Call a setup or teardown function of pytest, which may leave out its parameter."""
    if hook is not None:
        finished(hook(argument) if _required(hook) else hook())
