"""Requirements over hosts become flags of a real Slurm, and jobs run on the nodes that they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import sge, slurm
from tests.acceptance.test_slurm import MATCHED, SLURM_CE, instance_on
from tests.instance import Instance, until

SI00 = "GlueHostBenchmarkSI00"
CONDITIONAL = (
    f"other.{SI00} > 500 ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
"""Of "Approaches to batch system description"."""
RULES = f'[ces.slurm.forward]\n{SI00} = "feature si00_{{}}"\n'


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    features = {"n1": "si00_400", "n2": "si00_600", "n3": "si00_400"}
    with slurm.cluster(nodes=3, processors=4, features=features) as made:
        yield made


def apply(instance: Instance, max_cpu_time: int, more: str = "") -> None:
    """Give the CE a limit of CPU time, and read the information again."""
    attributes = f"[ces.slurm.attributes]\nGlueCEPolicyMaxCPUTime = {max_cpu_time}\n"
    head, mark, rest = instance.policy.partition("[director]")
    document = instance.home / "forwarding.toml"
    document.write_text(f"{head}{more}{RULES}{attributes}{mark}{rest}")
    done = instance.cli("policy", "apply", str(document))
    assert done.returncode == 0, done.stderr


def submit(instance: Instance, requirements: str) -> str:
    """Submit a job; the id of its submission."""
    jdl = instance.home / "job.jdl"
    jdl.write_text(f'[ Executable = "/bin/true"; Requirements = {requirements}; ]')
    done = instance.cli("submit", str(jdl), "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["submissions"][0]["submission"])


def state(instance: Instance, submission: str) -> str:
    [job] = json.loads(instance.cli("status", "-s", submission, "--json").stdout)["jobs"]
    return str(job["state"])


def shown(cluster: slurm.Cluster, field: str) -> set[str]:
    """The values of a field of all batch jobs that Slurm remembers."""
    words = cluster.run("scontrol", "show", "job").split()
    return {word.partition("=")[2] for word in words if word.startswith(f"{field}=")}


def stamps(cluster: slurm.Cluster) -> set[str]:
    """The names of all batch jobs that wait or run."""
    return set(cluster.run("squeue", "-h", "-o", "%j").split())


def test_the_conditional_of_the_document_runs_on_the_valid_node(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    with instance_on(cluster, tmp_path / "home", information_period="1") as instance:
        apply(instance, 1500)
        job = submit(instance, CONDITIONAL)
        until(lambda: state(instance, job) == "Done", what="the end of the job")
        assert shown(cluster, "Features") == {"si00_600"}
        ran = [
            line for line in cluster.run("scontrol", "show", "job").split() if line.startswith("NodeList=n")
        ]
        assert set(ran) == {"NodeList=n2"}


def test_the_site_reads_back_the_facts_of_batch_jobs(cluster: slurm.Cluster, tmp_path: Path) -> None:
    with instance_on(cluster, tmp_path / "home", information_period="1", idle="60") as instance:
        apply(instance, 3000)
        submit(instance, f'({CONDITIONAL}) && other.Colour =!= "a,b=c $(id)"')

        def jobs() -> list[dict[str, Any]]:
            return list(json.loads(instance.cli("ce", "jobs", "slurm", "--json").stdout)["jobs"])

        until(lambda: jobs(), what="a batch job")
        [job, *_] = jobs()
        assert job["properties"]["unmapped"] == 'other.colour =!= "a,b=c $(id)"'
        assert len(job["properties"]["identity"]) == 16
        assert job["properties"]["cpu"] == "500"
        assert job["properties"]["unmapped"] in instance.cli("ce", "jobs", "slurm").stdout


def test_requirements_that_cannot_be_true_lead_to_no_submission(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    with instance_on(cluster, tmp_path / "home", information_period="1") as instance:
        apply(instance, 500)
        refused = submit(instance, CONDITIONAL)
        job = submit(instance, "true")
        until(lambda: state(instance, job) == "Done", what="the end of the other job")
        assert state(instance, refused) == "Waiting"


def test_a_hook_that_fails_stops_its_requirements_and_ce_list_says_why(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\necho no such partition >&2\nexit 1\n")
    hook.chmod(0o755)
    # Pilots of an earlier server may still run.
    before = stamps(cluster)
    with instance_on(
        cluster, tmp_path / "home", information_period="1", forward_hook=f'"{hook}"'
    ) as instance:
        apply(instance, 1500)
        job = submit(instance, CONDITIONAL)
        reason = f"forward_hook {hook}: it ended with status 1: no such partition"
        until(lambda: reason in " ".join(instance.cli("ce", "list").stdout.split()), what="the reason")
        assert stamps(cluster) <= before
        hook.write_text("#!/bin/sh\necho --nice=5\n")
        assert instance.cli("ce", "enable", "slurm").returncode == 0
        until(lambda: state(instance, job) == "Done", what="the end of the job")
        assert "5" in {value for value in shown(cluster, "Nice")}


def test_a_check_on_the_servers_machine_finds_wrong_names_and_programs(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    hook = tmp_path / "hook"
    with instance_on(
        cluster, tmp_path / "home", information_period="1", forward_hook=f'"{hook}"'
    ) as instance:
        document = instance.home / "checked.toml"

        def warnings(rules: str, *words: str) -> str:
            head, mark, rest = instance.policy.partition("[director]")
            document.write_text(f"{head}{rules}{mark}{rest}")
            done = instance.cli("policy", *(words or ("check",)), str(document))
            assert done.returncode == 0, done.stderr
            return done.stderr

        texts = warnings(RULES)
        assert f"ces.slurm: forward_hook {hook} on the server's machine" in texts
        assert "it cannot be run: No such file or directory" in texts
        assert "no node has" not in texts
        hook.write_text("#!/bin/sh\n")
        assert "it is not executable by the server" in warnings(RULES)
        hook.chmod(0o755)
        assert "forward_hook" not in warnings(RULES)
        wrong = RULES.replace("si00_{}", "si_{}")
        for words in (("check",), ("apply",)):
            assert f"ces.slurm.forward.{SI00}: no node has a feature si_{{}}" in warnings(wrong, *words)
        # Of a policy that is applied, only the CEs that it changes are asked about.
        assert "no node has" not in warnings(f"{wrong}[groups.later]\n", "apply")
        assert "of slurm were not checked" in warnings(wrong, "check", "--offline")
        assert "the batch system would refuse its pilots" in warnings(
            '[ces.slurm.slurm]\npartition = "nosuch"\n'
        )
        assert "the folder /nosuch/logs is not on the server's machine" in warnings(
            '[ces.slurm.slurm]\nlog_folder = "/nosuch/logs"\n'
        )
        with cluster.stopped():
            assert "ces.slurm was not checked: no answer within 10 s" in warnings(RULES)


def test_grid_engine_is_asked_for_the_residual(tmp_path: Path) -> None:
    """Queues with values of their own stand for hosts. The pilot's offer has the value of the queue that it runs in."""
    queues = {"slow.q": {"complex_values": "si00=400"}, "fast.q": {"complex_values": "si00=600"}}
    with sge.grid_engine(queues) as engine:
        home = tmp_path / "home"
        home.mkdir()
        instance = Instance(home)
        begin, _, rest = instance.policy.partition("[ces.local]")
        section = SLURM_CE.replace("[ces.slurm]", "[ces.cell]").replace('"slurm"', '"sge"')
        section = section.replace("idle = 2", "idle = 60").replace("pilot_processors = 2\n", "")
        rules = f'[ces.cell.forward]\n{SI00} = "complex si00 <="\n'
        attributes = "[ces.cell.attributes]\nGlueCEPolicyMaxCPUTime = 1500\n"
        tables = f"{section}information_period = 1\n{rules}{attributes}{MATCHED}"
        instance.policy = f"{begin}{tables}[jobs]{rest.partition('[jobs]')[2]}"
        instance.environment = engine.environment
        try:
            instance.start()
            instance.apply()
            job = submit(instance, CONDITIONAL)
            until(lambda: state(instance, job) == "Done", what="the end of the job")
            shown = engine.run("qstat", "-j", "*")
            [requests] = {line for line in shown.splitlines() if line.startswith("hard resource_list:")}
            assert "si00=501" in requests.split()[-1].split(",")
            assert "fast.q@" in engine.run("qstat", "-s", "r")
            assert "slow.q@" not in engine.run("qstat", "-s", "r")
        finally:
            instance.close()
