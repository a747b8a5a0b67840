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
    CommandOption("Form of the log: lines of text, or a JSON object a line", envvar="PILOTAGE_LOG_FORMAT"),
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
        "TCP port; 0: the port of the last start, or any free one",
        "PORT",
        envvar="PILOTAGE_PORT",
        min=0,
        max=65535,
    ),
]
PolicyOption = Annotated[
    str,
    CommandOption(
        "Apply this policy at the start; also if the stored one is not valid any more",
        "FILE",
        envvar="PILOTAGE_POLICY",
    ),
]
SandboxesOption = Annotated[
    Path | None,
    CommandOption("Sandbox folder, if several servers share one", "DIR", envvar="PILOTAGE_SANDBOXES"),
]
ConnectionsOption = Annotated[
    int,
    CommandOption("Maximum number of open connections", "N", envvar="PILOTAGE_CONNECTIONS", min=64),
]
ConnectionsPerAddressOption = Annotated[
    int,
    CommandOption(
        "Maximum number of open connections per client address without a valid token",
        "N",
        envvar="PILOTAGE_CONNECTIONS_PER_ADDRESS",
        min=1,
    ),
]
ProxiesOption = Annotated[
    str,
    CommandOption(
        "Addresses or networks of reverse proxies, with commas: X-Forwarded-For of these counts, of others never",
        "ADDRESSES",
        envvar="PILOTAGE_PROXIES",
    ),
]
LeastFreeOption = Annotated[
    int,
    CommandOption(
        "Refuse new work while a disk has less free space than this, or than 5 % of its size",
        "MB",
        envvar="PILOTAGE_LEAST_FREE",
        min=0,
    ),
]
CollectorOption = Annotated[
    str,
    CommandOption(
        "Send spans of submissions and their jobs to this collector of OpenTelemetry",
        "URL",
        envvar="PILOTAGE_OTLP",
    ),
]
RecordOption = Annotated[
    Path | None,
    CommandOption(
        "Record all messages in a new file, for `twin replay`; the server is slower meanwhile",
        "FILE",
        envvar="PILOTAGE_RECORD",
    ),
]
RecordLimitOption = Annotated[
    int,
    CommandOption(
        "Size of the record at which the recording ends; the server goes on",
        "MB",
        envvar="PILOTAGE_RECORD_LIMIT",
        min=1,
    ),
]
