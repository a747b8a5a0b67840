from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import writer_guard
from tests.unit.services.bench import Bench

writer_guard.install()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, store=request.param)
    yield made
    made.check()
    made.end()
