"""A plug-in of pytest for the suite of Dask-jobqueue, whose wheel has its tests and not its conftest.

Only tests that submit jobs of Slurm are run. Deadlines of the suite have room: its clock goes slowly.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import time
from typing import Any

import pytest

SLOWER = 30
"""So many seconds are one of the suite's."""
_QUEUE_WAIT = "PILOTAGE_TEST_QUEUE_WAIT"
_LEFT_OUT = "PILOTAGE_TEST_LEFT_OUT"
"""The variable with the names of tests that are not run."""
_utilities: Any = importlib.import_module("distributed.utils_test")
# It forgets the settings of Dask-jobqueue.
_utilities.reset_config = lambda: importlib.import_module("dask_jobqueue.config").reconfigure()
loop = _utilities.loop
loop_in_thread = _utilities.loop_in_thread


@pytest.fixture
def cleanup() -> None:
    """The fixture of Distributed looks for threads that others have left."""
    importlib.import_module("dask_jobqueue.config").reconfigure()


@pytest.fixture
def EnvSpecificCluster() -> Any:
    return importlib.import_module("dask_jobqueue").SLURMCluster


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "env(NAME): needs this batch system",
        "xfail_env(REASONS): may fail",
        "asyncio: a coroutine",
    ):
        config.addinivalue_line("markers", line)
    suite: Any = importlib.import_module("dask_jobqueue.tests")
    suite.QUEUE_WAIT = float(os.environ[_QUEUE_WAIT])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests for each class of clusters need no batch system: they are left out below."""
    if "Cluster" in metafunc.fixturenames and not metafunc.definition.get_closest_marker("parametrize"):
        metafunc.parametrize("Cluster", [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _submits(item)]
    for item in items:
        for mark in item.iter_markers("xfail_env"):
            if "slurm" in mark.args[0]:
                item.add_marker(pytest.mark.xfail(reason=mark.args[0]["slurm"]))
        module: Any = getattr(item, "module", None)
        if hasattr(module, "time"):
            module.time = _slow_time


def _submits(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("env")
    named = mark is not None and mark.args[0] == "slurm"
    if item.name.partition("[")[0] in os.environ[_LEFT_OUT].split(","):
        return False
    return named or "EnvSpecificCluster" in getattr(item, "fixturenames", ())


def _slow_time() -> float:
    return time.time() / SLOWER


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
