"""Options of CEs that are clusters of LSF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.forwarding.table import FlagSyntax, ForwardTable, HostSelection
from pilotage.core.policy.batch_options import BatchOptions, LogFolder
from pilotage.core.setting import Setting

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_REQUIREMENT = r"[A-Za-z0-9_ .,:;=<>!&|()\[\]{}*/+-]{1,1000}"

_FORWARDING = ForwardTable(
    rules={
        "GlueCEPolicyMaxWallClockTime": "wall",
        "GlueHostMainMemoryRAMSize": "complex maxmem <= megabytes",
        "GlueHostArchitectureSMPSize": "complex ncpus <= integer",
        "LsfResources": "feature {}",
    },
    syntax=FlagSyntax.SELECTION,
    feature_option="-R",
    complex_option="-R",
    has_wall=True,
    selection=HostSelection.HOSTS,
    selection_option="-m",
    hook_options={
        "-R": r"(?:select|order)\[[A-Za-z0-9_.=<>!&|()+:-]{1,900}\]",
        "-P": _NAME,
        "-G": _NAME,
        "-app": _NAME,
        "-q": _NAME,
        "-sp": "[0-9]{1,6}",
    },
)
"""A selection compares values of hosts and allocates nothing. Booleans of hosts are features."""


class LsfOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of LSF"
    is_experimental: ClassVar[bool] = True
    own_endpoints: ClassVar[str] = (
        "the commands of LSF find the master, or the host that took its place, by lsf.conf; another cluster is a CE"
        " with its own [ces.NAME.lsf] envdir"
    )
    forwarding: ClassVar[ForwardTable] = _FORWARDING
    partition_key: ClassVar[str] = "queue"

    envdir: Annotated[
        str, Setting("absolute path of the folder with lsf.conf; empty: LSF_ENVDIR of the server")
    ] = ""
    queue: Annotated[str, Setting("queue of its pilots; empty: the default one of the cluster")] = ""
    project: Annotated[str, Setting("project that its pilots are charged to, as for `bsub -P`")] = ""
    user_group: Annotated[str, Setting("user group of its pilots in fairshare, as for `bsub -G`")] = ""
    application: Annotated[str, Setting("application profile of its pilots, as for `bsub -app`")] = ""
    requirements: Annotated[
        str, Setting("further resource requirements of each pilot, as for `bsub -R`, such as select[gpu]")
    ] = ""
    log_folder: LogFolder = ""

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from self.mistakes_in_names(_NAME, "queue", "project", "user_group", "application")
        yield from self.mistakes_in_paths("envdir", "log_folder")
        if self.requirements and not re.fullmatch(_REQUIREMENT, self.requirements):
            yield "requirements", "requirements must be sections such as select[gpu] without quotes"
        if re.search(r"\bspan\s*\[|\bmem\s*=", self.requirements):
            yield "requirements", "requirements names span or mem, which the size of the CE's pilots sets"
