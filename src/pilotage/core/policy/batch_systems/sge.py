"""Options of CEs that are Grid Engine clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.forwarding.table import ForwardTable, HostSelection
from pilotage.core.policy.batch_options import BatchOptions, LogFolder
from pilotage.core.setting import Setting

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,127}"
_QUEUE = re.compile(r"[A-Za-z_*@][A-Za-z0-9_.*?@,-]{0,255}")
_REQUESTED = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]{0,127})(=[^\0-\037\177\"'\\]+)?")
_MOST_RESOURCES = 1024
"""Characters of `resources`."""

_WORD = r"[A-Za-z_][A-Za-z0-9_.-]{0,99}"
_REQUEST = rf"{_WORD}=[A-Za-z0-9_.:|+-]{{1,200}}"

_FORWARDING = ForwardTable(
    rules={
        "GlueCEPolicyMaxWallClockTime": "wall",
        "GlueHostMainMemoryRAMSize": "complex mem_total <= megabytes",
        "GlueHostMainMemoryVirtualSize": "complex virtual_total <= megabytes",
    },
    complex_option="-l",
    has_wall=True,
    selection=HostSelection.QUEUES,
    selection_option="-q",
    hook_options={"-l": rf"{_REQUEST}(,{_REQUEST})*", "-P": _WORD, "-A": _WORD, "-p": "-[0-9]{1,4}"},
)
"""Sizes of hosts are load values: a request compares them and consumes nothing.

No rule asks for cores: a request for num_proc fits hosts with exactly this number.
"""


class SgeOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of Grid Engine"
    own_endpoints: ClassVar[str] = (
        "Grid Engine's commands find its master, or the shadow of it, in the file act_qmaster of the cell; another"
        " cell is a CE with its own [ces.NAME.sge] root and cell"
    )
    forwarding: ClassVar[ForwardTable] = _FORWARDING
    partition_key: ClassVar[str] = "queue"

    root: Annotated[
        str,
        Setting("absolute path of SGE_ROOT on the server's machine and its nodes; empty: that of the server"),
    ] = ""
    cell: Annotated[str, Setting("cell of the cluster; empty: SGE_CELL of the server, or default")] = ""
    qmaster_port: Annotated[
        int,
        Setting(
            "port of its master; 0: SGE_QMASTER_PORT of the server, or the service sge_qmaster", 0, 65535
        ),
    ] = 0
    queue: Annotated[
        str, Setting("queue of its pilots, as for `qsub -q`; empty: any that the pilot fits")
    ] = ""
    project: Annotated[str, Setting("project that its pilots are charged to, as for `qsub -P`")] = ""
    account: Annotated[str, Setting("text in the accounting records of its pilots, as for `qsub -A`")] = ""
    pe: Annotated[
        str,
        Setting(
            "parallel environment of pilots with several cores, all on one host (allocation_rule $pe_slots); without it"
            " only pilots of one core are submitted"
        ),
    ] = ""
    memory_complex: Annotated[
        str,
        Setting(
            "complex that asks for the memory of a pilot, such as mem_free or h_vmem; empty: memory is not asked for"
        ),
    ] = "mem_free"
    resources: Annotated[
        str, Setting("further resources of each pilot, as for `qsub -l`, such as arch=lx-amd64,gpu=1")
    ] = ""
    log_folder: LogFolder = ""

    @property
    def own_requests(self) -> frozenset[str]:
        return frozenset({*requested_names(self.resources), "h_rt", self.memory_complex})

    @property
    def largest_pilot(self) -> tuple[int, str] | None:
        if self.pe:
            return None
        return 1, "pilots of several cores need a parallel environment: set `pe`; `qconf -spl` lists them"

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from self.mistakes_in_paths("root", "log_folder")
        yield from self.mistakes_in_names(_NAME, "cell", "project", "account", "pe", "memory_complex")
        if self.queue and not _QUEUE.fullmatch(self.queue):
            yield "queue", "queue must be names such as all.q or long.q@@fast, with commas between them"
        if reason := _mistake_in_resources(self.resources):
            yield "resources", f"resources {reason}"


def split_requests(resources: str) -> list[str]:
    """The requests of a list as for `qsub -l`, each NAME=VALUE or NAME. Commas and blanks stand between them."""
    return [request for request in re.split(r"[, ]+", resources) if request]


def requested_names(resources: str) -> list[str]:
    """The names of a list of requests."""
    return [request.partition("=")[0] for request in split_requests(resources)]


def _mistake_in_resources(resources: str) -> str:
    """Why Grid Engine would refuse or change the requests; empty: it would do neither."""
    if len(resources) > _MOST_RESOURCES:
        return f"must have at most {_MOST_RESOURCES} characters"
    if any(not _REQUESTED.fullmatch(request) for request in split_requests(resources)):
        return "must be NAME=VALUE, with commas between them and without quotes"
    names = requested_names(resources)
    if twice := next((name for name in names if names.count(name) > 1), ""):
        return f"names {twice} twice, and only the last of the two requests would count"
    if "h_rt" in names:
        return "names h_rt, which `wall` of the CE sets: change wall"
    if taken := {"slots", "s"}.intersection(names):
        return f"names {min(taken)}, which Grid Engine does not take: set `pe` and pilot_processors"
    return ""
