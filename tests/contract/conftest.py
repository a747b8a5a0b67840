from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from pilotage.store.engine.connection import WriterConnection
from pilotage.store.writer.writer import Writer
from tests import decision_guard, writer_guard
from tests.contract.stores import STORES, Store


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests on PostgreSQL slow: each has a database of its own."""
    for item in items:
        params = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        if "postgresql" in params.values():
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def only_the_writer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if another thread than the writer's changes a pool.

    At several servers no decision may rest on rows of nobody. Other tests set parts of a server up by themselves.
    """
    several = "several_servers" in request.node.nodeid
    with writer_guard.active(), decision_guard.active() if several else nullcontext():
        yield


def _opened(name: str, folder: Path, migrated: bool) -> Iterator[Store]:
    store = STORES[name](folder, migrated)
    yield store
    store.readers.close()
    store.engine.dispose()
    store.drop()


@pytest.fixture(params=STORES)
def unmade(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Without any table."""
    yield from _opened(request.param, tmp_path, migrated=False)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    yield from _opened(request.param, tmp_path, migrated=True)


@pytest.fixture
def connection(store: Store) -> Iterator[WriterConnection]:
    opened = store.open_writer()
    yield opened
    opened.close()


@pytest.fixture
def writer(connection: WriterConnection) -> Iterator[Writer]:
    made = Writer(connection, waiting=8)
    made.start()
    yield made
    made.stop()
