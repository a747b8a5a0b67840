"""`pilotage down`: stop the server."""

from __future__ import annotations

import dataclasses
import socket
import time
from typing import Annotated
from urllib.parse import urlsplit

from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import parse_duration
from pilotage.client.credentials import KnownServer, read_server_facts, server_facts_of
from pilotage.client.server_process import is_this_machine, process_state
from pilotage.core.errors import InvalidInput, Overloaded, Unreachable


@connected
def down(
    session: Session,
    drain: Annotated[bool, CommandOption("Let running jobs end first; start no new ones")] = False,
    keep_pilots: Annotated[
        bool, CommandOption("Keep pilots running; they connect to the next server (default)")
    ] = False,
    cancel_pilots: Annotated[bool, CommandOption("Stop pilots; their jobs return to the queue")] = False,
    timeout: Annotated[str, CommandOption("Maximum time to wait; default 30s, with --drain 1h", "TIME")] = "",
) -> None:
    """Stop the server and wait until its process has ended."""
    if drain + keep_pilots + cancel_pilots > 1:
        raise InvalidInput("give only one of --drain, --keep-pilots and --cancel-pilots")
    pilots = "drain" if drain else "cancel" if cancel_pilots else "keep"
    limit = parse_duration(timeout) if timeout else 3600.0 if drain else 30.0
    server = session.server
    place = server_facts_of(server, session.folder) if server else read_server_facts(session.folder)
    try:
        with session.client(patience=2.0) as client:
            client.shutdown(pilots)
            # With several addresses, the one that was asked.
            place = dataclasses.replace(place, url=client.url)
    except Unreachable:
        if not _has_ended(place):
            raise
        if pilots == "cancel":
            raise Unreachable(
                "the server is not running, so its pilots cannot be stopped",
                hint="run `pilotage up --detach` first: the new server takes the pilots over",
            ) from None
        _report(session, "the server was not running", pilots)
        return
    _wait_until_stopped(session, place, limit)
    _report(session, "the server has stopped", pilots)


def _report(session: Session, text: str, pilots: str) -> None:
    session.screen.json({"stopped": True, "pilots": pilots, "message": text})
    session.screen.line(text)


def _wait_until_stopped(session: Session, place: KnownServer, limit: float) -> None:
    until = time.monotonic() + limit
    with session.screen.progress("stopping") as advance:
        advance(0, 0, "")
        while not _has_ended(place):
            if time.monotonic() > until:
                raise Overloaded(
                    f"the server is still running after {limit:.0f} s",
                    hint="it continues to stop; check with `pilotage down`, or wait longer with --timeout",
                )
            time.sleep(0.1)


def _has_ended(place: KnownServer) -> bool:
    """Whether the server's process has ended. On another host: whether it no longer accepts connections."""
    if place.pid is None or not is_this_machine(place.host):
        return not _is_listening(place.url)
    return process_state(place.pid) in ("", "Z")


def _is_listening(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), 2.0):
            return True
    except (OSError, ValueError):
        return False
