from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import writer_guard
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import POLICY, QueueBench


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueBench]:
    with writer_guard.active():
        made = Bench(tmp_path, POLICY, store=request.param)
        yield QueueBench(made)
        made.check()
        made.end()
