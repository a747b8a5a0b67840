"""`pilotage whoami`, `pilotage version`."""

from __future__ import annotations

import time

from pilotage import __version__
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant
from pilotage.core.errors import PilotageError


@connected
def whoami(session: Session) -> None:
    """Show the user, group and rights of your token."""
    with session.client() as client:
        identity = client.whoami()
        url = client.url
    session.screen.json(identity)
    exact = not session.screen.terminal
    session.screen.facts(
        [
            ("user", identity.user),
            ("group", identity.group),
            ("properties", ", ".join(identity.properties)),
            ("token until", format_instant(identity.expires, time.time(), exact=exact)),
            ("server", url),
            ("version", identity.server_version),
        ]
    )


@connected
def version(session: Session) -> None:
    """Print the versions of the client and, if reachable, of the server."""
    server, trouble = "", ""
    try:
        with session.client(patience=1.0) as client:
            server = client.whoami().server_version
    except PilotageError as error:
        trouble = error.message
    session.screen.json({"pilotage": __version__, "server": server or None, "trouble": trouble})
    session.screen.line(f"pilotage {__version__}")
    session.screen.line(f"server {server}" if server else f"server not reached: {trouble}")
