"""The input (events) and output (actions) of the machine. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Tuple, Union

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Finish, OfferedJob

Key = Tuple[int, int]
"""An assignment: (job, epoch)."""


@dataclass(frozen=True)
class ExchangeAnswered:
    """The server answered the exchange in flight."""

    response: ExchangeResponse


@dataclass(frozen=True)
class ExchangeFailed:
    """The exchange in flight got no conclusive answer: the server may or may not have processed it."""

    why: str = ""
    retry_after: float = 0.0


@dataclass(frozen=True)
class PilotSuperseded:
    """The server no longer accepts this pilot."""

    why: str = ""


@dataclass(frozen=True)
class ProcessesEnded:
    """The processes of a payload have ended. Its cores are free; its outputs may still be uploading."""

    key: Key


@dataclass(frozen=True)
class PayloadEnded:
    """A started payload is over, and `finish` is its complete result.

    `finish.failure` is "killed" if and only if a Kill of the machine ended it.
    """

    finish: Finish


@dataclass(frozen=True)
class FolderDiffers:
    """A payload was not started, since this node has another folder at the path of its folder."""

    key: Key
    folder: str
    reason: str


@dataclass(frozen=True)
class NodeUnfit:
    """No further payload can be started on this node."""

    reason: str


@dataclass(frozen=True)
class DiskMeasured:
    """The disk of the work folder was measured."""

    free: float
    """MB; infinite: not known."""
    written: Mapping[Key, int]
    """MB that running payloads have written, as far as it was measured."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Signal:
    """A signal asks the pilot to leave."""

    name: str


Event = Union[
    ExchangeAnswered,
    ExchangeFailed,
    PilotSuperseded,
    ProcessesEnded,
    PayloadEnded,
    FolderDiffers,
    NodeUnfit,
    DiskMeasured,
    Tick,
    Signal,
]


@dataclass(frozen=True)
class Send:
    """Send a request. Exactly one of ExchangeAnswered, ExchangeFailed and PilotSuperseded follows."""

    request: ExchangeRequest


@dataclass(frozen=True)
class Start:
    """Run a payload. Exactly one PayloadEnded or FolderDiffers follows."""

    offer: OfferedJob


@dataclass(frozen=True)
class Kill:
    """Kill a payload. Its PayloadEnded or FolderDiffers still follows."""

    key: Key
    reason: str
    keep_streams: bool = False
    """Upload its standard output and error."""
    deliver_tail: bool = False
    """Send the end of its standard output and error before its PayloadEnded."""


@dataclass(frozen=True)
class Follow:
    """Stream the standard output and error of exactly these jobs from now on."""

    jobs: Tuple[int, ...]


@dataclass(frozen=True)
class LogMessage:
    """A line for the log."""

    text: str


LEFT = 0
SUPERSEDED = 3
SERVER_UNAVAILABLE = 5
RESULTS_LOST = 6
UNFIT = 7


@dataclass(frozen=True)
class Leave:
    """End the pilot with an exit code. No event or action follows."""

    reason: str
    code: int


Action = Union[Send, Start, Kill, Follow, LogMessage, Leave]
