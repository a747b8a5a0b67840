"""`pilotage twin replay`: the decisions of a recorded server, made once more."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.core.plurals import plural

DIFFERENT = 1


def replay(
    file: Annotated[Path, CommandArgument(metavar="FILE", help="A record of `pilotage up --record`")],
    json_output: Annotated[bool, CommandOption("--json", help="Print one JSON document")] = False,
) -> int:
    """Replay a recorded server on a store of its own. Exits with 1 at the first decision that differs."""
    from pilotage.twin.replay import replay as run_replay

    begun = time.monotonic()
    result = run_replay(file)
    took = time.monotonic() - begun
    span = f"{plural(result.messages, 'message')} in {result.until - result.begin:,.1f} s"
    if result.difference:
        print(f"different {result.difference}")
        print(f"the same before that: {span}, {plural(result.answers, 'answer')}")
        return DIFFERENT
    end = "" if result.ended else "; the record ends before its server"
    print(f"the same decisions: {span}, {plural(result.answers, 'answer')}, replayed in {took:.1f} s{end}")
    return 0
