"""A server that is frozen within a transaction stops the other server for none but the messages that need its rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import Overloaded
from pilotage.store.postgresql import dsn
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.writer.replies import future_reply
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.stores import Gate, fill, postgresql_store
from tests.deadlines import PATIENCE

pytestmark = pytest.mark.slow


def test_a_message_that_needs_rows_of_a_frozen_server_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dsn, "LOCK_TIMEOUT", 100)
    store = postgresql_store(tmp_path, migrated=True)
    frozen = store.open_writer()
    fill(frozen)
    connection = DatabaseAddress.parse(store.place).open_writer(dsn.lock_shared)
    writer = Writer(connection)
    writer.start()

    def update(pilot: int) -> Callable[[Transaction], Any]:
        sql = "UPDATE pilots SET finished = finished + 1 WHERE id = ?"
        return lambda tx: tx.connection.execute(sql, (pilot,)).rowcount

    frozen.begin()
    frozen.execute("UPDATE pilots SET finished = 5 WHERE id = 1")
    gate = Gate(writer)
    futures: list[Future[Any]] = [Future(), Future(), Future()]
    for pilot, future in zip((2, 1, 2), futures, strict=True):
        writer.submit(update(pilot), future_reply(future))
    gate.opened.set()
    assert [futures[place].result(PATIENCE) for place in (0, 2)] == [1, 1]
    with pytest.raises(Overloaded, match="busy with the same rows"):
        futures[1].result(PATIENCE)
    assert writer.replays == 1
    frozen.rollback()
    assert writer.call(update(1)) == 1
    writer.stop()
    connection.close()
    frozen.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()
