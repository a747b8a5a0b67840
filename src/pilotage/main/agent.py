"""`pilotage agent`: a process that splits elements of the work queue into jobs."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from pilotage import __version__
from pilotage.cli.parser import CommandOption
from pilotage.core.errors import InvalidInput
from pilotage.core.trace_context import VARIABLE

if TYPE_CHECKING:
    from pilotage.agent.calls import AgentCalls
    from pilotage.agent.stop_flag import StopFlag

FIRST_PATIENCE = 60.0
"""Seconds that a starting agent waits for its server."""


def agent(
    team: Annotated[str, CommandOption("Team whose requests it splits", "TEAM")],
    name: Annotated[str, CommandOption("Name, unique in the pool; default TEAM@HOST", "NAME")] = "",
    home: Annotated[
        Path | None, CommandOption("Home folder of the server", "DIR", envvar="PILOTAGE_HOME")
    ] = None,
    server: Annotated[
        str, CommandOption("Address of the server", "URL[,URL...]", envvar="PILOTAGE_SERVER")
    ] = "",
    token_file: Annotated[
        Path | None, CommandOption("Token file; default HOME/token", "FILE", envvar="PILOTAGE_TOKEN_FILE")
    ] = None,
    embedded: Annotated[bool, CommandOption("", hidden=True)] = False,
    verbose: Annotated[bool, CommandOption("Log more", names="--verbose -v")] = False,
) -> int:
    """Split requests of a team into jobs until it is stopped. Needs a token with the group property AGENT.

    Any number of agents may share a team; each may be started and stopped at any time. Ctrl-C or SIGTERM gives
    its unsplit elements back and ends it. PILOTAGE_TOKEN may hold the token instead of a file.
    """
    from pilotage.agent.log import log_json
    from pilotage.agent.loop import AgentLoop
    from pilotage.agent.stop_flag import StopFlag
    from pilotage.wire.agents import JoinRequest

    host = socket.gethostname()
    who = JoinRequest(
        name=_checked(name or f"{team}@{host}", "--name"),
        team=_checked(team, "--team"),
        nonce=uuid.uuid4().hex,
        version=__version__,
        host=host[:255],
    )
    log_json(sys.stderr, verbose=verbose)
    os.environ.pop(VARIABLE, None)  # an agent outlives the trace in which it is started
    with _connect(home, server, token_file, os.environ.get("PILOTAGE_TOKEN", "")) as calls:
        stop, rng = StopFlag(), random.Random()  # noqa: S311
        loop = AgentLoop(calls, who, stop, monotonic=time.monotonic, rng=rng, first_patience=FIRST_PATIENCE)
        _stop_on_signals(stop)
        if embedded:
            threading.Thread(target=_stop_with_parent, args=(stop,), daemon=True).start()
        print(
            f"Agent {who.name} splits requests of team {who.team} for {calls.url}. Ctrl-C ends it.",
            flush=True,
        )
        loop.run()
    return 0


def _connect(home: Path | None, server: str, token_file: Path | None, token: str) -> AgentCalls:
    """A client that repeats nothing by itself: the loop of the agent does, and hears signals meanwhile."""
    from pilotage.agent.calls import AgentCalls
    from pilotage.client.credentials import default_home, read_server_facts, server_facts_of

    if not token or token_file is not None:
        return AgentCalls.connect(home=home, server=server or None, token_file=token_file, patience=0.0)
    folder = home or default_home()
    place = server_facts_of(server, folder) if server else read_server_facts(folder)
    return AgentCalls(place.url, token.strip(), patience=0.0, trust=place.trust)


def _checked(text: str, option: str) -> str:
    if not text.strip() or len(text) > 255 or not text.isprintable():
        raise InvalidInput(f"{option}: a name has 1 to 255 printable characters", field=option)
    return text


def _stop_on_signals(stop: StopFlag) -> None:
    """The first signal ends the agent in order, the second at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def _stop_with_parent(stop: StopFlag) -> None:
    """End when the parent closes the other end of standard input, or dies."""
    while os.read(0, 1024):
        pass
    stop.set()
