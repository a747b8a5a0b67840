"""Silent pilots are found by deadline: the same ones as by a look at every pilot, at the cost of the due ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.ids import PilotId
from pilotage.services.pilots import leases
from pilotage.services.pool.pilot_watch import CHECKS, PilotWatch
from pilotage.store.tables import pilots
from tests.unit.services.bench import HEARTBEAT, Bench

PATIENCE = {"near": 10.0, "far": 40.0}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("heard"), st.integers(0, 7)),
        st.tuples(st.just("ended"), st.integers(0, 7)),
        st.tuples(st.just("wait"), st.integers(1, 25)),
        st.tuples(st.just("shift"), st.integers(-30, 60)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_watch_finds_the_pilots_that_a_full_scan_finds(steps: list[tuple[str, int]]) -> None:
    watch, now = PilotWatch(), 1000.0
    last_seen: dict[PilotId, float] = {}
    stalled: set[PilotId] = set()
    for step, value in steps:
        pilot = PilotId(value)
        ce = "near" if value % 2 else "far"
        if step == "heard":
            # As the server does: a message of a known pilot does not touch the watch.
            if pilot not in last_seen or pilot in stalled:
                watch.add(pilot, ce, now)
            last_seen[pilot] = now
            stalled.discard(pilot)
        elif step == "ended":
            last_seen.pop(pilot, None)
            stalled.discard(pilot)
        elif step == "wait":
            now += value
        else:
            last_seen = {known: seen + value for known, seen in last_seen.items()}
            watch.shift(value)
        expected = {
            known for known, seen in last_seen.items()
            if known not in stalled and now - seen >= PATIENCE["near" if known % 2 else "far"]
        }  # fmt: skip
        found = watch.find_silent(last_seen, stalled, PATIENCE.__getitem__, now)
        assert sorted(found) == sorted(expected)
        # Nothing is lost if the transaction that would have noted them fails.
        assert sorted(watch.find_silent(last_seen, stalled, PATIENCE.__getitem__, now)) == sorted(expected)
        stalled |= expected


class Counting(dict[PilotId, float]):
    """Counts the pilots that are looked at."""

    looks = 0

    def get(self, key: PilotId, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def test_a_pilot_that_is_heard_is_looked_at_once_per_deadline() -> None:
    watch, last_seen, pilots_ = PilotWatch(), Counting(), range(1, 1001)
    for pilot in pilots_:
        last_seen[PilotId(pilot)] = 0.0
        watch.add(PilotId(pilot), "far", 0.0)
    for second in range(1, 121):
        now = float(second)
        for pilot in pilots_:
            last_seen[PilotId(pilot)] = now
        assert watch.find_silent(last_seen, set(), PATIENCE.__getitem__, now) == []
    assert last_seen.looks <= 3 * 1000


def test_one_call_checks_a_bounded_number_of_entries() -> None:
    watch, last_seen = PilotWatch(), Counting()
    for pilot in range(1, 3 * CHECKS + 1):
        last_seen[PilotId(pilot)] = 0.0
        watch.add(PilotId(pilot), "far", 0.0)
    found: set[PilotId] = set()
    calls = 0
    while len(found) < 3 * CHECKS:
        new = watch.find_silent(last_seen, found, PATIENCE.__getitem__, 100.0)
        assert len(new) <= CHECKS
        found.update(new)
        calls += 1
    assert calls == 3


# --- in the service


def silent(bench: Bench) -> list[PilotId]:
    return bench.do(lambda tx: leases.silent(bench.pool, tx, bench.now))


def load(bench: Bench) -> None:
    while not bench.do(lambda tx: leases.load_watch(bench.pool, tx, bench.now)):
        pass


def statements(bench: Bench, monkeypatch: Any) -> list[str]:
    executed: list[str] = []
    execute = type(bench.connection).execute

    def spied(self: Any, sql: str, *values: Any) -> Any:
        executed.append(sql)
        return execute(self, sql, *values)

    monkeypatch.setattr(type(bench.connection), "execute", spied)
    return executed


def test_no_pilot_is_read_while_none_is_due(bench: Bench, monkeypatch: Any) -> None:
    for _ in range(5):
        bench.pilot()
    load(bench)
    executed = statements(bench, monkeypatch)
    for _ in range(3):
        bench.now += HEARTBEAT
        assert silent(bench) == []
    assert not [sql for sql in executed if "pilots" in sql]


def test_a_stalled_pilot_that_was_heard_is_found_again_when_it_falls_silent(bench: Bench) -> None:
    pilot = bench.pilot()
    for _ in range(3):
        bench.now += 4 * HEARTBEAT
        assert silent(bench) == [pilot.id]
        assert bench.do(lambda tx: leases.note_stalled(bench.pool, tx, bench.now, [pilot.row.id])) == 1
        assert silent(bench) == []
        bench.now += 1.0
        pilot.send()
        assert silent(bench) == []


def test_a_pilot_that_is_heard_between_two_slices_is_not_stalled(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    pilot.hold()
    bench.now += 4 * HEARTBEAT
    found = bench.do(lambda tx: leases.silent(bench.pool, tx, bench.now))
    pilot.send()
    assert bench.do(lambda tx: leases.note_stalled(bench.pool, tx, bench.now, found)) == 0
    assert bench.state(job) == "Running"


def test_running_pilots_of_the_store_are_watched_after_a_start(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(leases, "LOADED_AT_ONCE", 2)
    running = [bench.pilot() for _ in range(5)]
    running[0].send(leaving="idle")
    bench.crash()
    load(bench)
    bench.now += 4 * HEARTBEAT
    assert sorted(silent(bench)) == [pilot.id for pilot in running[1:]]


def test_a_new_heartbeat_of_the_policy_counts_at_once(bench: Bench) -> None:
    pilot = bench.pilot()
    bench.now += 2 * HEARTBEAT
    assert silent(bench) == []
    bench.pool.policy.ces["local"] = bench.pool.policy.ces["local"].__class__(
        **{
            **{name: getattr(bench.pool.policy.ces["local"], name) for name in fields(bench)},
            "heartbeat": 1.0,
        }
    )
    assert silent(bench) == [pilot.id]


def fields(bench: Bench) -> Iterator[str]:
    yield from bench.pool.policy.ces["local"].__struct_fields__


def test_the_searches_for_pilots_use_indexes(bench: Bench) -> None:
    """A plan that reads all pilots takes 30 ms with 100,000 of them."""
    if bench.database:
        return
    seen: list[str] = []
    connection = bench.connection
    for sql, values in (
        ("SELECT 1 FROM pilots WHERE secret_hash = ? AND idx = ?", ("x", 0)),
        (f"SELECT id FROM pilots WHERE {pilots._LEASE_EXPIRED} ORDER BY lease_until LIMIT 9", (1.0, "")),
        (
            "SELECT id FROM pilots WHERE ended IS NULL AND leave <> '' AND leave = 'kill' AND ce = ?",
            ("local",),
        ),
        ("SELECT id FROM pilots WHERE ended IS NULL AND ce = ? AND id > ? ORDER BY id LIMIT 9", ("local", 1)),
        (
            "SELECT ce, id, server FROM pilots WHERE ended IS NULL AND state = 'Running' AND (ce, id) > (?, ?)"
            " ORDER BY ce, id LIMIT 9",
            ("", 0),
        ),
    ):
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        seen.append(" ".join(str(row[3]) for row in plan))
    assert all("SEARCH pilots USING" in plan for plan in seen), seen
    names = ("ix_pilots_secret", "ix_pilots_lease", "ix_pilots_leaving", "ix_pilots_live", "ix_pilots_live")
    assert all(name in plan for name, plan in zip(names, seen, strict=True)), seen
