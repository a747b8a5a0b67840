"""Grid Engine's queues on hosts and its complexes, as its commands print them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.sge import commands, queues
from pilotage.outside.batch.sge.requests import PilotPlaces, named_host_groups, read_host_group

COMPLEXES = """\
#name               shortcut   type      relop requestable consumable default  urgency 
#--------------------------------------------------------------------------------------
arch                a          STRING    ==    YES         NO         NONE     0
gpu                 gpu        INT       <=    YES         JOB        0        0
h_rt                h_rt       TIME      <=    YES         NO         0:0:0    0
h_vmem              h_vmem     MEMORY    <=    YES         YES        0        0
mem_free            mf         MEMORY    <=    YES         NO         0        0
os                  os         RESTRING  ==    YES         NO         NONE     0
si00                si         INT       <=    YES         NO         0        0
ssd                 ssd        BOOL      ==    YES         NO         FALSE    0
# >#< starts a comment but comments are not saved across edits --------
"""


FIXED = ("h_rt", "os", "si00", "ssd")
"""Complexes whose values an administrator has set."""


def queue(name: str, host: str, state: str = "", used: int = 0, **values: str) -> str:
    """A queue on a host as `qstat -F -xml` prints it."""
    known = {"arch": "lx-amd64", "num_proc": "8", "mem_total": "23.541G", "h_rt": "00:30:00", **values}
    resources = "".join(
        f'<resource name="{key}" type="{"hf" if key in FIXED else "hl"}">{value}</resource>\n'
        for key, value in known.items()
    )
    return (
        f"<Queue-List>\n<name>{name}@{host}</name>\n<qtype>BIP</qtype>\n<slots_used>{used}</slots_used>\n"
        f"<slots_resv>0</slots_resv>\n<slots_total>16</slots_total>\n<arch>lx-amd64</arch>\n"
        f"{f'<state>{state}</state>' if state else ''}\n{resources}"
        + "".join(
            f'<job_list state="running"><JB_job_number>5</JB_job_number><state>r</state><tasks>{task}</tasks>'
            "</job_list>\n"
            for task in range(1, used + 1)
        )
        + "</Queue-List>\n"
    )


def described(found: queues.QueueListing, **options: str) -> CeInformation:
    """The information of a CE with these options."""
    complexes = queues.read_complexes(COMPLEXES)
    places = PilotPlaces(SgeOptions(**options), {}, complexes)  # type: ignore[arg-type]
    return queues.describe_ce(found, places.select(found.instances), complexes)


def listing(*instances: str) -> queues.QueueListing:
    pending = '<job_list state="pending"><state>hqw</state><tasks>1-3:1</tasks></job_list>'
    text = f"<?xml version='1.0'?><job_info><queue_info>{''.join(instances)}</queue_info>"
    return queues.read_queues(text + f"<job_info>{pending}</job_info></job_info>")


def test_queues_become_partitions_with_the_kinds_of_their_hosts() -> None:
    known = queues.partitions(
        listing(
            queue("long.q", "n1", h_rt="infinity", mem_total="1.000G"),
            queue("all.q", "n1", "d"),
            queue("all.q", "n2", "au", h_rt="01:00:00"),
        )
    )
    assert [(row.name, row.up, row.wall, row.kinds, row.default) for row in known] == [
        ("all.q", False, 3600.0, ((1, 16, 24105), (1, 16, 24105)), True),
        ("long.q", True, None, ((1, 16, 1024),), False),
    ]
    assert queues.partitions(listing()) == []


def test_hosts_are_classes_by_their_values() -> None:
    known = described(
        listing(
            queue("all.q", "n1", used=2, si00="600.000000", ssd="1", gpu="2", h_vmem="4.000G", os="debian12"),
            queue("all.q", "n2", si00="400.000000"),
            queue("all.q", "n3", si00="400.000000"),
            queue("all.q", "n4", "u"),
            queue("long.q", "n1", si00="1000.000000", h_rt="48:00:00"),
        ),
        queue="all.q",
    )
    glue: dict[str, Value] = {
        "GlueHostArchitecturePlatformType": "x86_64",
        "GlueHostMainMemoryRAMSize": 24105,
        "GlueHostArchitectureSMPSize": 8,
    }
    assert known.host_classes == (
        HostClass(2, {**glue, "si00": 400}, ("n2", "n3")),
        HostClass(1, {**glue, "si00": 600, "ssd": True, "os": "debian12"}, ("n1",)),
    )
    assert known.attributes == {
        **glue,
        "GlueCEName": "all.q",
        "GlueCEInfoLRMSType": "sge",
        "GlueCEInfoTotalCPUs": 64,
        "GlueCEStateStatus": "Production",
        "GlueCEStateFreeCPUs": 46,
        "GlueCEStateRunningJobs": 2,
        "GlueCEStateWaitingJobs": 3,
        "GlueCEStateTotalJobs": 5,
        "UnavailableHosts": 1,
        "GlueCEPolicyMaxWallClockTime": 1800,
    }


def test_a_host_whose_queues_differ_is_named_by_queue() -> None:
    known = described(
        listing(queue("slow.q", "n1", si00="400"), queue("fast.q", "n1", si00="600", h_rt="48:00:00"))
    )
    assert {row.hosts: row.attributes["si00"] for row in known.host_classes} == {
        ("slow.q@n1",): 400,
        ("fast.q@n1",): 600,
    }
    assert known.attributes["GlueCEPolicyMaxWallClockTime"] == 172800
    assert known.attributes["GlueCEName"] == "fast.q,slow.q"


def test_queues_without_a_host_that_starts_jobs() -> None:
    known = described(listing(queue("all.q", "n1", "d")), queue="all.q")
    assert known.attributes["GlueCEStateStatus"] == "Queueing"
    assert known.host_classes == ()
    with pytest.raises(UnreadableOutput, match=r"no queue 'nosuch.q'"):
        described(listing(queue("all.q", "n1")), queue="nosuch.q")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("", {"a.q@n1", "a.q@n2", "b.q@n1"}),
        ("a.q", {"a.q@n1", "a.q@n2"}),
        ("a.q@n2", {"a.q@n2"}),
        ("a.q@n2,b.q", {"a.q@n2", "b.q@n1"}),
        ("*.q", {"a.q@n1", "a.q@n2", "b.q@n1"}),
        ("a*", {"a.q@n1", "a.q@n2"}),
        ("*@n2", {"a.q@n2"}),
        ("*@n2.example.org", {"a.q@n2"}),
        ("a.q@@fast", {"a.q@n2"}),
        ("b.q,*@@fast", {"a.q@n2", "b.q@n1"}),
        ("b.q@@fa*", {"b.q@n1"}),
    ],
)
def test_the_queues_of_a_ce(wanted: str, names: set[str]) -> None:
    """A host group names its hosts, in no queue but its own. Only a pattern of groups is Grid Engine's matter."""
    found = listing(queue("a.q", "n1", x="1"), queue("a.q", "n2", x="2"), queue("b.q", "n1", x="3"))
    places = PilotPlaces(SgeOptions(queue=wanted), {"@fast": read_host_group("n2 n3\n")}, {})
    assert {f"{place.queue}@{place.host}" for place in places.select(found.instances)} == names


