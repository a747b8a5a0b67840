"""Names of hosts as flags: the fitting hosts of a CE as a subset of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pilotage.core.forwarding.table import ForwardTable, HostSelection
from pilotage.core.glue.information import HostClass

MAX_HOSTS = 2000
"""Names in one flag."""
MAX_CHARACTERS = 60_000
"""Characters of one flag. Linux allows 131,072 in an argument."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?"
_HOST = {
    HostSelection.EXCLUDE: re.compile(_NAME),
    HostSelection.HOSTS: re.compile(_NAME),
    HostSelection.QUEUES: re.compile(rf"(?:{_NAME}@)?{_NAME}"),
}

NOT_KNOWN = "host selection: the names of the hosts are not known"


def select_hosts(
    table: ForwardTable, fitting: Sequence[HostClass], others: Sequence[HostClass], own_queue: str = ""
) -> tuple[tuple[str, ...], str]:
    """The flags that keep a job on the hosts of `fitting`, and why there are none; empty: they are complete.

    `others`: the classes that the job must not use. With HostSelection.EXCLUDE a host of no class may be used too.
    `own_queue`: the queues that the policy asks for.
    """
    named = others if table.selection is HostSelection.EXCLUDE else fitting
    if not fitting or any(len(host_class.hosts) != host_class.count for host_class in (*fitting, *others)):
        return (), NOT_KNOWN
    names = sorted({host for host_class in named for host in host_class.hosts})
    for name in names:
        if not _HOST[table.selection].fullmatch(name):
            return (), f"host selection: {name[:80]!r} is no name of a host"
    if len(names) > MAX_HOSTS or sum(len(name) + 1 for name in names) > MAX_CHARACTERS:
        return (), f"host selection: {len(names)} names are too many for one flag"
    if not names:
        return (), ""
    if table.selection is HostSelection.EXCLUDE:
        return (f"{table.selection_option}={','.join(names)}",), ""
    if table.selection is HostSelection.HOSTS:
        return (table.selection_option, " ".join(names)), ""
    queues = own_queue.split(",") if own_queue else ["*"]
    if not all(re.fullmatch(r"\*|[A-Za-z0-9_.-]+", queue) for queue in queues):
        return (), f"host selection: the queues {own_queue[:80]!r} are no plain names"
    chosen = [name if "@" in name else f"{queue}@{name}" for name in names for queue in queues]
    return (table.selection_option, ",".join(dict.fromkeys(chosen))), ""
