"""Runs tests as their authors mean them: plain asserts, ``check(candidate)``, test functions and test classes."""

from __future__ import annotations

import ast
import inspect
import sys
import unittest
from typing import Any

from llm_as_judge.sandbox.guest import pytest_names
from llm_as_judge.sandbox.guest.runtime import finished

#: Methods that pytest calls around each test of a class.
_SETUP, _TEARDOWN = "setup_method", "teardown_method"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def run_tests(source: str, namespace: dict[str, Any], entry_point: str) -> None:
    """Execute the tests as a script in ``namespace``, then call ``check``, test functions and test classes.

    Raises the first failure.
    """
    candidate, before = namespace[entry_point], namespace.get("check")
    namespace["__name__"] = "__main__"  # the tests under ``if __name__ == "__main__"`` count
    unittest.main = lambda *args, **kwargs: None  # type: ignore[assignment]  # the classes are run below
    sys.modules.setdefault("pytest", pytest_names)
    tree = ast.parse(source)
    exec(compile(tree, "<tests>", "exec", dont_inherit=True), namespace)
    check = namespace.get("check")
    if check is not None and check is not before and check is not candidate:
        finished(check(candidate))
    for name in _collected(tree):
        test = namespace[name]
        if not inspect.isclass(test):
            if not _required(test):
                finished(test())
        elif issubclass(test, unittest.TestCase):
            _run_test_case(test)
        elif name.startswith("Test") and "__init__" not in vars(test):
            _run_class(test)


def _collected(tree: ast.Module) -> list[str]:
    """Test functions and classes that the tests define but do not call themselves."""
    script = [node for node in tree.body if not isinstance(node, _DEFINITIONS)]
    called = {n.id for statement in script for n in ast.walk(statement) if isinstance(n, ast.Name)}
    defined = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    names = [n.name for n in defined if isinstance(n, ast.ClassDef) or n.name.startswith("test")]
    return [name for name in names if name not in called]


def _required(test: Any) -> list[inspect.Parameter]:
    """Parameters without a default: fixtures, which there are none of."""
    parameters = inspect.signature(test, follow_wrapped=False).parameters.values()
    return [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _run_test_case(test_case: type[unittest.TestCase]) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(test_case)
    result = unittest.TestResult()
    suite.run(result)
    for test, traceback in result.errors + result.failures:
        raise AssertionError(f"{test}: {traceback.strip().splitlines()[-1]}")
    for test in result.unexpectedSuccesses:
        raise AssertionError(f"{test}: unexpected success")


def _run_class(test_class: type) -> None:
    """A class without ``TestCase``: each test method on a new object, as pytest does."""
    for name in dir(test_class):
        if name.startswith("test"):
            instance = test_class()
            for method in (_SETUP, name, _TEARDOWN):
                if hasattr(instance, method):
                    finished(getattr(instance, method)())
