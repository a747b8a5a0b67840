"""Profiles of hypothesis. `steady` and `quick` draw the same examples in every run; `deep` draws new ones.

`./test` uses `steady`, `./test --fast` uses `quick`. A test that needs more examples multiplies those of the profile.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import failure_reports, postgres
from tests.deadlines import OF_A_TEST
from tests.order import order_tests, read_durations, write_durations
from tests.simulation import seeds

if TYPE_CHECKING:
    from tests.s3 import FaultyLine, S3Server

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=30, suppress_health_check=QUIET
)
settings.register_profile(
    "quick", derandomize=True, deadline=None, max_examples=8, suppress_health_check=QUIET
)
settings.register_profile("deep", deadline=None, max_examples=1500, suppress_health_check=QUIET)
settings.load_profile("steady")


# Else every server and pilot of the tests would compile its modules, which takes longer than its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# pytest-timeout reads it. It also counts in the workers of pytest-xdist.
os.environ.setdefault("PYTEST_TIMEOUT", str(OF_A_TEST))


def pytest_report_header() -> str:
    return seeds.header()


def pytest_runtest_setup(item: pytest.Item) -> None:
    postgres.forbidden = item.get_closest_marker("slow") is None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    if workers > 1:
        modules = [(_module(item.nodeid), item) for item in items]
        items[:] = order_tests(modules, read_durations(), workers)


def _module(test: str) -> str:
    return test.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the servers to the report of a failure: a run elsewhere cannot be looked at."""
    report = yield
    if report.failed:
        report.sections += failure_reports.sections()
    return report


_durations: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations[_module(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    record = os.environ.get("PILOTAGE_TEST_DURATIONS")
    if record and not hasattr(session.config, "workerinput"):
        write_durations(Path(record), _durations)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 service of the module."""
    from tests.s3 import running_s3

    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def line(s3: S3Server) -> Iterator[FaultyLine]:
    """A line to the service, whose faults the test chooses."""
    from tests.s3 import FaultyLine

    line = FaultyLine(s3)
    yield line
    line.close()
