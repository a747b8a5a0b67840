"""`pilotage web`: open the pages of the server in a browser, signed in."""

from __future__ import annotations

import webbrowser
from typing import Annotated

from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected


@connected
def web(
    session: Session,
    no_open: Annotated[bool, CommandOption("Print the address, and open no browser")] = False,
) -> None:
    """Open the web pages of the server, signed in as you.

    The address has a code that works once, for a minute. Where no browser can be opened, the address is printed.
    """
    with session.client() as client:
        code = client.sign_in_code()
        address = client.url + code.address
    session.screen.json({"address": address, "expires": code.expires})
    if session.as_json:
        return
    if no_open or not webbrowser.open(address):
        session.screen.line(address)
        session.screen.note("the address works once, for a minute")
