"""The question to a server about a job, or about a job file."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.wire.matchmaking import MatchRequest


def query_for(
    target: str, *, owner: str = "", group: str = "", ce: str = "", limit: int = 200
) -> MatchRequest:
    """`target`: the number of a job, or a job file."""
    query = wire.matchmaking.MatchRequest(owner=owner, group=group, ce=ce, limit=limit)
    if target.isascii() and target.isdigit():
        if owner or group:
            raise InvalidInput("a job has its owner and group", hint="--owner and --group go with a job file")
        query.job = _job(target)
    elif re.fullmatch(r"[-0-9, .]*", target) and not os.path.exists(target):
        raise InvalidInput(f"{target!r} is no job", hint="give the number of one job, or a job file")
    else:
        query.description = _description(target)
    return query


def _job(text: str) -> int:
    from pilotage.client.selections import parse_ids

    try:
        [number] = parse_ids([text])
    except (InvalidInput, ValueError):
        raise InvalidInput(f"{text!r} is no job", hint="give the number of one job, or a job file") from None
    return number


def _description(name: str) -> dict[str, object]:
    """The description of a job file without its files, which do not decide where a job may run."""
    from pilotage.cli.matchmaking.local_ads import read_description
    from pilotage.core.jobs.json_format import description_to_json

    plain = dict(description_to_json(read_description(name)))
    plain.pop("input_sandbox", None)
    return plain
