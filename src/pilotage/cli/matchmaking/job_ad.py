"""`pilotage job ad`: the requester's ad of a job."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected


@connected
def job_ad(
    session: Session,
    target: Annotated[str, CommandArgument("A job, or a job file (- for standard input)", "JOB|FILE")],
    group: Annotated[str, CommandOption("Group of a job file", "NAME")] = "",
) -> None:
    """Print the requester's ad: Requirements, and the identity with which pilots are submitted for the job."""
    from pilotage.cli.matchmaking.queries import query_for
    from pilotage.core.classads import indented, parse_ad

    query = query_for(target, group=group, limit=1)
    with session.client() as client:
        answer = client.job_ad(query.job) if query.job is not None else client.match_ces(query)
    session.screen.json({"owner": answer.owner, "group": answer.group, "ad": answer.ad})
    for line in indented(parse_ad(answer.ad)).splitlines():
        session.screen.line(line)
