"""`sinfo`: list partitions, which are names of CEs, and nodes, which are the hosts of pilots."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pilotage.cli.session import session_of_environment
from pilotage.cli.slurm.amounts import format_clock
from pilotage.cli.slurm.columns import TableColumn, fixed_columns, parse_letters, parse_names, print_table
from pilotage.cli.slurm.job_view import CLUSTER
from pilotage.cli.slurm.nodes import PilotHost, hosts_of
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.query_options import SINFO_OPTIONS
from pilotage.cli.slurm.selection import words_of
from pilotage.cli.slurm.usage import SPOKEN, note, show_usage
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pilotage.wire.sites import PartitionSummary

_SHORT: Final = {"idle": "idle", "mixed": "mix", "allocated": "alloc", "n/a": "n/a"}


@dataclass
class NodeRow:
    """The hosts of a partition in one state."""

    partition: PartitionSummary
    state: str
    hosts: list[PilotHost]

    def count(self, state: str) -> int:
        return sum(1 for host in self.hosts if host.state == state)

    @property
    def cores(self) -> tuple[int, int]:
        """(used, all)."""
        return sum(host.used for host in self.hosts), sum(host.processors for host in self.hosts)


def _title(row: NodeRow) -> str:
    return row.partition.name + ("*" if row.partition.default else "")


def _time_limit(row: NodeRow) -> str:
    return format_clock(row.partition.wall) if row.partition.wall else "n/a"


def _cores(row: NodeRow) -> str:
    used, total = row.cores
    return f"{used}/{total - used}/0/{total}"


def _nodes(row: NodeRow) -> str:
    idle = row.count("idle")
    return f"{len(row.hosts) - idle}/{idle}/0/{len(row.hosts)}"


def _names(row: NodeRow) -> str:
    return ",".join(host.name for host in row.hosts)


def _most_cores(row: NodeRow) -> str:
    return str(max((host.processors for host in row.hosts), default=0))


_SAME: Final = (
    ("features_act", "ACTIVE_FEATURES", "(null)", "b"),
    ("maxcpuspernode", "MAX_CPUS_PER_NODE", "UNLIMITED", "B"),
    ("freemem", "FREE_MEM", "N/A", "e"),
    ("priorityjobfactor", "PRIO_JOB_FACTOR", "1", "I"),
    ("defaulttime", "DEFAULTTIME", "n/a", "L"),
    ("preemptmode", "PREEMPT_MODE", "OFF", "M"),
    ("cpusload", "CPU_LOAD", "N/A", "O"),
    ("allocnodes", "ALLOCNODES", "all", "S"),
    ("userlong", "USER", "Unknown", "U"),
    ("version", "VERSION", SPOKEN, "v"),
    ("cluster", "CLUSTER", CLUSTER, "V"),
    ("sockets", "SOCKETS", "1", "X"),
    ("threads", "THREADS", "1", "Z"),
    ("comment", "COMMENT", "(null)", ""),
    ("extra", "EXTRA", "(null)", ""),
    ("gresused", "GRES_USED", "(null)", ""),
    ("allocmem", "ALLOCMEM", "0", ""),
    ("port", "PORT", "0", ""),
    ("reservation", "RESERVATION", "", ""),
    ("disk", "TMP_DISK", "0", "d"),
    ("groups", "GROUPS", "all", "g"),
    ("oversubscribe", "OVERSUBSCRIBE", "NO", "h"),
    ("timestamp", "TIMESTAMP", "Unknown", "H"),
    ("prioritytier", "PRIO_TIER", "1", "p"),
    ("reason", "REASON", "none", "E"),
    ("root", "ROOT", "no", "r"),
    ("size", "JOB_SIZE", "1", "s"),
    ("user", "USER", "Unknown", "u"),
    ("weight", "WEIGHT", "1", "w"),
)
"""Columns that are the same for each row here: name, title, value and letter."""
_STATES: Final = ("idle", "mixed", "allocated")
_ABSENT_STATES: Final = (
    "blocked", "cloud", "completing", "down", "drained", "draining", "fail", "future", "inval", "maint", "no_respond",
    "perfctrs", "planned", "power_down", "power_up", "powered_down", "powering_down", "powering_up",
    "reboot", "reserved",
    "unknown",
)  # fmt: skip
"""States of Slurm that no host has here."""
COLUMNS: Final[tuple[TableColumn[NodeRow], ...]] = (
    TableColumn("partition", "PARTITION", _title, "P"),
    TableColumn("partitionname", "PARTITION", lambda row: row.partition.name, "R"),
    TableColumn("available", "AVAIL", lambda row: row.partition.state, "a"),
    TableColumn("time", "TIMELIMIT", _time_limit, "l"),
    TableColumn("nodes", "NODES", lambda row: str(len(row.hosts)), "D"),
    TableColumn("nodeaiot", "NODES(A/I/O/T)", _nodes, "F"),
    TableColumn("nodeai", "NODES(A/I)", lambda row: "/".join(_nodes(row).split("/")[:2]), "A"),
    TableColumn("statecompact", "STATE", lambda row: _SHORT[row.state], "t"),
    TableColumn("statelong", "STATE", lambda row: row.state, "T"),
    TableColumn("nodelist", "NODELIST", _names, "N"),
    TableColumn("nodehost", "HOSTNAMES", _names, "n"),
    TableColumn("cpus", "CPUS", _most_cores, "c"),
    TableColumn("cores", "CORES", _most_cores, "Y"),
    TableColumn("socketcorethread", "S:C:T", lambda row: f"1:{_most_cores(row)}:1", "z"),
    TableColumn("nodeaddr", "NODE_ADDR", _names, "o"),
    TableColumn("cpusstate", "CPUS(A/I/O/T)", _cores, "C"),
    TableColumn("features", "AVAIL_FEATURES", lambda row: "(null)", "f"),
    TableColumn("gres", "GRES", lambda row: "(null)", "G"),
    TableColumn("memory", "MEMORY", lambda row: "0", "m"),
    *fixed_columns(_SAME),
)  # fmt: skip
DEFAULT_FORMAT: Final = "%9P %.5a %.10l %.6D %.6t %N"
SUMMARY_FORMAT: Final = "%9P %.5a %.10l %.16F %N"
NODE_FORMAT: Final = "%N %.6D %.9P %.5t"
LONG_FORMAT: Final = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"


def sinfo(words: list[str]) -> int:
    """List partitions and nodes."""
    read = SINFO_OPTIONS.read_with_variables(words, os.environ, ("format", "Format"))
    values = read.values
    if show_usage(SINFO_OPTIONS, read, "sinfo [OPTIONS]"):
        return 0
    if read.rest:
        raise InvalidInput(f"unexpected word: {read.rest[0]}")
    for text in SINFO_OPTIONS.ignored_notes(read):
        note("sinfo", text)
    if "Format" in values:
        pieces = parse_names(values["Format"], COLUMNS, "--Format")
    else:
        default = (
            SUMMARY_FORMAT if "summarize" in values else LONG_FORMAT if "long" in values else DEFAULT_FORMAT
        )
        default = NODE_FORMAT if "Node" in values else default
        pieces = parse_letters(values.get("format") or default, COLUMNS, "--format")
    with session_of_environment().client() as client:
        known = client.partitions()
        hosts = hosts_of(client)
    chosen = words_of(values, "partition")
    if names := words_of(values, "nodes"):
        hosts = [host for host in hosts if host.name in names]
    if states := _states(values):
        hosts = [host for host in hosts if host.state in states]
    rows = [
        row
        for partition in known
        if not chosen or partition.name in chosen
        for row in _rows(partition, hosts, read)
    ]
    if "long" in values and "noheader" not in values:
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    print_table(pieces, rows, header="noheader" not in values)
    return 0


def _states(values: Mapping[str, str]) -> set[str]:
    """The states of --states. A state that no host has here, such as `down`, selects nothing.

    Raises InvalidInput for a word that is no state in Slurm.
    """
    words = [word.lower() for word in words_of(values, "states")]
    for word in words:
        if not any(state.startswith(word) for state in (*_STATES, *_ABSENT_STATES, "all")):
            raise InvalidInput(f"--states: {word} is no state of a node", hint=", ".join(_STATES))
    if "all" in words:
        return set()
    known = {state for state in _STATES for word in words if state.startswith(word)}
    return known or set(words)


def _rows(partition: PartitionSummary, hosts: list[PilotHost], read: ReadOptions) -> list[NodeRow]:
    of_partition = [host for host in hosts if host.is_in(partition)]
    if "Node" in read.values:
        return [NodeRow(partition, host.state, [host]) for host in of_partition]
    if "summarize" in read.values or not of_partition:
        return [NodeRow(partition, "n/a", of_partition)]
    states = sorted({host.state for host in of_partition})
    return [
        NodeRow(partition, state, [host for host in of_partition if host.state == state]) for state in states
    ]
