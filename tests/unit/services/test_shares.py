"""Use is charged from attempts, survives anything, and what is drawn from it reaches the queues."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from pilotage.cli.accounting import _as_csv
from pilotage.core import policy as policies
from pilotage.services.pilots import leases
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.policy.apply import apply_policy
from pilotage.services.shares import accounting, corrections, fairness
from pilotage.services.shares.corrections import UseBook
from pilotage.services.shares.table import STRANDED, entitlements, share_table
from pilotage.store.tables import usage
from pilotage.wire.shares import AccountRow, ShareRow
from tests.unit.services.bench import LEASE, POLICY, Bench

HOUR, DAY = 3600.0, 86400.0
START = 1_700_000_040.0  # a whole minute
CORRECTED = f"""\
{POLICY}
[correction]
correctors = ["WMSHistory"]
[correction.WMSHistory.Groups.slices.Hour]
time_span = 3600
max_correction = 4
[correction.WMSHistory.Physicists]
group = "physics"
[correction.WMSHistory.Physicists.slices.Hour]
time_span = 3600
max_correction = 4
"""


class Shares:
    """The duty of a server, cycle by cycle."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.book = UseBook(bench.pool.policy.accounting.history)

    def charge(self) -> corrections.LedgerUpdate:
        self.bench.sign_of_life()
        charged = self.book.charge(self.bench.connection)
        for part in self.book.saving(charged):
            self.bench.do(lambda tx, part=part: corrections.save_use(tx, part))
        return charged

    def cycle(self) -> None:
        bench, charged = self.bench, self.charge()
        last, memory = usage.corrector_memory(bench.connection)
        found = corrections.compute_corrections(
            self.book, corrections.waiting_entities(bench.pool), last, memory
        )
        bench.do(lambda tx: corrections.apply_corrections(bench.pool, tx, found, charged.as_of))
        self.settle()

    def settle(self) -> None:
        while not self.bench.do(lambda _: corrections.apply_priorities(self.bench.pool.queues)):
            pass

    def seconds(self, span: float = HOUR) -> dict[tuple[str, str], float]:
        """Job-seconds of the last `span` seconds."""
        found = self.book.look({"": span})[""].jobs
        return {entity: round(average * span, 6) for entity, average in found.items()}

    def row(self, group: str, owner: str = "") -> ShareRow:
        table = share_table(entitlements(self.bench.pool), self.book.as_of)
        return next(row for row in table.rows if (row.group, row.owner) == (group, owner))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, CORRECTED, START)
    yield made
    made.close()


@pytest.fixture
def shares(bench: Bench) -> Shares:
    return Shares(bench)


def accounted(bench: Bench, begin: float | None, end: float | None, owner: str | None) -> list[AccountRow]:
    months = accounting.accounts(lambda: bench.connection, begin, end, owner)
    return [row for month in months for row in month]


def pass_time(shares: Shares, seconds: float) -> None:
    """With a sign of life every few seconds, as a running server gives it."""
    end = shares.bench.now + seconds
    while shares.bench.now < end:
        shares.bench.now = min(end, shares.bench.now + 25)
        shares.bench.sign_of_life()


def test_running_and_ended_attempts_are_charged_once(bench: Bench, shares: Shares) -> None:
    bench.submit(2)
    bench.submit(1, owner="bob", processors=4)
    shares.charge()
    pilots = [bench.pilot(processors=4) for _ in range(3)]
    for pilot in pilots:
        pilot.node = replace(pilot.node, processors=4)
    offers = [pilot.hold() for pilot in pilots]
    pass_time(shares, 100)
    shares.charge()
    assert sum(shares.seconds().values()) == 300
    failing = pilots[0]
    failing.finish(offers[0], failure="node", message="the disk is full")
    pass_time(shares, 50)
    shares.charge()
    # Failed tries are charged as others; bob's job holds four cores.
    assert sum(shares.seconds().values()) == 400
    cores = shares.book.look({"": HOUR})[""].cores
    bobs = shares.seconds()["bob", "physics"]
    assert round(cores["bob", "physics"] * HOUR) == 4 * bobs > 0


def test_a_new_server_knows_what_the_last_one_has_stored(bench: Bench, shares: Shares) -> None:
    bench.submit(1)
    offer = (pilot := bench.pilot()).hold()
    pass_time(shares, 1000)
    shares.charge()
    pilot.finish(offer)
    pass_time(shares, 500)
    shares.charge()
    before = shares.seconds(DAY)
    again = Shares(bench)
    assert again.charge().buckets == []
    assert again.seconds(DAY) == before == {("alice", "physics"): 1000}


