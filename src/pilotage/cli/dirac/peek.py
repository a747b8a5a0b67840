"""`dirac-wms-job-peek`: the standard output of jobs so far."""

from __future__ import annotations

import sys

from pilotage.cli.dirac.jobs import FAILED, RequiredJobIds
from pilotage.cli.session import session_of_environment
from pilotage.client.selections import parse_ids
from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from pilotage.core.printable import printable


def peek(jobs: RequiredJobIds) -> int:
    """Print the standard output of jobs so far. The exit code is 2 if there is none of a job."""
    errors: list[str] = []
    with session_of_environment().client() as client:
        for job in parse_ids(jobs):
            try:
                for piece in client.logs(job):
                    sys.stdout.buffer.write(piece.data)
            except (InvalidInput, NotFound, Forbidden, Conflict) as error:
                errors.append(f"ERROR {job}: {error.message}")
    sys.stdout.flush()
    for line in errors:
        print(printable(line))
    return FAILED if errors else 0
