from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import writer_guard
from tests.unit.services.bench import Bench


@pytest.fixture(autouse=True)
def only_the_writer() -> Iterator[None]:
    """Fail the test if another thread than the writer's changes a pool."""
    with writer_guard.active():
        yield


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, store=request.param)
    yield made
    made.check()
    made.end()
