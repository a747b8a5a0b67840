"""Options, client and output of every command that connects to the server."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast

from pilotage.cli.console import CommandOutput
from pilotage.cli.parser import CommandOption
from pilotage.cli.telemetry import command_span

if TYPE_CHECKING:
    from pilotage.client import Client

P = ParamSpec("P")

PATIENCE = 4.0
"""Seconds that a command waits for a server that starts, is busy, or went away after it had answered."""
LONG_PATIENCE = 600.0
"""The same for commands that wait anyway: they outlive a restart of the server."""

HomeOption = Annotated[
    Path | None,
    CommandOption("Home folder of the server; default ~/.pilotage", "DIR", envvar="PILOTAGE_HOME"),
]
ServerOption = Annotated[str | None, CommandOption("Address of the server", "URL", envvar="PILOTAGE_SERVER")]
TokenFileOption = Annotated[
    Path | None, CommandOption("Token file; default HOME/token", "FILE", envvar="PILOTAGE_TOKEN_FILE")
]
JsonOption = Annotated[bool, CommandOption("Print one JSON document and nothing else", names="--json")]
ReasonOption = Annotated[str, CommandOption("Reason to record", "TEXT", may_be_empty=True)]
YesOption = Annotated[bool, CommandOption("Do not ask for confirmation", names="-y --yes")]
TimeoutOption = Annotated[str, CommandOption("Stop waiting after this time: 90s, 15m, 2h", "TIME")]
LimitOption = Annotated[
    int | None,
    CommandOption(
        "Maximum number of rows; 0 for all. Default: all, but the first ones only on a terminal",
        "N",
        min=0,
        max=1_000_000_000,
    ),
]
"""The option for the number of rows of a list; see `CommandOutput.row_limit`."""

SHARED: tuple[tuple[str, Any, object], ...] = (
    ("home", HomeOption, None),
    ("server", ServerOption, None),
    ("token_file", TokenFileOption, None),
    ("as_json", JsonOption, False),
)


@dataclass
class Session:
    home: Path | None
    server: str | None
    token_file: Path | None
    screen: CommandOutput

    @property
    def as_json(self) -> bool:
        return self.screen.as_json

    @property
    def folder(self) -> Path:
        from pilotage.client.credentials import default_home
        from pilotage.home_place import refuse_copy

        folder = self.home or default_home()
        refuse_copy(folder)
        return folder

    def client(self, *, patience: float = PATIENCE) -> Client:
        """A client for the server that the options name."""
        from pilotage.client.credentials import read_server_facts
        from pilotage.client.server_process import await_start, refuse_suspended

        asked = configured_patience()
        if not self.server:
            await_start(self.folder, asked or PATIENCE)
            refuse_suspended(read_server_facts(self.folder))
        from pilotage.client import Client

        return Client.connect(
            home=self.home,
            server=self.server,
            token_file=self.token_file,
            patience=max(asked, patience),
            connect_patience=asked,
            on_outage=lambda error: self.screen.note(f"{error.message}; retrying ..."),
            on_notice=lambda text: self.screen.note(f"pilotage: warning: {text}"),
        )


def session_of_environment() -> Session:
    """The server and the token that variables name: the commands of other systems have no options for them."""
    server, token = os.environ.get("PILOTAGE_SERVER"), os.environ.get("PILOTAGE_TOKEN_FILE")
    return Session(None, server or None, Path(token) if token else None, CommandOutput(False))


def configured_patience() -> float:
    """Seconds of PILOTAGE_PATIENCE: how long a command waits for an absent server."""
    from pilotage.cli.time_format import parse_duration

    text = os.environ.get("PILOTAGE_PATIENCE", "")
    return parse_duration(text) if text else 0.0


def connected(function: Callable[Concatenate[Session, P], int | None]) -> Callable[..., int | None]:
    """Give a command the options of SHARED; it gets them as a Session, its first argument."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(name, keyword, default=default, annotation=kind) for name, kind, default in SHARED
    ]

    def command(**values: Any) -> int | None:
        home, server, token_file, as_json = (values.pop(name) for name, _, _ in SHARED)
        session = Session(home, server, token_file, CommandOutput(as_json))
        with command_span(function.__name__.strip("_")):
            return cast(Callable[..., int | None], function)(session, **values)

    parameters = [parameter.replace(kind=keyword) for parameter in own] + shared
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = function.__doc__
    command.__name__ = function.__name__
    command.__module__ = function.__module__
    return command
