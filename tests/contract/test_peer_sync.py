"""Pools of several servers on one database: memory follows what the others commit, and a lost draw costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import time
from typing import Any

import psycopg
import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import NotFound
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.shares.turns import Turn
from pilotage.core.sites import SiteState
from pilotage.services.director.information import CeReply, forget, store_answers
from pilotage.services.jobs.actions import act
from pilotage.services.peers import sync
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol, secret_hash
from pilotage.services.pilots.exchange import token_hash
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.pilots.payload_uses import use_of
from pilotage.services.policy import apply, bans, site_states
from pilotage.services.pool import shared_limits
from pilotage.services.pool.state import Pool
from pilotage.services.tokens import changes as tokens
from pilotage.store.cluster import changes
from pilotage.store.tables import events, history, instance, jobs, pilots
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.payload_use import JobUse, PayloadUse
from pilotage.wire.pilot import EnrolRequest, ExchangeRequest
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import fill, postgresql_store
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.pilot_intent import pilot_intent
from tests.postgres import server
from tests.single_exchange import exchange

pytestmark = pytest.mark.slow


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[tuple[One, One, QueueId]]:
    store = postgresql_store(tmp_path, migrated=True)
    connection = store.open_writer()
    queue = fill(connection)
    instance.save_policy(connection, text=POLICY, now=1.0, by="alice", reason="")
    made = One(store, "a"), One(store, "b")
    yield (*made, queue)
    for one in made:
        one.end()
    connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


def test_each_server_counts_jobs_of_the_other_once(pools: tuple[One, One, QueueId]) -> None:
    a, b, queue = pools
    assert a.waiting(queue) == b.waiting(queue) == {1: 5, 2: 5}
    a.make(queue, 7)
    b.make(queue, 3)
    with pytest.raises(RuntimeError):
        a.make(queue, 100, fail=True)
    a.follow()
    b.follow()
    b.follow()
    assert a.waiting(queue) == b.waiting(queue) == {1: 15, 2: 5}
    assert (a.recount(), b.recount()) == (0, 0)


def test_no_server_gives_a_job_before_one_of_a_higher_priority(pools: tuple[One, One, QueueId]) -> None:
    """Also while one does not know yet which jobs the other has given."""
    a, b, queue = pools
    for one in (a, b, b, a, b):
        assert one.take(queue)
    a.follow()
    b.follow()
    assert a.waiting(queue) == b.waiting(queue) == {1: 5}


def test_changes_of_rules_wait_for_no_transaction_of_another_database(
    pools: tuple[One, One, QueueId],
) -> None:
    """Bans, revoked tokens, states of sites and policies count at once; counts of jobs follow when they can."""
    a, b, queue = pools
    token = a.writer.call(
        lambda tx: tokens.create_token(a.pool.ids, tx, "alice", "physics", expires=1e12, by="alice", now=2.0)
    )
    with psycopg.connect(server().url("postgres")) as foreign:
        foreign.execute("SELECT pg_current_xact_id()")
        a.make(queue, 7)
        a.writer.call(
            lambda tx: bans.ban(a.pool, tx, "alice", "here", by="ada", reason="", now=5.0, until=None)
        )
        b.follow()
        assert b.pool.offers.cache.banned_at("here") == frozenset({"alice"})
        a.writer.call(
            lambda tx: tokens.revoke_token(a.pool, tx, token, owner="alice", by="alice", now=time())
        )
        b.follow()
        assert b.pool.server.token_state.is_revoked(token, "alice", 3.0)
        text = POLICY + "[users.carol]\ngroups = ['physics']\n"
        a.writer.call(
            lambda tx: apply.apply_policy(
                a.pool, tx, policies.parse(text), text, by="ada", reason="", now=6.0
            )
        )
        b.follow()
        assert "carol" in b.pool.policy.users
        assert b.waiting(queue) == {1: 5, 2: 5}
        found = changes.read(b.store.readers.connection(), b.peers.position, "b")
        assert found.rules == b.peers.rules
        assert not sync.has_news(b.peers, found)
    b.follow()
    b.follow()
    assert b.waiting(queue) == {1: 12, 2: 5}
    assert b.recount() == 0


def test_an_offer_waits_for_no_job_that_another_server_changes(pools: tuple[One, One, QueueId]) -> None:
    """Two servers that offer jobs of one queue in several statements would wait for each other."""
    a, b, _ = pools

    def offered(tx: Transaction, pilot: int, *numbers: int) -> set[JobId]:
        moves = [jobs.OfferedJobRow(PilotId(pilot), 1, 2.0, 7, JobId(n), 0) for n in numbers]
        return jobs.save_offered(tx.connection, moves)

    def both(tx: Transaction) -> set[JobId]:
        assert offered(tx, 1, 4, 2) == set()
        # Within this transaction the other server offers some of the same jobs, and is answered.
        assert b.writer.call(lambda tx: offered(tx, 2, 1, 2, 3, 4)) == {2, 4}
        return offered(tx, 1, 1, 5)

    assert a.writer.call(both) == {1}
    held = a.writer.call(lambda tx: jobs.by_ids(tx.connection, range(1, 6), for_update=False))
    assert {job: row.pilot for job, row in held.items()} == {1: 2, 2: 1, 3: 2, 4: 1, 5: 1}


def test_old_memory_ends_no_ban_and_opens_no_site(pools: tuple[One, One, QueueId]) -> None:
    """Server b knows a ban and a closed site that end at 9. At a both were given more time, and b has not heard it."""
    a, b, _ = pools

    def set_both(one: One, until: float | None) -> None:
        def request(tx: Transaction) -> None:
            bans.ban(one.pool, tx, "alice", "here", by="ada", reason="", now=5.0, until=until)
            site_states.set_site_state(
                one.pool, tx, "here", SiteState.DOWN, by="ada", reason="", now=5.0, until=until
            )

        one.writer.call(request)

    set_both(a, 9.0)
    b.follow()
    set_both(a, None)
    assert b.writer.call(lambda tx: bans.expire_bans(b.pool, tx, 10.0)) == 0
    assert b.writer.call(lambda tx: site_states.end_states(b.pool, tx, 10.0)) == 0
    for one in (a, b):
        assert one.pool.offers.cache.banned_at("here") == frozenset({"alice"})
        assert one.pool.offers.site_states["here"].until is None
    # A person lifts it at b, right after it was set at a.
    b.writer.call(lambda tx: bans.lift(b.pool, tx, "alice", "here", by="ada", reason="", now=11.0))
    with pytest.raises(NotFound, match="alice is not banned"):
        a.writer.call(lambda tx: bans.lift(a.pool, tx, "alice", "here", by="ada", reason="", now=12.0))


def test_a_ban_counts_at_every_server(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools
    a.writer.call(lambda tx: bans.ban(a.pool, tx, "alice", "here", by="ada", reason="", now=5.0, until=None))
    assert b.pool.offers.cache.banned_at("here") == frozenset()
    b.follow()
    assert b.pool.offers.cache.banned_at("here") == frozenset({"alice"})
    assert b.pool.offers.cache.banned_at("there") == frozenset()
    b.writer.call(lambda tx: bans.lift(b.pool, tx, "alice", "here", by="ada", reason="", now=6.0))
    a.follow()
    assert a.pool.offers.cache.banned_at("here") == frozenset()


def test_information_about_a_ce_counts_at_every_server(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools
    hosts = (HostClass(2, {"GlueHostBenchmarkSI00": 600, "Ratio": 1.0}, ("n1", "n2")),)

    def store(server: One, updated: float, **attributes: int) -> None:
        facts = CeInformation(dict(attributes), hosts, updated=updated, expiry=30.0)
        answers = [CeReply("ce here", facts)]
        server.writer.call(lambda tx: store_answers(server.pool, tx, answers, updated))

    for updated, free in ((5.0, 1), (6.0, 1), (7.0, 2)):
        store(a, updated, GlueCEStateFreeCPUs=free)
        b.follow()
        assert b.pool.ces.information == a.pool.ces.information
        assert b.pool.ces.information["ce here"].updated == updated
    store(b, 8.0, GlueCEStateFreeCPUs=3)
    a.follow()
    assert a.pool.ces.information["ce here"].attributes == {"GlueCEStateFreeCPUs": 3}
    assert a.pool.ces.information["ce here"].host_classes == hosts
    a.writer.call(lambda tx: forget(a.pool, tx, ["ce here"]))
    b.follow()
    assert b.pool.ces.information == {}


def test_a_state_of_a_site_counts_at_every_server(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools

    def switch(server: One, state: SiteState) -> None:
        server.writer.call(
            lambda tx: site_states.set_site_state(
                server.pool, tx, "here", state, by="ada", reason="", now=5.0
            )
        )

    switch(a, SiteState.DOWN)
    b.follow()
    assert b.pool.offers.cache.is_down("here")
    switch(b, SiteState.NORMAL)
    a.follow()
    assert not a.pool.offers.cache.is_down("here")


def test_a_follower_skips_changes_that_its_count_has_seen(pools: tuple[One, One, QueueId]) -> None:
    a, b, queue = pools
    a.make(queue, 7)
    # Read from the store before the row of it is followed.
    b.writer.call(lambda tx: b.pool.queues.reload(tx, queue))
    assert b.waiting(queue) == {1: 12, 2: 5}
    b.follow()
    assert b.waiting(queue) == {1: 12, 2: 5}


def test_a_recount_allows_for_changes_not_followed_yet(pools: tuple[One, One, QueueId]) -> None:
    a, b, queue = pools
    a.make(queue, 7)
    assert b.recount() == 0
    b.follow()
    assert b.waiting(queue) == {1: 12, 2: 5}
    # One that is really wrong is set right and told.
    b.writer.call(lambda tx: b.pool.queues.index.reset_queue(queue, {1: 3}))
    assert b.recount() == 1
    assert b.waiting(queue) == {1: 12, 2: 5}
    assert b.peers.differences == 1


def test_a_server_behind_the_pruned_changes_counts_all_again(pools: tuple[One, One, QueueId]) -> None:
    a, b, queue = pools
    a.make(queue, 7)
    a.writer.call(lambda tx: changes.prune(tx.connection, 1e12))
    b.follow()
    assert b.waiting(queue) == {1: 12, 2: 5}


def test_a_lost_draw_counts_until_the_winners_note_comes(pools: tuple[One, One, QueueId]) -> None:
    a, b, queue = pools

    def take(one: One) -> int:
        def request(tx: Any) -> int:
            one.pool.queues.touch(tx, queue)
            entry = one.pool.queues.index.entries[queue]
            proposal = one.pool.queues.index._take_job(entry, Random(3))
            assert proposal is not None
            return int(proposal.head[0])

        return one.writer.call(request)

    job = take(a)
    assert sum(a.waiting(queue).values()) == 9
    weight = 1 + job % 2
    b.writer.call(lambda tx: b.pool.queues.touch(tx, queue))
    head = next(part for w, part in b.pool.queues.index.entries[queue].levels.items() if w == weight)
    assert head.count == 5
    b.pool.queues.index.delta.gone.append((queue, weight, job, 0))
    b.pool.queues.index.entries[queue].add_count(weight, head, -1)  # it proposed the same one ...
    b.writer.call(
        lambda tx: b.pool.queues.index.restore_lost_job(queue, weight, JobId(job))
    )  # ... and lost it
    assert sum(b.waiting(queue).values()) == 10
    b.follow()
    assert sum(b.waiting(queue).values()) == 9


def test_one_of_two_reschedules_of_an_old_job_is_refused(pools: tuple[One, One, QueueId]) -> None:
    """It was in history: the second one waits for the first, and then looks at what has become of it."""
    a, b, _ = pools
    job = JobId(3)

    def does(one: One, verb: str, then: Callable[[], None] = lambda: None) -> list[int]:
        def request(tx: Any) -> list[int]:
            done = act(one.pool, tx, verb, [job], actor="user:alice", reason="", now=9.0, dry_run=False).done
            then()
            return done

        return one.writer.call(request)

    def waited_for() -> None:
        begun.set()
        sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        until(lambda: a.store.readers.connection().execute(sql).fetchone(), what="the other one's waiting")

    assert does(a, "kill") == [job]
    assert a.writer.call(lambda tx: history.archive(tx.connection, 10.0, 100)) == 1
    begun = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(does, a, "reschedule", waited_for)
        assert begun.wait(PATIENCE)
        assert does(b, "reschedule") == []
        assert first.result(PATIENCE) == [job]
    row = b.writer.call(lambda tx: jobs.by_ids(tx.connection, [job])[job])
    moves = b.writer.call(lambda tx: events.history(tx.connection, job, row.last_event))
    assert [move.kind for move in moves] == ["killed", "rescheduled", "requeued"]


def test_a_place_is_not_given_twice_when_blocks_are_tended_in_the_transaction_of_a_start(
    pools: tuple[One, One, QueueId],
) -> None:
    a, _, queue = pools
    a.writer.call(lambda tx: limited(a.pool, tx, 3))
    [limit] = a.pool.offers.limits.limiter.limits
    identity = a.pool.queues.identities[queue]
    place = a.writer.call(lambda tx: pilots.by_id(tx.connection, PilotId(1)))
    assert place is not None
    # It takes until everybody matches by the policy, and until the places are borrowed.
    a.writer.call(lambda tx: [shared_limits.establish(a.pool, tx, 1.0), a.pool.offers.limits.recount(tx)])
    assert a.pool.offers.limits.limiter.closed_limits(place.site, place.ce, 1.0) == [limit]
    a.writer.call(lambda tx: shared_limits.rebalance(a.pool, tx, 1.0))
    started = 0
    while not a.pool.offers.limits.limiter.closed_limits(place.site, place.ce, 1.0):

        def request(tx: Any) -> None:
            a.pool.offers.limits.started(tx, identity, place, 1.0)
            shared_limits.rebalance(a.pool, tx, 1.0)

        a.writer.call(request)
        started += 1
        assert started <= 3
    assert started >= 1


def test_a_server_that_starts_without_a_limit_returns_no_place(pools: tuple[One, One, QueueId]) -> None:
    """The duty has not looked in between."""
    a, _, queue = pools
    identity = a.pool.queues.identities[queue]
    place = a.writer.call(lambda tx: pilots.by_id(tx.connection, PilotId(1)))
    assert place is not None
    a.writer.call(lambda tx: limited(a.pool, tx, 3))
    a.writer.call(lambda tx: shared_limits.establish(a.pool, tx, 1.0))
    unlimited = policies.parse(POLICY)
    a.writer.call(
        lambda tx: apply.apply_policy(a.pool, tx, unlimited, POLICY, by="alice", reason="", now=2.0)
    )
    a.writer.call(lambda tx: a.pool.offers.limits.started(tx, identity, place, 2.0))
    a.writer.call(lambda tx: limited(a.pool, tx, 0))
    a.writer.call(lambda tx: a.pool.offers.limits.left(tx, identity, place))
    a.writer.call(lambda tx: shared_limits.establish(a.pool, tx, 3.0))
    for _ in range(3):
        a.writer.call(lambda tx: shared_limits.rebalance(a.pool, tx, 3.0))
        assert a.pool.offers.limits.limiter.closed_limits(place.site, place.ce, 3.0)
    free = "SELECT free FROM limit_states UNION ALL SELECT free FROM limit_blocks"
    assert a.writer.call(lambda tx: sum(row[0] for row in tx.connection.execute(free))) == 0


def limited(pool: Pool, tx: Any, most: int) -> None:
    """A policy with a running limit is in force, at every server."""
    text = POLICY + f'[[limits]]\nattribute = "owner"\nvalue = "alice"\nrunning = {most}\n'
    apply.apply_policy(pool, tx, policies.parse(text), text, by="alice", reason="", now=1.0)
    tx.connection.execute("UPDATE servers SET policy_version = ?", (pool.server.policy_version,))


def test_a_kill_at_a_server_that_did_not_know_the_job_reaches_the_others(
    pools: tuple[One, One, QueueId],
) -> None:
    a, b, queue = pools
    b.writer.call(lambda tx: b.pool.queues.index.reset_queue(queue, {}))
    b.kill(0)
    a.follow()
    assert sum(a.waiting(queue).values()) == 9


def test_a_turn_is_given_back_when_its_pilot_calls_another_server_first(
    pools: tuple[One, One, QueueId],
) -> None:
    """The server that started the pilot would otherwise wait for its first call, and start no other for the owner."""
    a, b, _ = pools
    book = a.pool.shares.turns
    book.accounts["local"] = {"alice": -30.0, "bob": 30.0}
    turn = Turn("local", "alice", 60.0, credited={"alice": 30.0, "bob": 30.0}, paid=60.0)

    def start(tx: Any) -> PilotId:
        pilot = pilots.insert(
            tx.connection,
            pilot_intent("s", secret_hash=secret_hash("h"), only_owner="alice"),
        )
        book.start(pilot, turn)
        return pilot

    pilot = a.writer.call(start)
    a.writer.call(lambda tx: leases.silent(a.pool, tx, 2.0))
    assert book.running == {pilot: turn}
    call_home(b, "h", 2.0)
    a.follow()
    assert book.running == {}
    assert book.accounts["local"] == {"alice": 0.0, "bob": 0.0}


def call_home(one: One, secret: str, now: float) -> str:
    """The hash of the token that a pilot gets from a server."""
    request = EnrolRequest(secret=secret, index=0, nonce="n", hostname="n1")
    return token_hash(one.writer.call(lambda tx: enrol(one.pool, tx, request, now)).token)


def new_pilot(one: One, secret: str) -> PilotId:
    return one.writer.call(
        lambda tx: pilots.insert(
            tx.connection,
            pilot_intent(secret),
        )
    )


def silent(one: One, now: float, *, orphans: bool = False) -> list[PilotId]:
    while not one.writer.call(lambda tx: leases.load_watch(one.pool, tx, now, orphans=orphans)):
        pass
    return one.writer.call(lambda tx: leases.silent(one.pool, tx, now))


def beat(one: One, token: str, now: float, **parts: Any) -> None:
    request = ExchangeRequest(incarnation=1, **parts)
    one.writer.call(lambda tx: exchange(one.pool, tx, token, request, now))


def test_a_pilot_is_watched_by_the_server_that_it_speaks_to(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools
    pilot = new_pilot(a, "moving")
    token = call_home(a, "moving", 10.0)
    assert silent(a, 11.0) == []
    assert pilot in a.pool.pilots.last_seen
    beat(b, token, 20.0)
    a.follow()
    assert pilot not in a.pool.pilots.last_seen
    assert (silent(a, 500.0), silent(b, 500.0)) == ([], [pilot])
    # It returns before the note of its move has been read: the note is old by then.
    beat(a, token, 510.0)
    beat(b, token, 511.0)
    beat(a, token, 512.0)
    a.follow()
    b.follow()
    assert pilot in a.pool.pilots.last_seen
    assert (silent(a, 900.0), silent(b, 900.0)) == ([pilot], [])


def test_a_pilot_that_turns_to_another_server_is_not_stalled(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools
    pilot = new_pilot(a, "moving")
    token = call_home(a, "moving", 10.0)
    assert silent(a, 500.0) == [pilot]

    def stalled_by_a() -> int:
        return a.writer.call(lambda tx: leases.note_stalled(a.pool, tx, 500.0, [pilot]))

    def heard_by_b(tx: Transaction) -> int:
        exchange(b.pool, tx, token, ExchangeRequest(incarnation=1), 500.0)
        # The message is not committed yet.
        return stalled_by_a()

    assert b.writer.call(heard_by_b) == 0
    assert stalled_by_a() == 0
    assert pilot not in a.pool.pilots.stalled
    assert silent(a, 500.0) == []


def test_a_pilot_that_another_server_ended_is_forgotten(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools
    pilot = new_pilot(a, "ended")
    call_home(a, "ended", 10.0)
    a.writer.call(lambda tx: tx.put(a.pool.pilots.finished, pilot, 3))

    def end(tx: Any) -> None:
        row = pilots.by_id(tx.connection, pilot)
        assert row is not None
        end_silent_pilot(b.pool, tx, row, PilotEnd.VANISHED, "gone", 20.0)

    b.writer.call(end)
    a.follow()
    assert pilot not in a.pool.pilots.last_seen
    counted = a.connection.execute("SELECT finished FROM pilots WHERE id = ?", (pilot,)).fetchone()
    assert counted == (3,)
    assert silent(a, 900.0) == []


def test_each_server_knows_the_use_of_all_payloads(pools: tuple[One, One, QueueId]) -> None:
    a, b, _ = pools
    pilot = new_pilot(a, "telling")
    token = call_home(a, "telling", 10.0)

    def known() -> list[JobUse | None]:
        b.follow()
        a.follow()
        return [use_of(one.pool, 1, 3, "Running", pilot) for one in (a, b)]

    assert known() == [None, None]
    beat(a, token, 20.0, uses=[PayloadUse(1, 3, ran=9.0, cpu=4.0)])
    told = JobUse(20.0, 9.0, 4.0, 0.0, 0, 0, None)
    assert known() == [told, told]
    beat(b, token, 50.0, uses=[PayloadUse(1, 3, ran=39.0, cpu=8.0)])
    assert known()[1] == JobUse(50.0, 39.0, 8.0, 0.0, 0, 0, None), "the pilot speaks to the other server now"
    beat(b, token, 80.0, uses=[PayloadUse(1, 3, ran=69.0, cpu=9.0)])
    assert known() == [JobUse(80.0, 69.0, 9.0, 0.0, 0, 0, None)] * 2
    beat(b, token, 90.0, uses=[PayloadUse(1, 3, ran=79.0)], leaving="idle")
    assert known() == [None, None]
    assert (a.pool.pilots.uses, b.pool.pilots.uses) == ({}, {})


def test_the_server_with_the_duty_listens_to_pilots_whose_server_has_gone(
    pools: tuple[One, One, QueueId],
) -> None:
    a, b, _ = pools
    pilot = new_pilot(a, "orphan")
    call_home(a, "orphan", 10.0)
    assert silent(b, 11.0, orphans=True) == []
    assert pilot not in b.pool.pilots.last_seen
    b.writer.call(lambda tx: tx.connection.execute("DELETE FROM servers WHERE name = 'a'"))
    assert silent(b, 20.0, orphans=True) == []
    assert silent(b, 900.0, orphans=True) == [pilot]
