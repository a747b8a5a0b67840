"""Options of CEs that are OpenPBS or PBS Professional clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.forwarding.table import FlagSyntax, ForwardTable
from pilotage.core.policy.batch_options import BatchOptions, LogFolder
from pilotage.core.setting import Setting

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
SERVER = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}(?::[0-9]{1,5})?"
_REQUEST = r"[A-Za-z_][A-Za-z0-9_-]{0,99}=[A-Za-z0-9_.,+-]{1,200}"

_FORWARDING = ForwardTable(
    rules={"GlueCEPolicyMaxWallClockTime": "wall"},
    syntax=FlagSyntax.CHUNK,
    complex_option="-l",
    has_wall=True,
    hook_options={"-l": rf"{_REQUEST}(:{_REQUEST})*", "-P": NAME, "-A": NAME, "-p": "-?[0-9]{1,4}"},
)
"""No rule asks for cores or memory: PBS would allocate them, so they would refuse hosts that fit."""


class PbsOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of OpenPBS or PBS Professional"
    is_experimental: ClassVar[bool] = True
    own_endpoints: ClassVar[str] = (
        "the commands of PBS find a primary and a secondary server themselves; another server is a CE with its own"
        " [ces.NAME.pbs] server"
    )
    forwarding: ClassVar[ForwardTable] = _FORWARDING
    partition_key: ClassVar[str] = "queue"

    server: Annotated[
        str, Setting("name of its server, as for PBS_SERVER; empty: that of the server's machine")
    ] = ""
    queue: Annotated[str, Setting("queue of its pilots; empty: the default one of the server")] = ""
    account: Annotated[
        str, Setting("account that its pilots are charged to, as for `qsub -A`; some sites charge projects")
    ] = ""
    project: Annotated[str, Setting("project of its pilots, as for `qsub -P`")] = ""
    resources: Annotated[
        str, Setting("further resources of each pilot's chunk, such as ngpus=1:model=epyc")
    ] = ""
    log_folder: LogFolder = ""

    @property
    def own_requests(self) -> frozenset[str]:
        own = [request.partition("=")[0] for request in self.resources.split(":") if request]
        return frozenset({*own, "ncpus", "mem"})

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from mistakes_in_dialect(self, "queue", "account", "project")
        if self.resources and not re.fullmatch(rf"{_REQUEST}(:{_REQUEST})*", self.resources):
            yield "resources", "resources must be NAME=VALUE, with colons between them"
        names = [request.partition("=")[0] for request in self.resources.split(":")]
        if taken := next((name for name in names if name in ("ncpus", "mem", "walltime")), ""):
            yield "resources", f"resources names {taken}, which the size of the CE's pilots sets"
        if twice := next((name for name in names if names.count(name) > 1), ""):
            yield "resources", f"resources names {twice} twice"


def mistakes_in_dialect(options: BatchOptions, *names: str) -> Iterator[tuple[str, str]]:
    """The mistakes that names, `server` and `log_folder` of all dialects of PBS can have."""
    yield from options.mistakes_in_names(NAME, *names)
    if (server := getattr(options, "server", "")) and not re.fullmatch(SERVER, server):
        yield "server", "server must be the name of a host, with :PORT where it has one of its own"
    yield from options.mistakes_in_paths("log_folder")
