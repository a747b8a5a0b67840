"""Checks of jobs: their states, their attempts, their pilots and their task queues."""

from __future__ import annotations

from typing import Final

from pilotage.core.jobs.states import CONFIRMED, FINAL, RUNS, JobState
from pilotage.store.engine.connection import Connection, json_numbers
from pilotage.store.integrity.check import Check, quoted

_WITH_PILOT: Final = quoted(CONFIRMED | {JobState.MATCHED})
_HELD: Final = quoted(CONFIRMED)
_RUNS: Final = quoted(RUNS)
_FINAL: Final = quoted(FINAL)
_UNFINISHED: Final = f"state NOT IN ({_FINAL})"
_EVENTS_BEGIN: Final = "(SELECT coalesce(min(id), 0) FROM events)"


def about_job(connection: Connection) -> str:
    """The condition that the event `e` is about the job `j`."""
    if connection.dialect == "sqlite":
        ranged, first, count = "json_type(e.jobs, '$[0]') = 'integer'", "e.jobs ->> 0", "e.jobs ->> 1"
        listed = "SELECT 1 FROM json_each(e.jobs) AS x WHERE x.type = 'array' AND x.value ->> 0 = j.id"
    else:
        ranged = "jsonb_typeof(e.jobs::jsonb -> 0) = 'number'"
        first, count = "(e.jobs::jsonb ->> 0)::bigint", "(e.jobs::jsonb ->> 1)::bigint"
        listed = (
            "SELECT 1 FROM jsonb_array_elements(e.jobs::jsonb) AS x WHERE jsonb_typeof(x) = 'array'"
            " AND (x ->> 0)::bigint = j.id"
        )
    return f"CASE WHEN {ranged} THEN j.id >= {first} AND j.id < {first} + {count} ELSE EXISTS ({listed}) END"


def _of_another_event(connection: Connection) -> str:
    return (
        "SELECT j.id FROM jobs j JOIN events e ON e.id = j.last_event"
        f" WHERE j.{_UNFINISHED} AND (e.new <> j.state OR NOT ({about_job(connection)}))"
    )


def _unlisted(connection: Connection) -> str:
    return (
        "SELECT j.id FROM jobs j JOIN pilots p ON p.id = j.pilot_id WHERE p.ended IS NULL"
        f" AND j.state IN ({_WITH_PILOT}) AND j.id NOT IN ({json_numbers(connection, 'p.jobs')})"
    )


