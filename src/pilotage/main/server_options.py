"""Options of `up` for the port, the sandboxes and the limits of the server."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

from pilotage.cli.parser import CommandOption


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogOptions(NamedTuple):
    """The log of a server, which is its error output."""

    verbose: bool
    format: LogFormat


LogFormatOption = Annotated[
    LogFormat,
    CommandOption(
        envvar="PILOTAGE_LOG_FORMAT", help="Form of the log: lines of text, or a JSON object a line"
    ),
]


class PlainOptions(NamedTuple):
    """Options that a detached server gets as they were given; the fields have their names."""

    connections: int
    connections_per_address: int
    proxies: str
    least_free: int
    otlp: str


PortOption = Annotated[
    int,
    CommandOption(
        envvar="PILOTAGE_PORT",
        metavar="PORT",
        min=0,
        max=65535,
        help="TCP port; 0: the port of the last start, or any free one",
    ),
]
PolicyOption = Annotated[
    str,
    CommandOption(
        envvar="PILOTAGE_POLICY",
        metavar="FILE",
        help="Apply this policy at the start; also if the stored one is not valid any more",
    ),
]
SandboxesOption = Annotated[
    Path | None,
    CommandOption(
        envvar="PILOTAGE_SANDBOXES", metavar="DIR", help="Sandbox folder, if several servers share one"
    ),
]
ConnectionsOption = Annotated[
    int,
    CommandOption(
        envvar="PILOTAGE_CONNECTIONS", metavar="N", min=64, help="Maximum number of open connections"
    ),
]
ConnectionsPerAddressOption = Annotated[
    int,
    CommandOption(
        envvar="PILOTAGE_CONNECTIONS_PER_ADDRESS",
        metavar="N",
        min=1,
        help="Maximum number of open connections per client address without a valid token",
    ),
]
ProxiesOption = Annotated[
    str,
    CommandOption(
        envvar="PILOTAGE_PROXIES",
        metavar="ADDRESSES",
        help="Addresses or networks of reverse proxies, with commas: X-Forwarded-For of these counts, of others never",
    ),
]
LeastFreeOption = Annotated[
    int,
    CommandOption(
        envvar="PILOTAGE_LEAST_FREE",
        metavar="MB",
        min=0,
        help="Refuse new work while a disk has less free space than this, or than 5 % of its size",
    ),
]
CollectorOption = Annotated[
    str,
    CommandOption(
        "--otlp",
        envvar="PILOTAGE_OTLP",
        metavar="URL",
        help="Send spans of submissions and their jobs to this collector of OpenTelemetry",
    ),
]
RecordOption = Annotated[
    Path | None,
    CommandOption(
        envvar="PILOTAGE_RECORD",
        metavar="FILE",
        help="Record all messages in a new file, for `twin replay`; the server is slower meanwhile",
    ),
]
RecordLimitOption = Annotated[
    int,
    CommandOption(
        envvar="PILOTAGE_RECORD_LIMIT",
        metavar="MB",
        min=1,
        help="Size of the record at which the recording ends; the server goes on",
    ),
]
