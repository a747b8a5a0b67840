"""Files and sets of locations that one server deletes or stores while another one needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pilotage.core.errors import InvalidInput, Overloaded
from pilotage.core.jobs.description import OF_JOB, InputFile
from pilotage.server.duties.retention import RetentionDuty
from pilotage.server.http.routes import uploads
from pilotage.services.retention import RULES
from pilotage.services.submission.accept import accept
from pilotage.store.tables import history, location_sets
from pilotage.store.tables import retention as retention_rows
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.workqueue.race import Race, Servers

pytestmark = pytest.mark.slow
Request = Callable[[Transaction], Any]
OUTPUTS = next(rule for rule in RULES if rule.name == "outputs")
HANDED = next(rule for rule in RULES if rule.name == "handed_outputs")


def archived_job(servers: Servers) -> int:
    """A Done job in the history, with an output."""
    bench = servers.first.bench
    [job] = bench.submit()

    def end(tx: Transaction) -> None:
        tx.connection.execute(
            "UPDATE jobs SET state = 'Done', final_state = 'Done', started = 1, ended = 2, finished_epoch = 1,"
            " epoch = 1 WHERE id = ?",
            (job,),
        )
        tx.connection.execute(
            "INSERT INTO results (job_id, epoch, outputs) VALUES (?, 1, '[[\"result.json\", 1]]')", (job,)
        )
        history.archive(tx.connection, 3.0, 10)

    bench.do(end)
    return job


def reader_of(servers: Servers, job: int) -> list[Request]:
    """The submission of a job that reads the output, at each server."""
    files = (InputFile("in.json", OF_JOB, f"{job}/result.json"),)
    prepared = servers.first.bench.prepared(input_sandbox=files)
    return [lambda tx, b=queue.bench: accept(b.pool, tx, prepared, b.now) for queue in servers]


def expire(tx: Transaction) -> int:
    return OUTPUTS.step(tx.connection, (), 10.0, 100)


def results(servers: Servers) -> int:
    return int(servers.first.sql("SELECT count(*) FROM results")[0][0])


def test_outputs_are_kept_for_a_submission_or_it_is_refused(race: Race, servers: Servers) -> None:
    job = archived_job(servers)
    kept, _ = race.run(reader_of(servers, job)[0], expire)
    assert kept.id
    assert results(servers) == 1
    servers.first.run("DELETE FROM retention")
    servers.first.run("DELETE FROM handed_outputs")
    _, refused = race.run(expire, reader_of(servers, job)[1])
    assert isinstance(refused, InvalidInput)
    assert "it has none any more" in refused.message
    assert results(servers) == 0


def test_outputs_that_lose_their_last_reader_are_kept_for_a_new_one(race: Race, servers: Servers) -> None:
    job = archived_job(servers)
    old = servers.first.bench.do(reader_of(servers, job)[0])
    servers.first.bench.do(expire)
    new, _ = race.run(reader_of(servers, job)[0], lambda tx: HANDED.step(tx.connection, [old.id], 10.0, 100))
    assert new.id != old.id
    assert results(servers) == 1


def test_an_input_file_is_there_as_long_as_an_upload_names_it(
    race: Race, servers: Servers, tmp_path: Path
) -> None:
    """Its earlier upload was deleted; the file is deleted after that, while somebody uploads it again."""
    path = tmp_path / "digest"
    sandbox = SimpleNamespace(
        input_path=lambda digest: path,
        input_objects=SimpleNamespace(find=lambda owner, digest: None, discard=lambda digest: None),
    )
    asked: list[Request] = []

    async def ask(request: Request) -> None:
        asked.append(request)

    context: Any = SimpleNamespace(
        clock=lambda: 1.0, disk=SimpleNamespace(sandbox=sandbox), writer=SimpleNamespace(acall=ask)
    )
    caller: Any = SimpleNamespace(user="alice")
    duty: Any = SimpleNamespace(_context=context)
    asyncio.run(uploads._record(context, caller, [("digest", 3)]))
    asyncio.run(RetentionDuty._remove_inputs(duty, ["digest"]))
    upload, unlink = asked

    def is_whole() -> bool:
        bench = servers.first.bench
        return path.exists() or not bench.do(lambda tx: retention_rows.is_uploaded(tx.connection, "digest"))

    for first, second in ((upload, unlink), (unlink, upload)):
        for trip in range(1, 6):
            path.write_text("abc")
            servers.first.run("DELETE FROM uploads")
            with suppress(Overloaded):
                race.run_before_trip(trip, first, second)
            assert is_whole(), trip
        path.write_text("abc")
        servers.first.run("DELETE FROM uploads")
        race.run(first, second)
        assert is_whole()


def test_a_set_of_sites_of_a_long_transaction_is_known_after_it(race: Race, servers: Servers) -> None:
    """Its id is far below the ids that are known by then."""
    other = servers.second

    def store(tx: Transaction) -> int:
        return location_sets.id_of(tx.connection, ["late"])

    def store_many(tx: Transaction) -> None:
        for number in range(150):
            location_sets.id_of(tx.connection, [f"site {number}"])

    def known(tx: Transaction) -> set[int]:
        return set(other.work_queue.known_location_sets(tx.connection))

    def many_and_known(tx: Transaction) -> set[int]:
        store_many(tx)
        return known(tx)

    late, before = race.run(store, many_and_known)
    assert late not in before
    assert late in other.bench.do(known)
