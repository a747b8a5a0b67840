"""Whose jobs ran in a batch job, or on a node at an instant."""

from __future__ import annotations

from pilotage.core.ids import PilotId
from pilotage.store.tables import pilots, trace
from tests.unit.services.bench import Bench


def test_a_batch_id_tells_past_and_present_jobs(bench: Bench) -> None:
    [first] = bench.submit(owner="bob")
    pilot = bench.pilot()
    other = bench.pilot()
    bench.do(lambda tx: pilots.update(tx.connection, PilotId(pilot.id), batch_id="4711_0"))
    begun = bench.now
    done = pilot.hold()
    bench.now += 50
    pilot.finish(done)
    bench.now += 50
    [second] = bench.submit(owner="bob")
    held = pilot.hold()
    bench.submit(owner="alice")
    elsewhere = other.hold()
    [found] = trace.pilots_of_batch_id(bench.connection, "4711_0")
    assert (found.id, found.site, found.hostname) == (pilot.id, "here", "n1")
    attempts = trace.attempts_of(bench.connection, [found], None, 100)
    assert [(one.job, one.owner, one.group, one.started, one.ended) for one in attempts] == [
        (first, "bob", "physics", begun, begun + 50),
        (second, "bob", "physics", begun + 100, None),
    ]
    assert elsewhere.job not in {one.job for one in attempts}
    bench.tidy()
    assert len(trace.attempts_of(bench.connection, [found], None, 100)) == 2, "history too"
    pilot.finish(held)
    other.finish(elsewhere)


def test_a_node_at_an_instant_tells_the_jobs_of_that_instant(bench: Bench) -> None:
    [first] = bench.submit(owner="bob")
    pilot = bench.pilot()
    start = bench.now
    done = pilot.hold()
    bench.now += 50
    pilot.finish(done)
    bench.now += 50
    pilot.send(leaving="idle")
    bench.now += 50
    for at, jobs in ((start + 20, [first]), (start + 70, [])):
        found = trace.pilots_at(bench.connection, "n1", at)
        assert [one.id for one in found] == [pilot.id]
        assert [one.job for one in trace.attempts_of(bench.connection, found, at, 100)] == jobs
    assert trace.pilots_at(bench.connection, "n1", start + 120) == []
    assert trace.pilots_at(bench.connection, "n2", start + 20) == []


def test_an_array_is_found_by_its_id(bench: Bench) -> None:
    pilot = bench.pilot()
    columns = "INSERT INTO pilot_submissions (stamp, ce, phase, pilots, batch_id, submitted)"
    bench.do(
        lambda tx: tx.connection.execute(
            f"{columns} VALUES ('array', 'local', 'released', 2, '4712', {bench.now})"
        )
    )
    bench.do(lambda tx: tx.connection.execute(f"UPDATE pilots SET stamp = 'array/1' WHERE id = {pilot.id}"))
    assert [one.id for one in trace.pilots_of_batch_id(bench.connection, "4712")] == [pilot.id]


def test_searches_use_indexes(bench: Bench) -> None:
    if bench.database:
        return
    for sql in (
        "SELECT id FROM pilots WHERE batch_id = 'x'",
        "SELECT id FROM pilots WHERE hostname = 'x' AND started <= 1 AND (ended IS NULL OR ended >= 1)",
        "SELECT stamp FROM pilot_submissions WHERE batch_id = 'x'",
        "SELECT job_id FROM attempts WHERE ended >= 1 AND ended <= 2 AND pilot_id IN (1)",
    ):
        plan = bench.connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
        assert all("USING" in step[-1] and "INDEX" in step[-1] for step in plan), plan
