"""Stopping the server."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.wire.call import ADMINISTRATORS, ApiCall
from pilotage.wire.limits import Name


@dataclass
class Shutdown:
    pilots: Name = "keep"
    """drain: jobs that run end first, no new ones start | keep: pilots go on and find the next server |
    cancel: pilots are ended, their jobs go back to the queue"""


SHUTDOWN = ApiCall("POST", "/v1/shutdown", Shutdown, Shutdown, ADMINISTRATORS, status=202)