CHECKS: Final = (
    Check(
        "jobs-without-submission",
        "jobs without a submission that promises their id",
        "Nobody knows their description.",
        "SELECT j.id FROM jobs j LEFT JOIN submissions s ON s.id = j.submission_id"
        # Chunks accepted by several servers may have ids below the ids of the first chunk.
        " AND ((j.id >= s.first_job AND j.id < s.first_job + coalesce(s.expected, s.count))"
        " OR EXISTS (SELECT 1 FROM submission_chunks c WHERE c.submission_id = s.id"
        " AND c.first_job <= j.id AND j.id < c.first_job + c.count)) WHERE s.id IS NULL",
        by_hand="Rows are lost: restore a backup.",
    ),
    Check(
        "jobs-also-in-history",
        "jobs that are in the history and not",
        "Lists and counts have them twice.",
        "SELECT j.id FROM jobs j JOIN history h ON h.id = j.id",
    ),
    Check(
        "jobs-without-queue",
        "unfinished jobs whose task queue is gone",
        "No server counts them, so no pilot gets them.",
        f"SELECT id FROM jobs WHERE {_UNFINISHED} AND queue_id NOT IN (SELECT id FROM queues)",
    ),
    Check(
        "jobs-without-last-event",
        "unfinished jobs whose last event is gone",
        "Their history cannot be read to its end.",
        # Retention has deleted the events before the first existing one.
        f"SELECT id FROM jobs WHERE {_UNFINISHED} AND last_event NOT IN (SELECT id FROM events)"
        f" AND (last_event = 0 OR last_event > {_EVENTS_BEGIN})",
    ),
    Check(
        "jobs-of-another-event",
        "unfinished jobs whose last event is about other jobs or leads to another state",
        "Their history and their state contradict each other.",
        _of_another_event,
    ),
    Check(
        "held-by-nobody",
        "jobs that are offered or held, but by no pilot",
        "No lease ends for them, so they stay there.",
        f"SELECT id FROM jobs WHERE state IN ({_WITH_PILOT}) AND pilot_id IS NULL",
    ),
    Check(
        "free-with-pilot",
        "jobs that have a pilot in a state without one",
        "They are shown at a pilot that does not have them.",
        f"SELECT id FROM jobs WHERE state NOT IN ({_WITH_PILOT}) AND pilot_id IS NOT NULL",
    ),
    Check(
        "held-by-ended-pilot",
        "jobs held by pilots that have ended or are not known",
        "Nobody runs them, and no lease ends for them.",
        f"SELECT j.id FROM jobs j LEFT JOIN pilots p ON p.id = j.pilot_id WHERE j.state IN ({_WITH_PILOT})"
        " AND j.pilot_id IS NOT NULL AND (p.id IS NULL OR p.ended IS NOT NULL)",
    ),
    Check(
        "held-but-not-listed",
        "jobs that the list of their pilot lacks",
        "They stay with the pilot when its lease ends.",
        _unlisted,
    ),
    Check(
        "held-without-attempt",
        "held jobs without an open attempt of this epoch",
        "Their end cannot be recorded, and accounting lacks them.",
        f"SELECT id FROM jobs WHERE state IN ({_HELD}) AND NOT EXISTS (SELECT 1 FROM attempts a"
        " WHERE a.job_id = jobs.id AND a.epoch = jobs.epoch AND a.outcome IS NULL"
        " AND a.ahead = CASE WHEN jobs.state = 'Taken' THEN 1 ELSE 0 END)",
    ),
    Check(
        "attempts-of-nobody",
        "jobs with an attempt that is open, though nobody holds them in its epoch",
        "Accounting charges these attempts without end.",
        "SELECT a.job_id FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id AND j.epoch = a.epoch"
        f" AND j.state IN ({_RUNS}) WHERE a.ended IS NULL AND j.id IS NULL",
    ),
    Check(
        "two-results",
        "jobs of which two results were applied",
        "The job counts twice in the accounting, and its outputs may be those of either attempt.",
        # After one that failed, a person may have the job begin again.
        "SELECT a.job_id FROM attempts a JOIN attempts b ON b.job_id = a.job_id AND b.epoch > a.epoch"
        " AND b.outcome = 'applied' WHERE a.outcome = 'applied' AND coalesce(a.failure, '') = ''",
        by_hand="Both attempts ran: compare their results (`pilotage status JOB`).",
    ),
    Check(
        "epochs-behind",
        "jobs with attempts of an epoch that they have not reached",
        "Their next attempt gets an epoch that exists, and fails.",
        "SELECT a.job_id FROM attempts a JOIN jobs j ON j.id = a.job_id WHERE a.epoch > j.epoch",
    ),
    Check(
        "rescheduled-for-ever",
        "rescheduled jobs that never go back to their queue, or others that would",
        "A rescheduled job without a time waits for ever.",
        "SELECT id FROM jobs WHERE (state = 'Rescheduled') <> (not_before IS NOT NULL)",
    ),
    Check(
        "owner-or-final-state",
        "jobs whose owner or final state is not that of their submission or state",
        "Lists and conditions on their submission leave them out, or have them too much.",
        "SELECT j.id FROM jobs j JOIN submissions s ON s.id = j.submission_id WHERE j.owner <> s.owner"
        f" OR j.final_state <> CASE WHEN j.{_UNFINISHED} THEN '' ELSE j.state END",
    ),
    Check(
        "ended-or-not",
        "jobs that have ended without a time of it, or have a time and go on",
        "The former never go to the history.",
        f"SELECT id FROM jobs WHERE (state IN ({_FINAL})) <> (ended IS NOT NULL)",
    ),
    Check(
        "blocked-by-nothing",
        "blocked jobs without a condition and without a limit of their submission",
        "Nothing will ever let them wait for a pilot.",
        "SELECT j.id FROM jobs j WHERE j.state = 'Blocked' AND NOT EXISTS (SELECT 1 FROM gates g"
        " WHERE g.submission_id = j.submission_id AND g.job_id IN (0, j.id)) AND NOT EXISTS"
        " (SELECT 1 FROM parallel_limits l WHERE l.submission_id = j.submission_id)",
    ),
)
