"""`pilotage twin replay`: the decisions of a recorded server, made once more."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.twin.replay import Replayed

DIFFERENT = 1


def replay(
    file: Annotated[Path, CommandArgument("A record of `pilotage up --record FILE`", "FILE")],
    database_url: Annotated[
        str, CommandOption("An empty database, for the record of a server on PostgreSQL", "URL")
    ] = "",
) -> int:
    """Make the decisions of a recorded server once more, and compare. Exits with 1 if one of them differs."""
    from pilotage.cli.console import CommandOutput
    from pilotage.twin.replay import replay as run_replay

    # Warnings of the replayed server were told when it was recorded.
    logging.getLogger("pilotage").addHandler(logging.NullHandler())
    screen, begun = CommandOutput(), time.monotonic()
    result = run_replay(file, database_url)
    took = time.monotonic() - begun
    if result.difference:
        screen.line(f"different {result.difference}")
        screen.line(f"the same before: {_span(result)}")
        return DIFFERENT
    end = "" if result.ended else "; the record ends before its server"
    screen.line(f"the same decisions: {_span(result)}, replayed in {took:.1f} s{end}")
    return 0


def _span(result: Replayed) -> str:
    seconds = result.until - result.begin
    return f"{plural(result.answers, 'answer')} to {plural(result.messages, 'message')} in {seconds:,.1f} s"