def test_host_groups_are_asked_by_their_names() -> None:
    assert named_host_groups("a.q@@fast,b.q@n1,*@@fast,c.q@@s*,d.q") == ["@fast"]


@pytest.mark.parametrize(
    ("resources", "hosts"),
    [
        ("", {"n1", "n2", "n3"}),
        ("si00=500", {"n1"}),
        ("si=400", {"n1", "n2"}),
        ("gpu=1", {"n2"}),
        ("ssd", {"n1"}),
        ("ssd=true,si00=400", {"n1"}),
        ("arch=lx-amd64", {"n1", "n2", "n3"}),
        ("arch=lx-*", {"n1", "n2", "n3"}),
        ("os=debian12|debian13", {"n1"}),
        ("mem_free=900G", {"n1", "n2", "n3"}),
        ("h_rt=60", {"n1", "n2", "n3"}),
        ("h_rt=1:0:0", set()),
        ("other=1", {"n1", "n2", "n3"}),
    ],
)
def test_the_hosts_of_a_ce_offer_the_resources_of_its_pilots(resources: str, hosts: set[str]) -> None:
    """A measured value such as free memory, a consumable and an unknown complex are Grid Engine's own matter."""
    found = listing(
        queue("a.q", "n1", si00="600.000000", ssd="1", os="debian12", mem_free="1.000G"),
        queue("a.q", "n2", si00="400", ssd="0", gpu="0", mem_free="1.000G"),
        queue("a.q", "n3", mem_free="1.000G"),
    )
    places = PilotPlaces(SgeOptions(resources=resources), {}, queues.read_complexes(COMPLEXES))
    if not hosts:
        with pytest.raises(UnreadableOutput, match="offers 'h_rt=1:0:0' on any host"):
            places.select(found.instances)
        return
    assert {place.host for place in places.select(found.instances)} == hosts


