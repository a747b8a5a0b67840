"""Options of CEs that are Torque clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.forwarding.table import FlagSyntax, ForwardTable
from pilotage.core.policy.batch_options import BatchOptions, LogFolder
from pilotage.core.policy.batch_systems.pbs import NAME, mistakes_in_dialect
from pilotage.core.setting import Setting

_PROPERTY = r"[A-Za-z_][A-Za-z0-9_.-]{0,99}"

_FORWARDING = ForwardTable(
    rules={"GlueCEPolicyMaxWallClockTime": "wall", "TorqueProperties": "feature {}"},
    syntax=FlagSyntax.PROPERTIES,
    feature_option="-l",
    has_wall=True,
    hook_options={"-l": rf"{_PROPERTY}(:{_PROPERTY})*", "-A": NAME, "-p": "-?[0-9]{1,4}"},
)
"""Torque gives a job nodes that have all of its properties: it has no `or`."""


class TorqueOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of Torque"
    is_experimental: ClassVar[bool] = True
    own_endpoints: ClassVar[str] = (
        "the commands of Torque try the servers of PBS_DEFAULT themselves; another server is a CE with its own"
        " [ces.NAME.torque] server"
    )
    forwarding: ClassVar[ForwardTable] = _FORWARDING
    partition_key: ClassVar[str] = "queue"

    server: Annotated[
        str, Setting("name of its server, as for PBS_DEFAULT; empty: that of the server's machine")
    ] = ""
    queue: Annotated[str, Setting("queue of its pilots; empty: the default one of the server")] = ""
    account: Annotated[str, Setting("account that its pilots are charged to, as for `qsub -A`")] = ""
    properties: Annotated[
        str, Setting("properties that the nodes of its pilots have, such as bigmem:fast")
    ] = ""
    log_folder: LogFolder = ""

    @property
    def own_features(self) -> str:
        return self.properties

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from mistakes_in_dialect(self, "queue", "account")
        if self.properties and not re.fullmatch(rf"{_PROPERTY}(:{_PROPERTY})*", self.properties):
            yield "properties", "properties must be names, with colons between them"
