"""What the pilot's machine hears (events) and what it wants done (actions). Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple, Union

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Finish, OfferedJob

Key = Tuple[int, int]
"""One try at a job: (job, epoch)."""


@dataclass(frozen=True)
class ExchangeAnswered:
    """The server answered the exchange that was sent."""

    response: ExchangeResponse


@dataclass(frozen=True)
class ExchangeFailed:
    """The exchange that was sent got no answer that settles it: it may or may not have been worked through."""

    why: str = ""
    retry_after: float = 0.0


@dataclass(frozen=True)
class PilotSuperseded:
    """The server no longer takes this pilot for its own."""

    why: str = ""


@dataclass(frozen=True)
class ProcessesEnded:
    """The processes of a payload have ended: its cores are free, while its outputs may still be on their way."""

    key: Key


@dataclass(frozen=True)
class PayloadEnded:
    """A payload that was started is over and all there is to say about it is in `finish`.

    `finish.failure` is "killed" if and only if the machine's own Kill ended it.
    """

    finish: Finish


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Signal:
    """Somebody wants the pilot gone."""

    name: str


Event = Union[ExchangeAnswered, ExchangeFailed, PilotSuperseded, ProcessesEnded, PayloadEnded, Tick, Signal]


@dataclass(frozen=True)
class Send:
    """Send this to the server; exactly one of Answered, Unanswered, Superseded follows."""

    request: ExchangeRequest


@dataclass(frozen=True)
class Start:
    """Run this payload; exactly one PayloadEnded follows."""

    offer: OfferedJob


@dataclass(frozen=True)
class Kill:
    """End this payload now; its PayloadEnded still follows."""

    key: Key
    reason: str
    keep_streams: bool = False
    """Send its standard output and error to the server before."""


@dataclass(frozen=True)
class Follow:
    """Send the tails of exactly these jobs from now on."""

    jobs: Tuple[int, ...]


@dataclass(frozen=True)
class LogMessage:
    """Something for the log."""

    text: str


@dataclass(frozen=True)
class Leave:
    """The pilot's life is over. Nothing follows."""

    reason: str
    code: int


Action = Union[Send, Start, Kill, Follow, LogMessage, Leave]
