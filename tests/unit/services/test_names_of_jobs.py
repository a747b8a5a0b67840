"""A name with placeholders is filled for each job, and jobs are found by it."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.store.tables import listing
from pilotage.store.tables.selections import JobSelection, Viewer
from tests.unit.services.bench import Bench

EVERYBODY = Viewer("", everything=True)


def named(bench: Bench, name: str = "") -> dict[int, str]:
    selection = JobSelection(name=name) if name else JobSelection()
    rows = listing.jobs(bench.connection, selection, EVERYBODY, 0, 100)
    return {row.id: row.name for row in rows}


def test_names_of_a_submission_are_filled(bench: Bench) -> None:
    rows = [["x", 1.5], ["y", True]]
    jobs = bench.submit(names=("", "Seed"), rows=rows, job_name="sim-%s-%(Seed)s-%n-%j")
    wanted = [f"sim-x-1.5-0-{jobs[0]}", f"sim-y-true-1-{jobs[1]}"]
    assert list(named(bench).values()) == wanted
    assert named(bench, wanted[1]) == {jobs[1]: wanted[1]}
    assert named(bench, "sim-%s-%(Seed)s-%n-%j") == {}


def test_the_payload_has_the_same_name(bench: Bench) -> None:
    bench.submit(3, job_name="sim-%s-%j")
    offers = bench.pilot(processors=3).take(3, processors=3)
    assert {offer.job: offer.payload.name for offer in offers} == named(bench)


def test_without_placeholders_the_rows_have_no_names(bench: Bench) -> None:
    for name, count in (("plain", 3), ("50%", 2), ("%s-unfilled", 1)):
        jobs = bench.submit(count, job_name=name)
        assert all(bench.job(job)["name"] is None for job in jobs)
        assert set(named(bench, name)) == set(jobs)


def test_a_single_job_may_be_named_by_its_id(bench: Bench) -> None:
    [job] = bench.submit(job_name="run-%j")
    assert named(bench, f"run-{job}") == {job: f"run-{job}"}


def test_names_that_would_be_too_long_are_refused() -> None:
    mapping = {"executable": "x", "job_name": "a-%s", "parameters": ["b", "c" * 1100]}
    with pytest.raises(InvalidInput, match="job_name: a text has 1,102 bytes; the limit is 1,024"):
        parse_yaml_mapping(mapping)
