"""A pilot that isolates its payloads serves every owner; a CE may require that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.services.bench import POLICY, Bench
from tests.unit.services.test_why import why_job

ISOLATED = POLICY + '[ces.safe]\nsite = "here"\nisolation = "require"\nvisible = ["/data:rw"]\n'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, ISOLATED)
    yield made
    made.check()
    made.end()


def test_an_isolated_pilot_serves_several_owners_at_once(bench: Bench) -> None:
    for owner in ("alice", "bob"):
        bench.submit(owner=owner)
    pilot = bench.pilot("safe", processors=2)
    assert pilot.terms.isolation == "require"
    assert pilot.terms.visible == ["/data:rw"]
    offers = pilot.take(2, processors=2, isolation="userns")
    assert {offer.payload.owner for offer in offers} == {"alice", "bob"}
    assert pilot.row.only_owner is None
    for offer in offers:
        pilot.release(offer)


def test_without_isolation_the_first_job_binds_the_pilot(bench: Bench) -> None:
    for owner in ("alice", "bob"):
        bench.submit(owner=owner)
    pilot = bench.pilot(processors=2)
    [offer] = pilot.take(2, processors=2)
    assert pilot.row.only_owner == offer.payload.owner
    pilot.release(offer)


def test_a_ce_that_requires_isolation_gives_no_job_to_a_pilot_without(bench: Bench) -> None:
    bench.submit(tags=("isolated",))
    pilot = bench.pilot("safe")
    assert pilot.take() == []
    assert len(pilot.take(isolation="userns")) == 1, "the tag is the server's to give"


def test_an_unfit_pilot_fails_with_its_reason(bench: Bench) -> None:
    [job] = bench.submit(tags=("isolated",))
    pilot = bench.pilot("safe")
    pilot.send(leaving="cannot isolate payloads: unshare: Operation not permitted", unfit=True)
    assert pilot.row.state == "Failed"
    assert pilot.row.reason.startswith("cannot isolate payloads")
    assert bench.state(job) == "Waiting"
    assert why_job(bench, job).reason != "draining"
