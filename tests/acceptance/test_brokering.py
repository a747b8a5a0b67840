"""The director submits by list-match and Rank to a real Slurm and a real Grid Engine at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pilotage.wire.director import DirectorReport
from pilotage.wire.jobs import Selection
from tests import sge, slurm
from tests.acceptance.test_slurm import SLURM_CE
from tests.instance import Instance, until

pytestmark = pytest.mark.slow

CONDITIONAL = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
"""Of "Approaches to batch system description"."""
SLURM = SLURM_CE.replace("pilot_processors = 2", "pilot_processors = 1").replace(
    "max_waiting = 4", "max_waiting = 2"
)
GRID_ENGINE = SLURM.replace("[ces.slurm]", "[ces.sge]").replace('"slurm"', '"sge"')
TABLES = """\
information_period = 1
[ces.{name}.forward]
GlueHostBenchmarkSI00 = "{rule}"
"""
DIRECTOR = """\
[director]
demand = "matched"
# A second pilot for a job that waits could go to the other CE.
extraPilots = 0
[director.pools.Batch]
EnableListMatch = true
"""
RULES = {"slurm": "feature si00_{}", "sge": "complex si00 <="}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    queues = {"slow.q": {"complex_values": "si00=400"}, "fast.q": {"complex_values": "si00=600"}}
    features = {"n1": "si00_400", "n2": "si00_600"}
    with (
        slurm.cluster(nodes=2, processors=4, features=features) as cluster,
        sge.grid_engine(queues) as engine,
    ):
        made = Instance(tmp_path_factory.mktemp("brokering"))
        made.environment = {**cluster.environment, **engine.environment}
        made.environment["PATH"] = f"{cluster.environment['PATH']}:{engine.environment['PATH']}"
        made.policy = policy(made)
        try:
            made.start()
            made.apply()
            until(lambda: all(facts(made, name) for name in RULES), what="the facts of both CEs")
            yield made
        finally:
            made.close()


def policy(instance: Instance, rank: str = "", **attributes: str) -> str:
    """The policy with both CEs. `attributes`: lines of static attributes of a CE."""
    begin, _, rest = instance.policy.partition("[ces.")
    ces = ""
    for name, section in (("slurm", SLURM), ("sge", GRID_ENGINE)):
        ces += section + TABLES.format(name=name, rule=RULES[name])
        if name in attributes:
            ces += f"[ces.{name}.attributes]\n{attributes[name]}\n"
    if "vo =" not in begin:
        begin = begin.replace("[groups.others]", '[groups.others]\nvo = "others"')
    own = f"Rank = '{rank}'\n" if rank else ""
    return begin + ces + DIRECTOR + own + "[jobs]" + rest.partition("[jobs]")[2]


def apply(instance: Instance, rank: str = "", **attributes: str) -> None:
    instance.client().apply_policy(policy(instance, rank, **attributes))


def facts(instance: Instance, name: str) -> bool:
    """Whether the CE has told its host classes."""
    shown = instance.cli("ce", "ad", name, "--hosts")
    return shown.returncode == 0 and "600" in shown.stdout


def ran_at(
    instance: Instance, jobs: int = 1, requirements: str = "", user: str = "", *, at_both: bool = False
) -> set[str]:
    """Submit equal jobs, wait for their end and the end of all pilots; the CEs that pilots were submitted to.

    `at_both`: the jobs end after both CEs have pilots. The pilots of one could run all of them before.
    """
    client = instance.client(user)
    before = {pilot.id for pilot in instance.client().pilots()}

    def ces() -> set[str]:
        return {pilot.ce for pilot in instance.client().pilots() if pilot.id not in before}

    end = instance.home / f"end-{len(before)}"
    script = f"while [ ! -e {end} ]; do sleep 0.1; done"
    description = {"executable": "/bin/sh", "arguments": ["-c", script], "requirements": requirements}
    sent = client.submit(description, values=range(jobs))
    if at_both:
        until(lambda: ces() == set(RULES), what="pilots at both CEs")
    end.touch()
    for job in client.jobs(Selection(submission=sent.submission)):
        instance.reaches(job.id, "Done")
    until(lambda: all(pilot.ended for pilot in instance.client().pilots()), what="the end of all pilots")
    return ces()


def test_a_job_goes_where_its_requirements_can_be_true(instance: Instance) -> None:
    limit = "GlueCEPolicyMaxCPUTime = {}".format
    apply(instance, slurm=limit(1500), sge=limit(500))
    assert ran_at(instance, 1, CONDITIONAL) == {"slurm"}
    apply(instance, slurm=limit(500), sge=limit(1500))
    assert ran_at(instance, 1, CONDITIONAL) == {"sge"}
    apply(instance, slurm=limit(1500), sge=limit(3000))
    # Each CE takes two pilots at once: both are asked.
    assert ran_at(instance, 4, CONDITIONAL, at_both=True) == {"slurm", "sge"}


def test_rank_changes_the_choice(instance: Instance) -> None:
    wait = "GlueCEStateEstimatedResponseTime = {}".format
    apply(instance, slurm=wait(5), sge=wait(600))
    assert ran_at(instance) == {"slurm"}
    apply(instance, slurm=wait(600), sge=wait(5))
    assert ran_at(instance) == {"sge"}
    apply(instance, rank="other.GlueCEStateEstimatedResponseTime", slurm=wait(600), sge=wait(5))
    assert ran_at(instance) == {"slurm"}


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ('GlueCEStateStatus = "Draining"', "its state is Draining"),
        (
            "GlueCEPolicyMaxTotalJobs = 0",
            "it is full: GlueCEStateTotalJobs is 0, and GlueCEPolicyMaxTotalJobs 0",
        ),
    ],
)
@pytest.mark.parametrize("name", ["slurm", "sge"])
def test_a_closed_or_full_ce_gets_none(instance: Instance, name: str, attribute: str, reason: str) -> None:
    apply(instance, **{name: attribute})
    assert ran_at(instance, 4) == set(RULES) - {name}
    [answer] = instance_answers(instance, name, "")
    assert answer == reason


def test_a_ce_serves_its_virtual_organisation_only(instance: Instance) -> None:
    """alice's group has the VO `others`; the home owner's group has none."""
    rule = 'GlueCEAccessControlBaseRule = ["VO:others"]'
    apply(instance, slurm=rule, sge='GlueCEAccessControlBaseRule = ["VO:egee"]')
    assert ran_at(instance, 4, user="alice") == {"slurm"}
    apply(instance, slurm=rule)
    assert ran_at(instance, 4) == {"sge"}


def test_a_job_that_fits_nowhere_gets_no_pilot_and_the_reason(instance: Instance) -> None:
    apply(instance)
    client = instance.client()
    sent = client.submit(
        {"executable": "true", "requirements": "other.GlueHostBenchmarkSI00 > 700"}, values=range(1)
    )
    assert any("no known node fits" in warning for warning in sent.warnings)
    number = client.job(sent.first).job.queue

    def iteration() -> DirectorReport | None:
        """The last one, if it was about the queue of the job."""
        report = client.director()
        return report if [queue.queue for queue in report.queues] == [number] else None

    report = until(iteration, what="an iteration with the queue")
    assert report.pilots == 0
    assert report.queues[0].shortfall == "its Requirements can be true at no CE that fits otherwise"
    client.kill([job.id for job in client.jobs(Selection(submission=sent.submission))])


def instance_answers(instance: Instance, name: str, requirements: str) -> list[str]:
    """The reasons of `match-ce` for one CE."""
    jdl = instance.home / "ask.jdl"
    jdl.write_text(f'[ Executable = "/bin/true"; {requirements} ]')
    shown = instance.cli("match-ce", str(jdl), "--json")
    assert shown.returncode == 0, shown.stderr
    return [answer["reason"] for answer in json.loads(shown.stdout)["ces"] if answer["ce"] == name]