@pytest.mark.parametrize("is_other", [False, True], ids=["the same server", "another server"])
def test_owners_of_a_charge_that_was_not_stored_are_stored_later(
    bench: Bench, shares: Shares, is_other: bool
) -> None:
    bench.submit(1)
    bench.pilot().hold()
    pass_time(shares, 100)
    shares.charge()
    bench.submit(1, owner="bob")
    bench.pilot().hold()
    # There was no sign of life since, so the ledger is charged up to the same instant as the stored one.
    later = Shares(bench) if is_other else shares
    assert later.book.charge(bench.connection).as_of == shares.book.as_of
    pass_time(later, 100)
    later.charge()
    stored = bench.connection.execute("SELECT place, owner FROM use_entities ORDER BY place").fetchall()
    assert [tuple(row) for row in stored] == [(0, "alice"), (1, "bob")]


def test_owners_that_another_server_has_stored_up_to_the_same_instant_are_known(
    bench: Bench, shares: Shares
) -> None:
    bench.submit(1)
    bench.pilot().hold()
    pass_time(shares, 100)
    shares.charge()
    bench.submit(1, owner="bob")
    bench.pilot().hold()
    other = Shares(bench)
    other.charge()
    assert other.book.as_of == shares.book.as_of
    assert shares.charge().known_entities == 2


def test_rebuilt_buckets_equal_the_stored_ones(bench: Bench, shares: Shares) -> None:
    jobs = bench.submit(3)
    pilots = [bench.pilot() for _ in jobs]
    for number, pilot in enumerate(pilots):
        offer = pilot.hold()
        pass_time(shares, 400 + 37 * number)
        shares.charge()
        pilot.finish(offer, exit_code=number)
    pass_time(shares, 5000)
    shares.charge()
    stored = sorted(bench.connection.execute("SELECT span, start, jobs, cores FROM use_buckets").fetchall())
    assert stored
    bench.do(lambda tx: usage.reset(tx.connection))
    other = Shares(bench)
    other.charge()
    anew = sorted(bench.connection.execute("SELECT span, start, jobs, cores FROM use_buckets").fetchall())
    assert [row[:2] for row in anew] == [row[:2] for row in stored]
    assert other.seconds(2 * HOUR) == shares.seconds(2 * HOUR) == {("alice", "physics"): 400 + 437 + 474}


def test_deleted_jobs_have_been_used_all_the_same(bench: Bench, shares: Shares) -> None:
    [job] = bench.submit(1)
    pilot = bench.pilot()
    offer = pilot.hold()
    pass_time(shares, 100)
    pilot.finish(offer, wall=90.0, cpu=45.0)
    bench.act("delete", job)
    bench.do(lambda tx: usage.reset(tx.connection))
    shares.charge()
    assert shares.seconds() == {("alice", "physics"): 100}
    [row] = accounted(bench, None, None, None)
    assert (row.wall, row.cpu, row.owner, row.site) == (90, 45, "alice", "here")


def test_a_late_result_is_not_charged_twice(bench: Bench, shares: Shares) -> None:
    bench.submit(1)
    pilot = bench.pilot()
    offer = pilot.hold()
    pass_time(shares, 301)
    bench.duties()  # the lease is over
    shares.charge()
    pass_time(shares, 10)
    assert pilot.finish(offer) == "accepted"
    shares.charge()
    bench.do(lambda tx: usage.reset(tx.connection))
    anew = Shares(bench)
    anew.charge()
    assert anew.seconds() == shares.seconds()


def test_down_time_is_charged_to_nobody_and_not_looked_back_upon(bench: Bench, shares: Shares) -> None:
    bench.submit(1)
    bench.pilot().hold()
    pass_time(shares, 600)
    shares.charge()
    bench.now += 5 * HOUR  # the server is down
    shares.charge()
    assert shares.seconds(3600) == {("alice", "physics"): 600}
    assert shares.row("physics").slices == []
    shares.cycle()
    # The last hour of up-time is that before the outage: the group has used all of it, not nothing.
    [hour] = shares.row("physics").slices
    assert (hour.used, hour.correction) == (1.0, 1.0)


