"""Jobs of requests at two servers: memory follows releases and moves between queues, and no job waits twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pilotage.core.ids import JobId, QueueId
from pilotage.core.jobs.description import JobDescription
from pilotage.services.jobs.relocation import Place, relocate
from pilotage.services.peers import sync
from pilotage.services.submission.accept import identity_of
from pilotage.services.submission.of_requests import RequestJobs, submit_element_jobs
from pilotage.store.tables import instance
from pilotage.wire.pilot import ExchangeRequest, Node, Take
from tests.contract.one_of_several import POLICY, One
from tests.contract.stores import postgresql_store
from tests.contract.test_peer_sync import call_home, new_pilot
from tests.single_exchange import exchange

pytestmark = pytest.mark.slow

NODE = Node(hostname="n1", platform="el9", processors=1, memory=4096, cpu_left=100000.0, wall_left=100000.0)
SITES = '[sites.there]\n[ces.local]\nsite = "here"\nowners = "any"\n'


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[One, One]]:
    store = postgresql_store(tmp_path, migrated=True)
    monkeypatch.setattr("tests.contract.one_of_several.POLICY", POLICY + SITES)
    connection = store.open_writer()
    instance.create(connection, "i", 1.0)
    instance.save_policy(connection, text=POLICY + SITES, now=1.0, by="alice", reason="")
    made = One(store, "a"), One(store, "b")
    yield made
    for one in made:
        one.end()
    connection.close()
    store.readers.close()
    store.engine.dispose()
    store.drop()


def release(one: One, sites: str, count: int) -> list[JobId]:
    """Jobs that may run at these sites go to the pool, as the release submits them."""
    description = JobDescription(executable="/bin/true", job_type="Skim", sites=tuple(sites.split()))
    identity = identity_of(description, "alice", "physics", one.pool.policy)
    batch = RequestJobs.of(1, "alice", "physics", description, (), identity)
    first = one.writer.call(lambda tx: submit_element_jobs(one.pool, tx, batch, range(1, count + 1), 1.0))
    return [JobId(job) for job in range(first, first + count)]


def move(one: One, jobs: list[JobId], sites: str, priority: int = 1) -> int:
    place = Place(frozenset(sites.split()), priority)
    return one.writer.call(lambda tx: relocate(one.pool, tx, jobs, place, actor="a", reason="", now=2.0))


def waiting(one: One) -> dict[tuple[str, int], int]:
    return {
        (" ".join(sorted(entry.identity.sites)), priority): level.count
        for entry in one.pool.queues.index.entries.values()
        for priority, level in entry.levels.items()
        if level.count
    }


def take(one: One, token: str, number: int) -> list[int]:
    request = ExchangeRequest(incarnation=1, take=Take(number, 1, NODE))
    answer = one.writer.call(lambda tx: exchange(one.pool, tx, token, request, 3.0))
    return [offer.job for offer in answer.offers]


def test_a_move_leaves_no_job_in_two_queues(pair: tuple[One, One]) -> None:
    a, b = pair
    jobs = release(a, "here", 10)
    b.follow()
    new_pilot(b, "s")
    token = call_home(b, "s", 2.0)
    # Now b has the first jobs in memory.
    assert len(take(b, token, 1)) == 1
    assert move(a, jobs, "there", 2) == 10
    assert take(b, token, 2) == []
    for _ in range(2):
        a.follow()
        b.follow()
    assert waiting(a) == waiting(b) == {("there", 2): 9}
    assert (a.recount(), b.recount()) == (0, 0)
    assert move(b, jobs, "here there", 1) == 10
    assert len(take(b, token, 3)) == 1
    for _ in range(2):
        a.follow()
        b.follow()
    assert waiting(a) == waiting(b) == {("here there", 1): 8}
    assert (a.recount(), b.recount()) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_both_servers_move_and_draw_jobs_in_any_order(pair: tuple[One, One], seed: int) -> None:
    rng = Random(seed)
    jobs = release(pair[0], "here", 12)
    pilots: list[tuple[One, str]] = []
    numbers = {one.name: 0 for one in pair}
    for place, one in enumerate(pair):
        new_pilot(one, str(place))
        pilots.append((one, call_home(one, str(place), 2.0)))
    given: list[int] = []
    for _ in range(40):
        verb = rng.choice(["move", "move", "take", "follow", "release"])
        one, token = rng.choice(pilots)
        if verb == "move":
            move(one, rng.sample(jobs, 4), rng.choice(["here", "there", "here there"]), rng.randint(0, 2))
        elif verb == "take":
            numbers[one.name] += 1
            given += take(one, token, numbers[one.name])
        elif verb == "follow":
            one.follow()
        else:
            jobs += release(one, "here", 2)
    for _ in range(2):
        for one in pair:
            one.follow()
    for one in pair:
        # A server that moves a job before it hears of the last change doubts its counts, and reads them again.
        one.writer.call(lambda tx, one=one: sync.recount(one.pool, tx, sorted(one.peers.uncertain)))
    a, b = pair
    left = store_counts(a)
    assert sum(left.values()) == len(jobs) - len(given)
    assert len(given) == len(set(given))
    for queue, count in left.items():
        # Too high a count is set right by the next draw. A job that nobody counts would wait for long.
        assert min(sum(one.waiting(queue).values()) for one in pair) >= count
    for one in pair:
        one.recount()
    assert waiting(a) == waiting(b)
    assert sum(waiting(a).values()) == sum(left.values())


def store_counts(one: One) -> dict[QueueId, int]:
    sql = "SELECT queue_id, count(*) FROM jobs WHERE state = 'Waiting' GROUP BY queue_id"
    return one.writer.call(lambda tx: {QueueId(row[0]): row[1] for row in tx.connection.execute(sql)})
