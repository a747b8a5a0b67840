"""Names of hosts as flags: the fitting hosts of a CE as a subset of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pilotage.core.brokering.information import HostClass
from pilotage.core.forwarding.table import ForwardTable, HostSelection

MAX_HOSTS = 2000
"""Names in one flag."""
MAX_CHARACTERS = 60_000
"""Of one flag. Linux allows 131,072 in an argument."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?")

NOT_KNOWN = "host selection: the names of the hosts are not known"


def select_hosts(
    table: ForwardTable, fitting: Sequence[HostClass], others: Sequence[HostClass]
) -> tuple[tuple[str, ...], str]:
    """The flags that keep a job on the hosts of `fitting`, and why there are none; empty: they are complete.

    Hosts that the batch system has and that no class has are not refused where it takes the others only.
    """
    named = others if table.selection is HostSelection.EXCLUDE else fitting
    if not fitting or any(len(known.hosts) != known.count for known in (*fitting, *others)):
        return (), NOT_KNOWN
    names = sorted({host for known in named for host in known.hosts})
    for name in names:
        if not _HOST.fullmatch(name):
            return (), f"host selection: {name[:80]!r} is no name of a host"
    if len(names) > MAX_HOSTS or sum(len(name) + 1 for name in names) > MAX_CHARACTERS:
        return (), f"host selection: {len(names)} names are too many for one flag"
    if not names:
        return (), ""
    return _flags(table, names), ""


def _flags(table: ForwardTable, names: Iterable[str]) -> tuple[str, ...]:
    if table.selection is HostSelection.EXCLUDE:
        return (f"{table.selection_option}={','.join(names)}",)
    return (table.complex_option, f"{table.selection_option}={'|'.join(names)}")
