"""The information of a CE as Slurm's outputs tell it. The texts were printed by Slurm 22.05, then changed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.slurm import information

CONFIGURATION = """\
MaxJobCount             = 10000
SlurmctldHost[0]        = head(127.0.0.1)
SLURM_VERSION           = 22.05.8
"""

PARTITIONS = """\
PartitionName=short AllowGroups=ALL Default=YES MaxTime=00:30:00 Nodes=n[1-4] State=UP TotalCPUs=32
PartitionName=long AllowGroups=ALL Default=NO MaxTime=2-00:00:00 Nodes=n1 State=UP TotalCPUs=8
PartitionName=endless Default=NO MaxTime=UNLIMITED Nodes=n1 State=DRAIN TotalCPUs=8
"""

NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=8  CPUAlloc={used} CPUEfctv=8 CPUTot=8 CPULoad=0.58"
    " AvailableFeatures={features} ActiveFeatures={features} Gres={gres} NodeAddr=127.0.0.1 NodeHostName=vm"
    " Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC  RealMemory={memory} AllocMem=0 Sockets=1 Boards=1"
    " State={state} ThreadsPerCore=1 TmpDisk=0 Owner=N/A MCS_label=N/A Partitions={partitions}  BootTime=None{more}\n"
)


def node(
    name: str,
    features: str = "si00_400",
    state: str = "IDLE",
    partitions: str = "short",
    used: int = 0,
    gres: str = "(null)",
    memory: int = 16000,
    more: str = "",
) -> str:
    return NODE.format(**locals())


NODES = (
    node("n1", partitions="short,long", used=3)
    + node("n2", "si00_600,avx", gres="gpu:a100:4(S:0,1)")
    + node("n3", "si00_600,avx", gres="gpu:a100:4(S:2,3)", memory=16000)
    + node("n4", "(null)", "DOWN*+DRAIN", more=" Reason=State=IDLE RealMemory=9 [root@2026-11-22]")
    + node("n5", partitions="", memory=64000)
)


def described(options: SlurmOptions | None = None, nodes: str = NODES, jobs: str = "") -> CeInformation:
    options = options or SlurmOptions()
    partitions = information.named_partitions(information.read_shown_partitions(PARTITIONS), options)
    shown = list(information.read_shown_nodes(nodes))
    return information.describe_ce(CONFIGURATION, partitions, shown, jobs, options)


@pytest.mark.parametrize(
    ("partition", "wall", "names"),
    [
        ("short,long", 0.0, ["short", "long"]),
        ("short,long", 1800.0, ["short", "long"]),
        ("short,long", 1801.0, ["long"]),
        ("short,long,endless", 1e9, ["endless"]),
        ("short,long", 1e9, ["short", "long"]),
    ],
)
def test_partitions_that_are_too_short_for_the_pilots_are_left_out(
    partition: str, wall: float, names: list[str]
) -> None:
    """Where no partition is long enough, Slurm tells why pilots wait."""
    known = information.read_shown_partitions(PARTITIONS)
    chosen = information.named_partitions(known, SlurmOptions(partition=partition), wall)
    assert [partition.name for partition in chosen] == names


def test_equal_nodes_are_one_class_and_unusable_ones_in_none() -> None:
    ce = described(jobs="RUNNING\nPENDING\nPENDING\nCOMPLETING\n")
    assert [(known.count, known.hosts) for known in ce.host_classes] == [(2, ("n2", "n3")), (1, ("n1",))]
    assert ce.host_classes[0].attributes == {
        "GlueHostArchitectureSMPSize": 8,
        "GlueHostMainMemoryRAMSize": 16000,
        "GlueHostArchitecturePlatformType": "x86_64",
        "SlurmFeatures": ("avx", "si00_600"),
        "SlurmGres": ("gpu:a100:4",),
    }
    assert ce.attributes == {
        "GlueHostArchitectureSMPSize": 8,
        "GlueHostMainMemoryRAMSize": 16000,
        "GlueHostArchitecturePlatformType": "x86_64",
        "GlueCEName": "short",
        "GlueCEInfoLRMSType": "slurm",
        "GlueCEInfoLRMSVersion": "22.05.8",
        "GlueCEInfoHostName": "head",
        "GlueCEInfoTotalCPUs": 32,
        "GlueCEStateStatus": "Production",
        "GlueCEStateFreeCPUs": 21,
        "GlueCEStateRunningJobs": 2,
        "GlueCEStateWaitingJobs": 2,
        "GlueCEStateTotalJobs": 4,
        "GlueCEPolicyMaxWallClockTime": 1800,
        "GlueCEPolicyMaxTotalJobs": 10000,
        "UnavailableHosts": 1,
    }


def test_the_options_of_the_ce_choose_partitions_and_nodes() -> None:
    long = described(SlurmOptions(partition="long"))
    assert [known.hosts for known in long.host_classes] == [("n1",)]
    assert long.attributes["GlueCEPolicyMaxWallClockTime"] == 172800
    both = described(SlurmOptions(partition="long,endless"))
    assert "GlueCEPolicyMaxWallClockTime" not in both.attributes
    assert both.attributes["GlueCEStateStatus"] == "Production"
    assert described(SlurmOptions(partition="endless")).attributes["GlueCEStateStatus"] == "Draining"
    for options, hosts in (
        (SlurmOptions(constraint="avx&si00_600"), {"n2", "n3"}),
        (SlurmOptions(constraint="avx|si00_400"), {"n1", "n2", "n3"}),
        (SlurmOptions(constraint="avx&none"), set()),
        (SlurmOptions(constraint="[none*2]"), {"n1", "n2", "n3"}),
        (SlurmOptions(gres="gpu:1"), {"n2", "n3"}),
        (SlurmOptions(gres="disk"), set()),
    ):
        ce = described(options)
        assert {name for known in ce.host_classes for name in known.hosts} == hosts, options
        assert ce.attributes["GlueCEStateStatus"] == ("Production" if hosts else "Queueing")
    with pytest.raises(UnreadableOutput, match="no partition 'nosuch'"):
        described(SlurmOptions(partition="nosuch"))


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        *(("IDLE", True), ("MIXED+CLOUD", True), ("IDLE+POWERED_DOWN", True), ("ALLOCATED", True)),
        *(("IDLE*", False), ("DOWN", False), ("IDLE+DRAIN", False), ("MIXED+NOT_RESPONDING", False)),
        *(("FUTURE", False), ("DRAINED", False), ("ALLOCATED+DRAIN", False)),
    ],
)
def test_the_state_of_a_node_decides_whether_it_counts(state: str, *, usable: bool) -> None:
    assert len(described(nodes=node("n1", state=state)).host_classes) == usable


def test_without_equal_nodes_features_are_left_out_and_then_attributes_with_most_values() -> None:
    by_feature = described(nodes="".join(node(f"n{number}", f"rack{number}") for number in range(600)))
    [only] = by_feature.host_classes
    assert only.count == 600
    assert "SlurmFeatures" not in only.attributes
    by_memory = described(nodes="".join(node(f"n{number}", memory=number + 1) for number in range(600)))
    [only] = by_memory.host_classes
    assert only.count == 600
    assert "GlueHostMainMemoryRAMSize" not in only.attributes
    assert only.attributes["GlueHostArchitectureSMPSize"] == 8
    assert by_memory.attributes["GlueCEInfoTotalCPUs"] == 4800


def test_a_partial_or_foreign_output_is_unreadable() -> None:
    for damaged in (NODES[:-1], NODES[:200] + "\n", "slurm_load_node error\n", node("n1", memory=-1)):
        with pytest.raises(UnreadableOutput):
            described(nodes=damaged)
    for jobs in ("RUNNING", "NO_SUCH_STATE\n"):
        with pytest.raises(UnreadableOutput):
            described(jobs=jobs)
    for text in ("", PARTITIONS.replace("State=UP", "State=NEW"), PARTITIONS.replace("MaxTime=", "X=")):
        with pytest.raises(UnreadableOutput):
            information.named_partitions(information.read_shown_partitions(text), SlurmOptions())


@given(st.text() | st.text(st.sampled_from("NodeName=PartitionStateCPUTot \n\0,()[]*+1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (
        lambda: list(information.read_shown_nodes(text)),
        lambda: list(information.read_shown_nodes(NODES + "NodeName=" + text + "\n")),
        lambda: information.read_shown_partitions(text),
        lambda: information.count_jobs(text),
    ):
        with suppress(UnreadableOutput):
            read()
