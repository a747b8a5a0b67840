"""The cache of use, and what attempts and reasons say."""

from __future__ import annotations

from typing import Any

import numpy as np

from pilotage.core.ids import JobId, PilotId
from pilotage.core.shares.use import DAY, Ledger, UseBucket, columns_of
from pilotage.store.tables import attempts, usage
from tests.contract.stores import fill


def test_buckets_come_back_as_they_were_stored(connection: Any) -> None:
    fill(connection)
    bucket = UseBucket(np.array([0, 2]), np.array([60.0, 0.1]), np.array([240.0, 0.2]))
    entities = [("alice", "physics"), ("böb", "physics"), ("", "prod")]
    part = usage.LedgerChanges(0, 99.5, True, 0, entities, [(60, 1200, bucket), (3600, 0, bucket)], [])
    usage.save_changes(connection, part)
    usage.save_changes(
        connection,
        usage.LedgerChanges(0, 120.0, False, 3, [("new", "g")], [(60, 1260, bucket)], [(3600, 0)]),
    )
    ledger = Ledger(0.0, 1e6)
    usage.load(connection, ledger)
    assert ledger.entities == [*entities, ("new", "g")]
    assert {span: sorted(buckets) for span, buckets in ledger.levels.items()} == {
        60: [1200, 1260],
        3600: [],
        86400: [],
    }
    found = ledger.levels[60][1200]
    assert [list(column) for column in (found.places, found.jobs, found.cores)] == [
        [0, 2],
        [60, 0.1],
        [240, 0.2],
    ]
    assert usage.as_of(connection) == 120.0
    usage.save_changes(connection, usage.LedgerChanges(0, None, True, 0, [], [], []))
    empty = Ledger(0.0, 1e6)
    usage.load(connection, empty)
    assert not empty.entities
    assert usage.as_of(connection) is None


def test_only_tries_that_ran_since_are_read(connection: Any) -> None:
    for job, started in ((1, 10.0), (2, 20.0), (3, 30.0)):
        begun = attempts.StartedAttempt(
            JobId(job), 1, 1, PilotId(1), started, job, "alice", "physics", "here", 1.0
        )
        attempts.save_started(connection, [begun])
    attempts.save_interrupted(
        connection,
        [
            attempts.InterruptedAttempt(15.0, "killed", JobId(1), 1),
            attempts.InterruptedAttempt(40.0, "killed", JobId(2), 1),
        ],
    )
    rows = [tuple(row) for portion in usage.attempts_since(connection, 15.0) for row in portion]
    assert sorted(rows, key=str) == [("alice", "physics", 20.0, 40.0, 2), ("alice", "physics", 30.0, None, 3)]
    assert usage.attempt_counts(connection, 15.0, 25.0) == {("alice", "physics"): 1}


def test_the_memory_of_correctors_is_stored(connection: Any) -> None:
    assert usage.corrector_memory(connection) == (None, {})
    remembered = {("WMSHistory", "Groups", "Week", "physics"): 1.25, ("Other", "a", "b", "ü"): 0.5}
    usage.save_correction(connection, 7.0, remembered)
    usage.save_correction(connection, 8.0, remembered)
    assert usage.corrector_memory(connection) == (8.0, remembered)


def test_decayed_use_is_the_same_after_a_restart(connection: Any) -> None:
    begin = 1_700_006_400.0
    ledger = Ledger(begin, 40 * DAY, [(begin + 5 * DAY, begin + 6 * DAY)])
    rows = [("alice", "physics", begin + day * DAY, begin + day * DAY + 5000.0, 2) for day in range(20)]
    rows.append(("bob", "physics", begin + 19.5 * DAY, None, 1))  # type: ignore[arg-type]
    changed = ledger.charge([columns_of(ledger, rows)], begin + 20 * DAY)
    buckets = [(span, start, ledger.levels[span][start]) for span, start in changed]
    usage.save_changes(
        connection, usage.LedgerChanges(0, ledger.as_of, True, 0, ledger.entities, buckets, [])
    )
    again = Ledger(begin + 20 * DAY, 40 * DAY, list(ledger.outages))
    usage.load(connection, again)
    for half_life in (0.5 * DAY, 2 * DAY):
        assert ledger.decayed(half_life).jobs.keys() == {("alice", "physics"), ("bob", "physics")}
        assert again.decayed(half_life) == ledger.decayed(half_life)


def test_times_of_waiting_by_owner(connection: Any) -> None:
    queue = fill(connection)
    rows = [(1.0, "slots"), (5.0, "share"), (9.0, ""), (20.0, "limit")]
    connection.executemany(
        "INSERT INTO queue_reasons (queue_id, since, reason) VALUES (?, ?, ?)",
        [(queue, *row) for row in rows],
    )
    assert usage.waiting_times(connection, 0.0) == [
        ("alice", "physics", 1.0, 5.0),
        ("alice", "physics", 5.0, 9.0),
        ("alice", "physics", 20.0, None),
    ]
    assert usage.waiting_times(connection, 7.0)[0] == ("alice", "physics", 5.0, 9.0)