@pytest.mark.parametrize("step", [DAY, -DAY, 400 * DAY, -400 * DAY])
def test_a_step_of_the_clock_charges_nobody(bench: Bench, shares: Shares, step: float) -> None:
    bench.submit(2)
    pilot = bench.pilot()
    pilot.hold()
    pass_time(shares, 600)
    shares.charge()
    bench.now += step
    shares.charge()
    pass_time(shares, 600)
    shares.charge()
    charged = sum(shares.seconds(HOUR).values())
    # What ran before the step may be lost with the times that it had, but nobody is charged for the step.
    assert 600 <= charged <= 1200
    other = bench.pilot()
    other.hold()
    pass_time(shares, 600)
    shares.charge()
    assert 600 + 2 * 600 <= sum(shares.seconds(HOUR).values()) <= charged + 2 * 600
    back = Shares(bench)
    back.charge()
    assert back.seconds(HOUR) == shares.seconds(HOUR)


def test_an_attempt_begins_after_the_last_heartbeat_though_the_clock_has_stepped_back(
    bench: Bench, shares: Shares
) -> None:
    bench.submit(1)
    pilot = bench.pilot()
    pass_time(shares, 600)
    shares.charge()
    bench.now -= 300
    pilot.hold()
    bench.now += 400  # the server is down before it has noticed the step
    bench.sign_of_life()
    pass_time(shares, 60)
    shares.charge()
    assert shares.seconds() == {("alice", "physics"): 60}
    bench.do(lambda tx: usage.reset(tx.connection))
    anew = Shares(bench)
    anew.charge()
    assert anew.seconds() == shares.seconds()


def test_an_attempt_ends_after_the_last_heartbeat_though_the_clock_has_stepped_back(
    bench: Bench, shares: Shares
) -> None:
    bench.submit(2)
    pilots = [bench.pilot(), bench.pilot()]
    offers = [pilot.hold() for pilot in pilots]
    pass_time(shares, 600)
    shares.charge()
    bench.now -= 300
    pilots[0].finish(offers[0])
    bench.do(lambda tx: end_silent_pilot(bench.pool, tx, pilots[1].row, PilotEnd.VANISHED, "", bench.now))
    bench.now += 400  # the server is down before it has noticed the step
    bench.sign_of_life()
    shares.charge()
    assert shares.seconds() == {("alice", "physics"): 2 * 600}
    bench.do(lambda tx: usage.reset(tx.connection))
    anew = Shares(bench)
    anew.charge()
    assert anew.seconds() == shares.seconds()


@pytest.mark.parametrize("begins", [False, True])
def test_after_a_short_step_back_no_future_use_is_charged(bench: Bench, shares: Shares, begins: bool) -> None:
    bench.submit(3)
    pilots = [bench.pilot(), bench.pilot()]
    offers = [pilot.hold() for pilot in pilots]
    pass_time(shares, 600)
    shares.charge()
    bench.now -= 20
    bench.do(lambda tx: leases.heartbeat(bench.pool, tx, bench.now, begins=begins))
    for pilot, offer in zip(pilots, offers, strict=True):
        pilot.finish(offer)
    pilots[0].hold()
    pass_time(shares, 60)
    shares.charge()
    assert shares.seconds() == {("alice", "physics"): 2 * 580 + 60}


def test_an_attempt_that_ends_before_its_begin_keeps_its_wall_time(bench: Bench) -> None:
    bench.submit(1)
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.now -= 300
    pilot.finish(offer, wall=30.0)
    assert bench.connection.execute("SELECT wall FROM attempts").fetchone()[0] == 30.0


def test_a_clock_that_goes_to_next_year_and_returns_leaves_nothing_behind(
    bench: Bench, shares: Shares
) -> None:
    bench.submit(1)
    bench.pilot().hold()
    pass_time(shares, 600)
    shares.charge()
    bench.submit(1)
    other = bench.pilot()
    offer = other.hold()
    for step in (365 * DAY, -365 * DAY):
        bench.now += step
        shares.charge()
        # What ended in the wrong year has not run until then.
        other.finish(offer)
    assert bench.connection.execute("SELECT count(*) FROM outages").fetchone()[0] == 0
    pass_time(shares, 600)
    shares.charge()
    assert sum(shares.seconds(HOUR).values()) == 1200


