"""A plug-in of pytest that loads the conftest of Parsl's suite: one of its hooks is for older versions of pytest."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    theirs: Any = importlib.import_module("parsl.tests.conftest")
    # It leaves out folders, and the tests that are run are named.
    if hasattr(theirs, "pytest_ignore_collect"):
        del theirs.pytest_ignore_collect
    pluginmanager.register(theirs, "conftest of Parsl")
