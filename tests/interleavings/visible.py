"""The state of the world as people see it: without times, ids of events and what only servers know."""

from __future__ import annotations

from typing import Any, Final

import psycopg

_REQUEST = "(SELECT r.name FROM requests r WHERE r.id = {})"
_DATASET = "(SELECT d.name FROM datasets d WHERE d.id = {})"
_PLACES = "(SELECT l.sites FROM location_sets l WHERE l.id = {})"
_JOBS = (
    "SELECT id, submission_id, state, owner, user_priority, failures, own_failures, attempt, pilot_id"
    " FROM jobs UNION ALL"
    " SELECT id, submission_id, state, owner, user_priority, failures, own_failures, attempt, NULL FROM history"
)
_ELEMENT = f"{_REQUEST.format('e.request_id')}, e.step, e.digest"
FACTS: Final = {
    "jobs": _JOBS,
    "waiting without a queue": "SELECT id FROM jobs WHERE queue_id NOT IN (SELECT id FROM queues)"
    " AND final_state = ''",
    "submissions": "SELECT id, owner, grp, state, count, forgotten, expected FROM submissions"
    " WHERE request_id IS NULL",
    "gates": "SELECT submission_id, job_id, outlook FROM gates",
    "limits of submissions": "SELECT submission_id, running FROM parallel_limits",
    "attempts": "SELECT job_id, attempt, pilot_id, outcome, exit_code FROM attempts",
    "pilots": "SELECT stamp, state, leave, owner FROM pilots",
    "limits": "SELECT s.limit_key, s.running, s.free + coalesce((SELECT sum(b.free) FROM limit_blocks b"
    " WHERE b.limit_key = s.limit_key), 0) FROM limit_states s",
    "requests": "SELECT name, owner, priority, team, state, sites, banned_sites, propagating, paused FROM requests",
    "steps": f"SELECT {_REQUEST.format('s.request_id')}, s.position, s.closed, s.ended FROM request_steps s",
    "elements": f"SELECT {_ELEMENT}, e.state, e.jobs, e.events, e.site, {_PLACES.format('e.location_set')},"
    " (SELECT a.name FROM agents a WHERE a.id = e.agent_id), e.jobs_done, e.jobs_failed, e.jobs_canceled"
    " FROM elements e",
    "jobs of requests": f"SELECT {_ELEMENT}, j.digest, j.state, j.events, {_PLACES.format('j.location_set')},"
    " j.retries FROM element_jobs j JOIN elements e ON e.id = j.element_id",
    "data sets": "SELECT name, open, removed IS NOT NULL, closed_blocks, closed_files, closed_events FROM datasets",
    "blocks": f"SELECT {_DATASET.format('b.dataset_id')}, b.open, b.files, {_PLACES.format('b.location_set')},"
    " (SELECT count(*) FROM files f WHERE f.block_id = b.id),"
    " (SELECT string_agg(r.site, ' ' ORDER BY r.site) FROM replicas r WHERE r.block_id = b.id) FROM blocks b",
    "agents": "SELECT name, team, draining, ended IS NULL FROM agents",
    "CEs": "SELECT ce, state, failures FROM ces",
    "sites": "SELECT site, state, until FROM site_states",
    "bans": "SELECT owner, site, until, ended IS NULL FROM bans",
    "tokens": "SELECT owner, grp, revoked IS NULL FROM tokens",
    "policy": "SELECT text FROM policies ORDER BY version DESC LIMIT 1",
}

Visible = dict[str, list[tuple[Any, ...]]]


def read(session: psycopg.Connection[Any]) -> Visible:
    return {
        what: sorted(session.execute(sql.encode(), prepare=True).fetchall(), key=repr)
        for what, sql in FACTS.items()
    }


def difference(found: Visible, expected: Visible) -> str:
    """What differs, in words for a failed test."""
    lines = []
    for what, rows in found.items():
        theirs = expected[what]
        only, missing = [row for row in rows if row not in theirs], [row for row in theirs if row not in rows]
        if rows != theirs:
            lines.append(f"{what}: {only[:4]} in place of {missing[:4]}")
    return "; ".join(lines)
