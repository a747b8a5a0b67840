"""Several servers on one PostgreSQL: work goes on whichever is killed, and nothing is given or taken twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.faults.audit import audit_postgresql
from tests.faults.pair import Pair
from tests.instance import until
from tests.postgres import server

pytestmark = pytest.mark.slow

LIMITED = """
[[limits]]
site = "here"
attribute = "group"
value = "home"
running = 3
"""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    database = server().empty()
    made = Pair(tmp_path, server().tcp(database), lease=20, heartbeat=0.5)
    yield made
    made.close()
    server().drop(database)


def test_each_server_sees_and_runs_jobs_of_the_other(pair: Pair) -> None:
    pair.start()
    here, there = pair.first.client(), pair.second.client()
    answer = there.submit({"executable": "true"}, values=list(range(20)))
    selection = Selection(submission=answer.submission)
    until(lambda: here.counts(selection).final == 20, what="the end of all jobs")
    assert there.counts(selection).states == {"Done": 20}
    # A policy applied at one server is in force at the other within a second.
    there.apply_policy(pair.first.policy.replace("max_reschedules = 3", "max_reschedules = 4"))
    versions = "SELECT count(DISTINCT policy_version) FROM servers"
    until(lambda: pair.sql(versions) == [(1,)], what="the same policy everywhere")
    assert len(pair.sql("SELECT 1 FROM servers")) == 2
    # The pilots speak to the second server; somebody watches at the first.
    go_on = pair.shared / "go-on"
    watched = here.submit(
        {"executable": "sh", "arguments": ["-c", f"echo seen; while [ ! -e {go_on} ]; do sleep 0.05; done"]}
    ).first
    until(lambda: here.log(watched).data == b"seen\n", what="the output of a running job at the other server")
    go_on.touch()
    pair.first.reaches(watched, "Done")
    pair.second.stop_server()
    assert len(pair.sql("SELECT 1 FROM servers")) == 1
    assert audit_postgresql(pair.url) == {"Done": 21}


def test_servers_killed_at_random_lose_nothing_and_no_limit_is_exceeded(pair: Pair) -> None:
    pair.start()
    limited = pair.first.policy + LIMITED
    pair.first.client().apply_policy(limited.replace("processors = 2", "processors = 6"))
    rng, jobs = Random(7), 240
    watch = Watch(pair.url)
    answer = pair.second.client().submit(
        {"executable": "sh", "arguments": ["-c", "sleep 0.05; exit $(( %s % 40 == 3 ))"]},
        values=list(range(jobs)),
    )
    selection = Selection(submission=answer.submission)
    with watch:
        for part in (30, 80, 130, 180):
            survivor = pair.servers[rng.randrange(2)]
            victim = pair.second if survivor is pair.first else pair.first
            until(
                lambda part=part, one=survivor: one.client().counts(selection).final >= part,
                within=2 * PATIENCE,
                what=f"{part} ended jobs",
            )
            victim.kill_server()
            # Whatever the dead one did is done by the other: also jobs that are submitted now.
            survivor.client().submit({"executable": "true"}, values=list(range(3)))
            pair.launch(victim)
        everything = Selection()
        until(
            lambda: pair.first.client().counts(everything).final == jobs + 12,
            within=2 * PATIENCE,
            what="the end of all jobs",
        )
    assert 1 <= watch.most <= 3, watch.most
    found = audit_postgresql(pair.url)
    assert found == {"Done": jobs + 12 - jobs // 40, "Failed": jobs // 40}
    assert pair.sql("SELECT count(*) FROM servers") == [(2,)]
    # Each place of the limit is in one hand again.
    until(lambda: pair.sql(PLACES) == [(3,)], what="all places free")


def test_a_server_that_begins_while_a_policy_is_applied_matches_by_it(pair: Pair) -> None:
    """As another server would have it, held up before its commit until this one waits for it."""
    pair.start()
    for one in pair.servers:
        one.stop_server()  # so that nobody else waits
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(pair.url) as other:
        other.execute("SELECT 1 FROM instance FOR UPDATE")
        other.execute(
            "INSERT INTO policies (version, text, applied_at, applied_by, reason) SELECT version + 1, text, applied_at,"
            " applied_by, '' FROM policies ORDER BY version DESC LIMIT 1"
        )
        pair.launch(pair.second, wait=False)
        until(lambda: pair.sql(waits), what="the start's waiting for the policy")
    pair.second.started()
    versions = "SELECT (SELECT max(version) FROM policies) - max(policy_version) FROM servers"
    assert pair.sql(versions) == [(0,)]


PLACES = (
    "SELECT sum(free) FROM (SELECT free FROM limit_states UNION ALL SELECT free FROM limit_blocks) AS places"
)

HELD = "SELECT count(*) FROM jobs WHERE state IN ('Matched', 'Taken', 'Running', 'Stalled', 'Completing')"


class Watch:
    """Looks again and again at how many jobs are held, each time as of one instant."""

    def __init__(self, url: str) -> None:
        self.most = 0
        self._url = url
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            while not self._end.wait(0.02):
                [held] = session.execute(HELD).fetchone() or (0,)
                self.most = max(self.most, held)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
