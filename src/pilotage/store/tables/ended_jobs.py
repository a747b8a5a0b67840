"""Jobs that have ended, archived or not, in the order of their end, with the demands of their submissions."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

import msgspec

from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.tables import retention

MAX_DESCRIPTION_BYTES = 8 * 1024 * 1024
"""Descriptions of one page that are read, about."""
SUBMISSIONS_AT_ONCE = 10


class Demand(msgspec.Struct, frozen=True):
    """The part of a job description that decides where a job fits."""

    processors: int = 1
    memory: int = 0
    wall_time: int = 0
    cpu_time: int = 0


class EndedJobRow(NamedTuple):
    """A job that is final."""

    id: int
    submission: int
    state: str
    submitted: float
    ended: float
    run: float | None
    """Seconds of the attempt whose result was applied."""
    processors: int | None
    """Cores of that attempt."""


class EndedJobsRows(NamedTuple):
    """A page of ended jobs, and the facts of their submissions."""

    jobs: list[EndedJobRow]
    submissions: dict[int, tuple[str, str, Demand]]
    """Owner, group and demand by the submission's number. One that was deleted just now is missing."""
    last: EndedJobRow | None
    """Where the next page begins; None: this is the last page."""


_ENDED = (
    "SELECT id, submission_id, state, submitted, ended, finished_epoch FROM {table}"
    " WHERE ended >= ? AND (ended, id) > (?, ?) ORDER BY ended, id LIMIT ?"
)
_PAGE = (
    "SELECT e.id, e.submission_id, e.state, e.submitted, e.ended,"
    " CASE WHEN a.wall > 0 THEN a.wall ELSE a.ended - a.started END, a.processors FROM"
    f" (SELECT * FROM ({_ENDED.format(table='jobs')}) AS hot"
    f" UNION ALL SELECT * FROM ({_ENDED.format(table='history')}) AS archived) AS e"
    " LEFT JOIN attempts a ON a.job_id = e.id AND a.epoch = e.finished_epoch AND a.outcome = 'applied'"
    " ORDER BY e.ended, e.id LIMIT ?"
)
"""One statement: a job that is archived between two of them would be missed or read twice."""


def page(connection: Connection, since: float, after: int, most: int) -> EndedJobsRows:
    """At most `most` jobs whose end and id follow (`since`, `after`)."""
    values = (since, since, after, most)
    ended = [EndedJobRow(*row) for row in connection.execute(_PAGE, (*values, *values, most))]
    read, submissions = _submissions(connection, ended)
    # The next page begins behind the last job, so none before it may be left out.
    jobs = list(takewhile(lambda job: job.submission in read, ended))
    return EndedJobsRows(
        jobs, submissions, jobs[-1] if len(ended) == most or len(jobs) < len(ended) else None
    )


def _submissions(
    connection: Connection, jobs: list[EndedJobRow]
) -> tuple[set[int], dict[int, tuple[str, str, Demand]]]:
    """The submissions of the first jobs, until their descriptions have too many bytes; and which were read."""
    facts, read, size = dict[int, tuple[str, str, Demand]](), set[int](), 0
    wanted = list(dict.fromkeys(job.submission for job in jobs))
    for first in range(0, len(wanted), SUBMISSIONS_AT_ONCE):
        if size > MAX_DESCRIPTION_BYTES:
            break
        some = wanted[first : first + SUBMISSIONS_AT_ONCE]
        read.update(some)
        them, value = in_list(connection, "id", some)
        sql = f"SELECT id, owner, grp, description FROM submissions WHERE {them}"
        for id_, owner, group, description in connection.execute(sql, (value,)):
            size += len(description)
            facts[id_] = (owner, group, msgspec.json.decode(description, type=Demand))
    return read, facts


def whole_since(connection: Connection, kept_since: float) -> float:
    """The end of the oldest jobs of which none was deleted. `kept_since`: by the present policy; 0: all are there."""
    done = retention.progress(connection).get("jobs")
    return kept_since if done is not None and done.total else 0.0