def test_use_is_rebuilt_after_a_kill_while_it_was_saved(bench: Bench, shares: Shares) -> None:
    bench.submit(1)
    bench.pilot().hold()
    pass_time(shares, 2 * HOUR)
    bench.sign_of_life()
    charged = shares.book.charge(bench.connection)
    parts = list(shares.book.saving(charged))
    assert len(parts) > 2
    for part in parts[:-1]:
        bench.do(lambda tx, part=part: corrections.save_use(tx, part))
    assert usage.as_of(bench.connection) is None
    again = Shares(bench)
    again.charge()
    assert again.seconds(2 * HOUR) == {("alice", "physics"): 2 * HOUR}


def test_a_pilot_that_was_given_up_has_used_its_cores_when_it_comes_back(
    bench: Bench, shares: Shares
) -> None:
    bench.submit(1)
    pilot = bench.pilot()
    offer = pilot.hold()
    begun = bench.now
    pass_time(shares, 2 * LEASE)
    bench.duties()
    shares.charge()
    charged = sum(shares.seconds(HOUR).values())
    pass_time(shares, 600)
    shares.charge()
    assert sum(shares.seconds(HOUR).values()) == charged, "its attempt has ended with its lease"
    pilot.send(holding=[offer])
    pass_time(shares, 60)
    assert pilot.finish(offer) == "accepted"
    shares.charge()
    assert sum(shares.seconds(HOUR).values()) == pytest.approx(bench.now - begun)


def test_an_attempt_that_goes_on_while_all_buckets_are_stored_is_charged(
    bench: Bench, shares: Shares
) -> None:
    bench.submit(1)
    pilot = bench.pilot()
    offer = pilot.hold()
    begun = bench.now
    pass_time(shares, 2 * HOUR)
    bench.duties()  # the lease is over
    pass_time(shares, 600)
    bench.sign_of_life()
    first, *others = shares.book.saving(shares.book.charge(bench.connection))
    assert first.anew
    assert others
    bench.do(lambda tx: corrections.save_use(tx, first))
    pilot.send(holding=[offer])
    with pytest.raises(corrections.LedgerOutdated):
        bench.do(lambda tx: corrections.save_use(tx, others[0]))
    shares.charge()
    assert sum(shares.seconds(DAY).values()) == pytest.approx(bench.now - begun)


def test_a_store_that_went_another_way_is_read_again(bench: Bench, shares: Shares) -> None:
    bench.submit(1)
    bench.pilot().hold()
    pass_time(shares, 600)
    shares.charge()
    pass_time(shares, 60)
    bench.sign_of_life()
    [part] = shares.book.saving(shares.book.charge(bench.connection))
    assert not part.anew
    bench.now -= HOUR  # between reading and saving the clock steps back
    bench.sign_of_life()
    with pytest.raises(corrections.LedgerOutdated):
        bench.do(lambda tx: corrections.save_use(tx, part))
    shares.charge()
    assert shares.book.as_of == bench.now


# --- corrections


def test_corrections_reach_the_queues_and_stay_under_a_new_policy(bench: Bench, shares: Shares) -> None:
    bench.submit(2)
    bench.submit(2, group="sharing")
    bench.pilot()
    physics = next(e for e in bench.pool.queues.index.entries.values() if e.identity.group == "physics")
    assert physics.priority == 1000
    pilot = bench.pilot()
    offer = pilot.hold()
    user = "physics" if bench.job(offer.job)["queue_id"] == physics.id else "sharing"
    pass_time(shares, 600)
    shares.cycle()
    # One had everything where half was expected; the other had nothing.
    queues = {entry.identity.group: entry.priority for entry in bench.pool.queues.index.entries.values()}
    assert queues.pop(user) == 500
    assert list(queues.values()) == [4000]
    text = CORRECTED.replace("share = 1000", "share = 2000")
    policy = policies.parse(text)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="alice", reason="", now=bench.now))
    shares.settle()
    queues = {entry.identity.group: entry.priority for entry in bench.pool.queues.index.entries.values()}
    assert queues["physics"] in (1000, 8000)


def test_corrections_that_could_not_be_stored_do_not_apply(bench: Bench, shares: Shares) -> None:
    bench.submit(2)
    shares.cycle()
    before = bench.pool.shares.corrections
    found = corrections.compute_corrections(shares.book, corrections.waiting_entities(bench.pool), None, {})

    def fails(tx: object) -> None:
        corrections.apply_corrections(bench.pool, tx, found, 1.0)  # type: ignore[arg-type]
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        bench.do(fails)
    assert bench.pool.shares.corrections is before
    assert usage.corrector_memory(bench.connection)[0] != 1.0


