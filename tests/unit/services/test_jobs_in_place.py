"""Which pilots jobs in place are given to, and what nodes with other folders learn the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.services.pool.offer_state import REMEMBERED
from pilotage.services.submission.warnings import submission_warnings
from tests.unit.services.bench import POLICY, Bench
from tests.unit.services.test_why import why_job

FOLDER = "/scratch/a"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Bench]:
    """A CE whose nodes share /scratch."""
    text = POLICY.replace("[ces.local]", '[ces.local]\nshared_folders = ["/scratch"]', 1)
    bench = Bench(tmp_path, text)
    yield bench
    bench.check()
    bench.end()


def test_only_a_node_that_shares_the_folder_is_given_the_job(shared: Bench) -> None:
    [job] = shared.submit(folder=FOLDER, stdout_file="%j-%A-%a-%x-%u-%N%%", job_name="50%")
    one, other = shared.pilot(), shared.pilot()
    [offer] = one.take(hostname="n1")
    assert offer.payload.stdout_file == f"{job}-{job}-4294967294-50%%-{shared.pool.server.home_owner}-%N%%"
    one.confirm(offer)
    one.release(offer)
    refused = one.send(take=one.asked(hostname="n1", other_folders=[FOLDER]))
    assert (refused.offers, refused.no_match) == ([], {"node-folder": 1})
    # The next pilot of this host does not try again; one of another host gets the job.
    assert not other.take(hostname="n1")
    [offer] = other.take(hostname="n2")
    assert offer.job == job


def test_why_names_the_node_folder_as_soon_as_all_hosts_have_reported_it(shared: Bench) -> None:
    [job] = shared.submit(folder=FOLDER)
    pilots = {host: shared.pilot() for host in ("n1", "n2")}

    def reason() -> tuple[str, str]:
        answer = why_job(shared, job)
        return answer.reason, answer.detail

    for host, pilot in pilots.items():
        # The host's first offer fits the job.
        [offer] = pilot.take(hostname=host)
        pilot.release(offer)
        shared.later(2.0)
    for host, pilot in pilots.items():
        assert reason()[0] != "needs"
        assert not pilot.take(hostname=host, other_folders=[FOLDER])
    assert reason() == ("needs", "node-folder")
    shared.later(REMEMBERED + 1)
    assert reason()[0] != "needs"


def test_a_host_is_tried_again_after_some_time(shared: Bench) -> None:
    shared.submit(folder=FOLDER)
    one = shared.pilot()
    assert not one.take(hostname="n1", other_folders=[FOLDER])
    later = shared.pilot()
    assert not later.take(hostname="n1")
    shared.later(REMEMBERED + 1)
    assert shared.pilot().take(hostname="n1")


def warnings_of(bench: Bench, folder: str) -> list[str]:
    prepared = bench.prepared(folder=folder)
    return submission_warnings(prepared.description, (), prepared.identity, bench.pool.policy, [])


def test_a_folder_that_no_ce_shares_is_told_at_once(shared: Bench) -> None:
    assert warnings_of(shared, FOLDER) == []
    [warning] = warnings_of(shared, "/data")
    assert warning.startswith("no CE shares /data: ")
    shared.submit(folder="/data")
    pilot = shared.pilot()
    assert pilot.send(take=pilot.asked()).no_match == {"folder": 1}
