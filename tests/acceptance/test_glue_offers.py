"""Requirements in GLUE names with real pilots: each job runs at a CE whose offer makes them true, and at no other."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from pilotage.wire.jobs import Selection
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

CONDITIONAL = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
CES = {
    "short-fast": (600, 500, "se1"),
    "middle-slow": (400, 1500, "se2"),
    "middle-fast": (600, 1500, "se1"),
    "long-slow": (400, 3000, "se3"),
}
"""CE → SPECint2000 of its host, its limit of CPU time, its storage element."""


def policy_of(instance: Instance) -> str:
    common = instance.policy.partition("[ces.local]\n")[2].partition("[jobs]")[0]
    others = "".join(
        f"""\
[ces.{name}]
{common}[ces.{name}.attributes]
GlueHostBenchmarkSI00 = {si00}
GlueCEPolicyMaxCPUTime = {cpu}
GlueCESEBindGroupSEUniqueID = ["{se}"]
"""
        for name, (si00, cpu, se) in CES.items()
    )
    text = instance.policy.replace("[groups.home]\n", '[groups.home]\nvo = "EGEE"\n')
    before, _, after = text.partition("[ces.local]\n")
    return before + others + "[jobs]" + after.partition("[jobs]")[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("glue"), idle=0.3, processors=1) as instance:
        instance.client().apply_policy(policy_of(instance))
        yield instance


def ces_of(instance: Instance, count: int, **description: object) -> set[str]:
    """Where so many jobs run one after the other."""
    client = instance.client()
    places = set()
    for _ in range(count):
        job = client.submit({"executable": "/bin/true", **description}).first
        instance.reaches(job, "Done")
        [attempt] = client.job(job).attempts
        places.add(attempt.ce)
    return places


def test_the_documents_conditional_runs_where_it_is_true(site: Instance) -> None:
    assert ces_of(site, 3, requirements=CONDITIONAL) <= {"middle-fast", "long-slow"}
    fast = "other.GlueHostBenchmarkSI00 > 500"
    assert ces_of(site, 1, requirements=CONDITIONAL, host_requirements=fast) == {"middle-fast"}
    assert ces_of(site, 1, requirements=f"({CONDITIONAL}) && !({fast})") == {"long-slow"}


def test_the_output_goes_to_a_close_storage_element(site: Instance) -> None:
    assert ces_of(site, 1, output_se="se2") == {"middle-slow"}


def test_pilots_tell_their_node_and_requirements_see_the_submitter(site: Instance) -> None:
    machine = (
        f'other.GlueHostArchitecturePlatformType == "{platform.machine()}" && other.GlueHostMainMemoryRAMSize > 100'
        " && other.GlueHostArchitectureSMPSize >= 1 && isString(other.GlueHostOperatingSystemRelease)"
    )
    own = 'my.VirtualOrganisation == "EGEE"'
    assert ces_of(site, 1, requirements=f"{machine} && {own}", grid_ces=["long-slow"]) == {"long-slow"}


def test_a_job_that_no_host_fits_waits_and_is_warned(site: Instance) -> None:
    client = site.client()
    answer = client.submit(
        {"executable": "/bin/true", "host_requirements": "other.GlueHostBenchmarkSI00 > 9000"}
    )
    assert "its HostRequirements (other.gluehostbenchmarksi00 > 9000) are not true" in answer.warnings[0]
    why = until(lambda: w if (w := client.why(answer.first)).reason == "needs" else None, what="the reason")
    assert "HostRequirements" in why.summary
    client.kill(Selection(ids=[answer.first]))


def test_queues_are_listed_with_all_that_they_ask(site: Instance) -> None:
    client = site.client()
    description = {"executable": "/bin/true", "host_requirements": "other.Rack == 7", "output_se": "se9"}
    job = client.submit(description).first
    [queue] = [queue for queue in client.queues() if queue.output_se]
    assert (queue.host_requirements, queue.output_se, queue.waiting) == ("other.rack == 7", "se9", 1)
    client.kill(Selection(ids=[job]))