def test_the_index_notes_a_new_waiting_owner_once(bench: Bench, shares: Shares) -> None:
    priorities = bench.pool.queues.index.priorities
    assert not priorities.newcomers
    bench.submit(1)
    assert priorities.newcomers
    priorities.newcomers = False
    bench.submit(1, cpu_time=5000)
    assert not priorities.newcomers, "the same owner with another queue"
    bench.submit(1, owner="bob")
    assert priorities.newcomers


def test_settling_is_cut_up(bench: Bench, shares: Shares) -> None:
    count = corrections.QUEUES_PER_REQUEST * 2 + 7
    for number in range(count):
        bench.submit(1, job_type=f"T{number}")
    turns = 1
    while not bench.do(lambda _: corrections.apply_priorities(bench.pool.queues)):
        turns += 1
    assert turns == 3
    priorities = [entry.priority for entry in bench.pool.queues.index.entries.values()]
    assert priorities == [pytest.approx(1000 / count)] * count


def test_the_table_tells_of_everybody_and_adds_up(bench: Bench, shares: Shares) -> None:
    bench.submit(1)
    bench.submit(3, owner="bob")
    bench.submit(1, group="sharing")
    shares.cycle()
    alice, bob, physics = shares.row("physics", "alice"), shares.row("physics", "bob"), shares.row("physics")
    assert alice.priority + bob.priority == physics.priority == 1000
    assert (physics.waiting, physics.queues, physics.entitled) == (4, 2, 0.5)
    assert (bob.share, bob.entitled, bob.waiting) == (500, 0.5, 3)
    assert [part.name for part in alice.slices] == ["Hour"]
    assert shares.row("sharing").priority == 1000


def test_a_group_that_goes_while_its_jobs_wait_is_flagged_and_they_stay(bench: Bench, shares: Shares) -> None:
    [job] = bench.submit(1, owner="bob")
    [other] = bench.submit(1, group="sharing")
    text = CORRECTED.replace('[groups.sharing]\nproperties = ["NORMAL_USER", "JOB_SHARING"]\n', "").replace(
        ', "sharing"', ""
    )
    policy = policies.parse(text)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="alice", reason="", now=bench.now))
    shares.cycle()
    assert bench.state(other) == "Waiting"
    flagged = shares.row("sharing")
    assert (flagged.waiting, flagged.priority, flagged.entitled) == (1, 0, None)
    assert flagged.note == shares.row("sharing", "alice").note == STRANDED
    assert shares.row("physics").note == shares.row("physics", "bob").note == ""
    pilot = bench.pilot()
    assert [offer.job for offer in pilot.take(count=1)] == [job]
    assert bench.pilot().take() == []
    assert bench.pilot().send(take=pilot.asked(1, number=9)).no_match == {"membership": 1}
    policy = policies.parse(CORRECTED)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, CORRECTED, by="alice", reason="", now=bench.now))
    assert [offer.job for offer in bench.pilot().take()] == [other]


HALF_LIFE = """\
[correction.HalfLife.Groups]
half_life = 3600
max_correction = 3
[correction.HalfLife.Physicists]
group = "physics"
"""


def test_two_correctors_multiply_are_shown_apart_and_survive_a_restart(tmp_path: Path) -> None:
    text = CORRECTED.replace('["WMSHistory"]', '["WMSHistory", "HalfLife"]') + HALF_LIFE
    bench = Bench(tmp_path, text, START)
    shares = Shares(bench)
    for owner in ("alice", "bob"):
        bench.submit(5, owner=owner)
    bench.submit(5, group="sharing")
    bench.pilot().hold()
    pass_time(shares, 1200)
    shares.cycle()
    rows = {
        (row.group, row.owner): row for row in share_table(entitlements(bench.pool), shares.book.as_of).rows
    }
    for group in ("physics", "sharing"):
        row = rows[group, ""]
        assert [(one.corrector, one.instance) for one in row.factors] == [
            ("WMSHistory", "Groups"),
            ("HalfLife", "Groups"),
        ]
        history, half_life = (one.factor for one in row.factors)
        assert row.correction == row.scaled == history * half_life
        assert row.priority == pytest.approx(1000 * row.correction)
        assert {(part.corrector, part.measure) for part in row.slices} == {
            ("WMSHistory", "used"),
            ("HalfLife", "decayed"),
        }
    assert {rows["physics", ""].correction, rows["sharing", ""].correction} == {0.5 / 3, 4 * 3}
    assert len(rows["physics", "alice"].factors) == 2
    # Another server, with nothing but the store, comes to the same.
    before = bench.pool.shares.corrections
    again = Shares(bench)
    again.cycle()
    assert bench.pool.shares.corrections.groups == pytest.approx(before.groups)
    assert bench.pool.shares.corrections.owners == pytest.approx(before.owners)
    bench.close()


