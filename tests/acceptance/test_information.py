"""The information of CEs from a real Slurm: hosts and features, a controller that hangs, a killed server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.instance import Instance, until

FEATURES = {"n1": "si00_400", "n2": "si00_600,avx", "n3": "si00_600,avx"}


def info(server: Instance) -> str:
    """The ad of the CE."""
    return server.client().ce_ad("slurm").ad


def listed(server: Instance) -> dict[str, Any]:
    done = server.cli("ce", "list", "--json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["ces"]
    return dict(row)


def expires_after(server: Instance, seconds: int) -> None:
    """Let new facts expire so: soon for a controller that hangs, and not before an answer of one that works."""
    server.policy = re.sub(r"information_expiry = \d+", f"information_expiry = {seconds}", server.policy)
    server.apply()
    until(lambda: f"expiry_time = {seconds};" in info(server), what="facts with another expiry")


def test_facts_of_a_real_slurm_expire_and_outlive_the_server(tmp_path: Path) -> None:
    with (
        slurm.cluster(nodes=3, processors=4, features=FEATURES) as cluster,
        instance_on(
            cluster,
            tmp_path,
            information_period="2",
            information_expiry="300",
            forward='{ GlueHostBenchmarkSI00 = "feature si00_{}" }',
        ) as server,
    ):
        until(lambda: "GlueCEStateFreeCPUs = 12" in info(server), what="free processors")
        for fact in (
            'GlueCEName = "short"',
            'GlueCEStateStatus = "Production"',
            "GlueCEInfoTotalCPUs = 12",
            "GlueHostBenchmarkSI00 = 400",
            "GlueCEPolicyMaxWallClockTime = 1500",
            "GlueCEStateEstimatedResponseTime = 0",
        ):
            assert fact in info(server), fact
        classes = server.client().ce_ad("slurm").hosts
        speeds = sorted((known.attributes["GlueHostBenchmarkSI00"], *known.hosts) for known in classes)
        assert speeds == [("400", "n1"), ("600", "n2"), ("600", "n3")], "n2 has a graphics card too"
        assert listed(server)["information"] == ""
        expires_after(server, 4)
        with cluster.stopped():
            until(lambda: "has expired" in listed(server)["information"], what="the expiry")
            assert "GlueCEState" not in info(server)
            assert "GlueHostBenchmarkSI00 = 400" in info(server)
            until(lambda: server.client().ce_ad("slurm").problem, what="the reason")
            server.kill_server()
            server.start()
            assert "GlueHostBenchmarkSI00 = 400" in info(server), "the last facts are in the store"
            assert "GlueCEState" not in info(server)
        expires_after(server, 300)
        until(lambda: "GlueCEStateFreeCPUs = 12" in info(server), what="new facts")
        cluster.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=disk State=IDLE")
        until(
            lambda: "GlueHostBenchmarkSI00 = 600" in info(server), what="the least of the nodes that are left"
        )
        assert "UnavailableHosts = 1" in info(server)
        cluster.run("scontrol", "update", "NodeName=n2", "AvailableFeatures=si00_600,si00_500,avx")
        until(lambda: "several values" in listed(server)["information"], what="the contradiction")
        shown = server.cli("ce", "list").stdout
        assert "information: host n2: GlueHostBenchmarkSI00 has several values" in " ".join(shown.split())
        cluster.run("scontrol", "update", "PartitionName=short", "State=DRAIN")
        until(lambda: 'GlueCEStateStatus = "Draining"' in info(server), what="the partition's state")
        assert "last information" in server.cli("ce", "show", "slurm").stdout
