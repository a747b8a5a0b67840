"""The policy that the twin serves names nothing outside of it."""

from __future__ import annotations

import pytest

from pilotage.core.policy import parse
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.served_policy import served_policy
from pilotage.twin.trace_policy import policy_of_trace
from pilotage.twin.workload import TraceJobs
from tests.unit.twin.swf_text import job

CES = (TwinCe("grid", (TwinNodes(10, 8, 16000),), wall=86400.0),)
OUTSIDE = """
[sites.cellar]
storage = ["results", "/data/pilotage"]

[ces.cluster]
site = "cellar"
type = "slurm"
reach = "ssh login.example.org"
relay = "auto"
forward_hook = "/opt/hook"

[ces.unknown]
site = "cellar"
type = "slurm"

[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "https://s3.example.org"
bucket = "physics"

[catalogues.rucio]
type = "rucio"
[catalogues.rucio.rucio]
url = "https://rucio.example.org"
account = "production"
"""


@pytest.fixture
def text() -> str:
    return policy_of_trace(TraceJobs([job(1)]), CES, {}) + OUTSIDE


def test_no_storage_and_no_catalogue_is_asked(text: str) -> None:
    policy = parse(text)
    assert policy.storage, "the server itself has them"
    assert policy.catalogues, "the server itself has them"
    served = served_policy(policy, CES)
    assert not served.storage
    assert not served.catalogues
    assert not any(site.storage for site in served.sites.values())


def test_a_ce_has_no_way_to_a_real_host_and_no_relay_that_it_waits_for(text: str) -> None:
    served = served_policy(parse(text), (TwinCe("cluster", (TwinNodes(1, 8, 16000),)),))
    [ce] = served.ces.values()
    assert (ce.reach, ce.relay, ce.forward_hook) == ("", "", "")