def test_use_that_nothing_corrects_is_shown_beside_a_corrector_of_others(tmp_path: Path) -> None:
    text = (
        POLICY + '[correction]\ncorrectors = ["HalfLife"]\n[correction.HalfLife.Groups]\nhalf_life = 3600\n'
    )
    bench = Bench(tmp_path, text, START)
    shares = Shares(bench)
    bench.submit(2)
    bench.pilot().hold()
    pass_time(shares, 600)
    shares.cycle()
    physics, alice = shares.row("physics"), shares.row("physics", "alice")
    assert [one.corrector for one in physics.factors] == ["HalfLife"]
    assert [part.measure for part in physics.slices] == ["decayed"]
    assert (alice.factors, alice.correction) == ([], 1.0)
    assert [part.name for part in alice.slices] == ["Hour", "Week"]
    bench.close()


# --- accounting


def test_accounts_by_month_site_group_and_owner(bench: Bench, shares: Shares) -> None:
    bench.submit(2, processors=2)
    bench.submit(1, owner="bob")
    pilots = [bench.pilot(processors=2) for _ in range(3)]
    for pilot in pilots:
        pilot.node = replace(pilot.node, processors=2)
    offers = [pilot.hold() for pilot in pilots]
    bench.now += 1000
    pilots[0].finish(offers[0], wall=900.0, cpu=800.0)
    pilots[1].finish(offers[1], failure="node")
    bench.now += 40 * DAY
    pilots[2].finish(offers[2], exit_code=3, wall=50.0)
    rows = accounted(bench, None, None, None)
    assert sum(row.attempts for row in rows) == 3
    assert {row.month for row in rows} == {"2023-11", "2023-12"}
    assert sum(row.applied for row in rows) == 2
    wall = sum(row.wall for row in rows)
    assert wall == 900 + 1000 + 50
    own = accounted(bench, None, None, "bob")
    assert {row.owner for row in own} == {"bob"}
    since = accounted(bench, START + 20 * DAY, None, None)
    assert [row.month for row in since] == ["2023-12"]
    assert accounted(bench, START + 99 * DAY, None, None) == []
    told = list(csv.reader(io.StringIO("".join(_as_csv(rows)))))
    assert told[0][:4] == ["month", "site", "group", "owner"]
    assert len(told) == len(rows) + 1


def test_normalised_by_the_power_of_the_ce_at_the_time(tmp_path: Path) -> None:
    text = CORRECTED.replace('owners = "any"', 'owners = "any"\ncpu_power = 2.5')
    bench = Bench(tmp_path, text, START)
    bench.submit(1, processors=2)
    pilot = bench.pilot(processors=2)
    pilot.node = replace(pilot.node, processors=2)
    offer = pilot.hold()
    pilot.finish(offer, wall=10.0, cpu=8.0)
    text = CORRECTED
    policy = policies.parse(text)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="alice", reason="", now=bench.now))
    [row] = accounted(bench, None, None, None)
    assert astuple(row)[4:] == (1, 1, 10.0, 20.0, 8.0, 50.0, 20.0)
    bench.close()


# --- fairness


def test_fairness_tells_who_had_less_and_whether_they_wanted_more(bench: Bench, shares: Shares) -> None:
    bench.submit(30)
    bench.submit(30, group="sharing")
    for _ in range(10):
        bench.pilot().hold()
    pass_time(shares, 1200)
    shares.cycle()
    table = bench.pool.queues.index.priorities.table()
    found = fairness.period(bench.connection, shares.book, bench.pool.policy, START, bench.now)
    assert sum(found.starts.values()) == 10
    report = fairness.fairness_report(bench.pool.policy, table, found)
    groups = [row for row in report.rows if not row.owner]
    assert sum(row.used for row in groups) == pytest.approx(1)
    assert sum(row.expected for row in groups) == pytest.approx(1)
    # Ten draws tell little, and the bound says so.
    assert all(row.bound > 0.4 and row.verdict in ("within", "too few attempts") for row in groups)
