"""What a submission is warned of: asked of the predicate, on what is known of CEs and live pilots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import InvalidInput, Mistakes
from pilotage.core.jobs.description import JobDescription
from pilotage.services.matching.known_offers import known_offers
from pilotage.services.submission.accept import check_places, identity_of
from pilotage.services.submission.warnings import submission_warnings
from tests.unit.services.bench import NODE, Bench

POLICY = """\
[groups.physics]
[users.alice]
groups = ["physics"]
[users.bob]
groups = ["physics"]
[sites.here]
[sites.there]
[ces.local]
site = "here"
owners = "{owners}"
wall = 86400
tags = ["apptainer"]
"""
MACHINE = replace(NODE, processors=4, memory=8192, attributes={"GPUs": "0"})


def bench_of(folder: Path, owners: str) -> Bench:
    bench = Bench(folder, policy=POLICY.format(owners=owners))
    bench.do(lambda tx: tx.put(bench.pool.ces.nodes, "local", MACHINE))
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = bench_of(tmp_path, "any")
    yield made
    made.end()


def told(
    bench: Bench,
    *,
    owner: str = "alice",
    names: tuple[str, ...] = (),
    off: tuple[str, ...] = (),
    **fields: Any,
) -> list[str]:
    description = JobDescription(executable="/bin/true", **fields)
    policy = bench.pool.policy
    identity = identity_of(description, owner, "physics", policy)
    return submission_warnings(description, names, identity, policy, known_offers(bench.pool, bench.now), off)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"tags": ("GPU", "apptainer")}, "it requests the tag GPU, not offered by CE local"),
        ({"platforms": ("el5",)}, "it requests the platform el5, and the known ones are el9"),
        (
            {"host_requirements": "other.GPUs > 1", "requirements": "other.Processors > 0"},
            "its HostRequirements (other.GPUs > 1) are not true at CE local",
        ),
        ({"requirements": "other.GPUs > 1"}, "its Requirements (other.GPUs > 1) are not true at CE local"),
        ({"processors": 8}, "it requests 8 processors; the most offered by CE local is 4"),
        ({"memory": 9000}, "it requests 9,000 MB of memory (bucket"),
        (
            {"cpu_time": 300_000},
            "it requests 300,000 s of CPU time (bucket 300,000 s), and a pilot of CE local has",
        ),
        ({"setup": "LHCb"}, "it requests the setup LHCb, and the known setups are none"),
        ({"sites": ("there",)}, "none of its allowed sites has a CE"),
        ({"pilot_types": ("private",)}, "it accepts private pilots only, and those of CE local are generic"),
        (
            {"wall_time": 90_000},
            "it requests 90,000 s of wall time (bucket 90,000 s), and a pilot of CE local has at most 86,365 s",
        ),
        (
            {"banned_sites": ("nowhere",)},
            "BannedSites: the policy has no site nowhere; its sites are: here, there",
        ),
        ({"output_sandbox": ("data[1].log",)}, "OutputSandbox: data[1].log has brackets, so it is a pattern"),
        ({"arguments": ("%s",)}, "%s in arguments is passed on unchanged"),
        ({"submit_pools": ("a",)}, "SubmitPools: the policy has no pool a; its pools are: DIRAC, Local"),
    ],
)
def test_a_submission_that_nothing_satisfies_is_warned_of(
    bench: Bench, fields: dict[str, Any], part: str
) -> None:
    assert any(part in text for text in told(bench, **fields)), told(bench, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tags": ("apptainer",), "processors": 4, "memory": 8000, "wall_time": 85_500},
        {"platforms": ("el9",), "requirements": "other.GPUs == 0", "sites": ("here",)},
        {"banned_sites": ("there",)},
        {"cpu_time": 5000},
        {"output_sandbox": ("*.log", "data].[log")},
    ],
)
def test_a_submission_that_fits_has_no_warning(bench: Bench, fields: dict[str, Any]) -> None:
    assert told(bench, **fields) == []


def test_the_CE_of_the_home_refuses_other_owners(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "home")
    assert told(bench, owner="alice") == []
    [text] = told(bench, owner="bob")
    assert text.endswith("CE local is for jobs of alice only")
    bench.end()


def test_several_reasons_stand_in_one_warning(bench: Bench) -> None:
    [text] = told(bench, tags=("GPU", "big"), processors=64)
    assert "the tags GPU, big" in text
    assert "64 processors" in text


def test_a_live_pilot_that_fits_counts_whomever_it_serves_now(bench: Bench) -> None:
    """A pilot bound to its first owner says nothing of the next pilot there."""
    bench.do(lambda tx: bench.pool.ces.nodes.clear())
    bench.submit(owner="bob")
    pilot = bench.pilot(only_owner="bob")
    assert pilot.take(tags=["GPU"])
    assert told(bench, tags=("GPU",)) == []
    assert "the tag big" in told(bench, tags=("GPU", "big"))[0]


def test_a_job_that_only_a_disabled_CE_fits_is_warned_of(bench: Bench) -> None:
    [said] = told(bench, off=("local",))
    assert said.startswith("it fits local only, which gets no new pilots: `pilotage ce show local` tells why")
    assert told(bench, off=("other",)) == []


def test_without_known_offers_nothing_is_guessed(bench: Bench) -> None:
    bench.do(lambda tx: bench.pool.ces.nodes.clear())
    assert told(bench, tags=("GPU",)) == []


def test_all_unknown_sites_and_CEs_are_refused_at_once(bench: Bench) -> None:
    check: Callable[..., None] = check_places
    wrong = JobDescription("x", sites=("a", "here"), grid_ces=("b",), banned_sites=("c",))
    with pytest.raises(Mistakes) as caught:
        check(wrong, bench.pool.policy)
    assert [error.field for error in caught.value.all] == ["Site", "GridCE"]
    with pytest.raises(InvalidInput, match="Site: a is not in the policy"):
        check(replace(wrong, grid_ces=()), bench.pool.policy)
    check(JobDescription("x", banned_sites=("c",)), bench.pool.policy)