@pytest.mark.parametrize(
    ("shape", "queues_left"),
    [
        (Shape(1), {"long.q", "short.q", "wide.q"}),
        (Shape(1, 0, 1800.0), {"long.q", "wide.q"}),
        (Shape(1, 0, 1801.0), {"long.q"}),
        (Shape(17), {"wide.q"}),
        (Shape(17, 0, 1801.0), {"long.q", "short.q", "wide.q"}),
    ],
)
def test_queues_that_are_too_small_for_the_pilots_are_left_out(shape: Shape, queues_left: set[str]) -> None:
    """A pilot in vain would wait there for ever. Where no queue is large enough the scheduler tells why."""
    wide = queue("wide.q", "n1").replace("<slots_total>16<", "<slots_total>32<")
    found = listing(queue("short.q", "n1", h_rt="00:05:00"), queue("long.q", "n1", h_rt="infinity"), wide)
    places = PilotPlaces(SgeOptions(), {}, {}, shape)
    assert {place.queue for place in places.select(found.instances)} == queues_left


def test_a_host_that_does_not_answer_still_counts() -> None:
    found = listing(queue("a.q", "n1", "au", si00="600"))
    silent = [replace(row, values={}) for row in found.instances]
    places = PilotPlaces(SgeOptions(resources="si00=500"), {}, queues.read_complexes(COMPLEXES))
    assert places.select(silent) == silent


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:30:00", 1800.0),
        ("90", 90.0),
        ("2:00:00:00", 172800.0),
        ("infinity", None),
        ("", None),
        ("1:x", None),
    ],
)
def test_spans(text: str, seconds: float | None) -> None:
    assert queues.read_span(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("23.541G", int(23.541 * 2**30)),
        ("512M", 512 << 20),
        ("1k", 1000),
        ("0.000", 0),
        ("infinity", None),
        ("G", None),
        ("999999999999999T", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert queues.read_memory(text) == size


def test_memory_counts_for_each_slot_where_slots_consume_it() -> None:
    complexes = queues.read_complexes(COMPLEXES)
    assert queues.is_consumed_per_slot(complexes, "h_vmem")
    assert not queues.is_consumed_per_slot(complexes, "mf")
    assert not queues.is_consumed_per_slot(complexes, "gpu")
    submission = BatchSubmission("pilotage-1", 1, Shape(4, 1001, 90.5), "")
    options = SgeOptions(pe="smp", memory_complex="h_vmem", resources="ssd=true")
    words = commands.submit(submission, options, memory_per_slot=True)
    assert words[-2:] == ["-l", "ssd=true,h_rt=91,h_vmem=251M"]
    assert "ssd=true,h_rt=91,h_vmem=1001M" in commands.submit(submission, options)
