"""Lists and counts of random selections are those that one finds by looking at all rows."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest

from pilotage.core.jobs.states import CONFIRMED, FINAL, JobState
from pilotage.store.tables import history, listing, submissions
from pilotage.store.tables.selections import JobSelection, Viewer
from tests.contract.stores import IDENTITY, assert_counted, recount
from tests.contract.test_history import OWNERS, add_pilots, end, submission

VIEWERS = (Viewer("", everything=True), Viewer("alice"), Viewer("bob", "physics"), Viewer("nobody"))
UNFINISHED = sorted({*JobState} - {*FINAL})
STATES: tuple[list[str] | None, ...] = (
    *(None, None, [], ["Failed"], ["Running"], ["Matched", "Stalled"], ["Waiting"], ["Rescheduled"]),
    *(["Done", "Waiting"], [str(state) for state in FINAL], [str(state) for state in UNFINISHED]),
)


@pytest.fixture
def jobs(connection: Any) -> Any:
    """150 jobs in all states; a part of them in history."""
    rng = Random(3)
    connection.begin()
    submissions.insert_queue(connection, IDENTITY, 1.0)
    add_pilots(connection)
    lists = defaultdict[int, list[int]](list)
    first = 1
    for number in range(1, 31):
        count = rng.randint(1, 9)
        group = rng.choice(["", "", "g"])
        submission(connection, number, first, count, who=rng.choice(OWNERS), name="", job_group=group)
        for job in range(first, first + count):
            if rng.random() < 0.5:
                end(
                    connection,
                    job,
                    rng.uniform(0, 100),
                    rng.choice(sorted(FINAL)),
                    1,
                    rng.choice([None, 1, 2]),
                )
                continue
            state = rng.choice(UNFINISHED)
            pilot = rng.randint(1, 3) if state in CONFIRMED | {JobState.MATCHED} else None
            connection.execute(
                "UPDATE jobs SET state = ?, pilot_id = ?, not_before = ? WHERE id = ?",
                (state, pilot, 9.0 if state == JobState.RESCHEDULED else None, job),
            )
            if pilot is not None:
                lists[pilot].append(job)
        first += count
    for pilot, held in lists.items():
        connection.execute("UPDATE pilots SET jobs = ? WHERE id = ?", (json.dumps(held), pilot))
    recount(connection)
    history.archive(connection, 50.0, 1000)
    connection.commit()
    return connection


def expected(connection: Any, selection: JobSelection, viewer: Viewer) -> dict[int, str]:
    """The states of the selected jobs by id: every row is looked at."""
    columns = "j.id, j.state, s.owner, s.grp, s.job_group, s.id"
    sql = f"SELECT {columns} FROM {{}} j JOIN submissions s ON s.id = j.submission_id"
    chosen = {}
    for table in ("jobs", "history"):
        for job, state, owner, group, job_group, number in connection.execute(sql.format(table)).fetchall():
            conditions = (
                viewer.everything or owner == viewer.owner or (group == viewer.shared_group and group),
                selection.ids is None or job in selection.ids,
                selection.states is None or state in selection.states,
                selection.owner in (None, owner),
                selection.group in (None, group),
                selection.job_group in (None, job_group),
                selection.submission in (None, number),
            )
            if all(conditions):
                chosen[job] = state
    return dict(sorted(chosen.items()))


def test_random_selections_are_those_of_all_rows(jobs: Any) -> None:
    rng = Random(5)
    sizes = []
    for number in range(320):
        selection = JobSelection(
            ids=rng.choice([None, None, None, rng.sample(range(1, 160), 40)]),
            submission=rng.choice([None, None, rng.randint(1, 30)]),
            states=rng.choice(STATES),
            owner=rng.choice([None, None, "alice", "böb"]),
            group=rng.choice([None, None, "physics"]),
            job_group=rng.choice([None, None, "g"]),
        )
        viewer = VIEWERS[number % len(VIEWERS)]
        wanted = expected(jobs, selection, viewer)
        sizes.append(len(wanted))
        assert listing.counts(jobs, selection, viewer) == Counter(wanted.values()), (selection, viewer)
        assert listing.job_ids(jobs, selection, viewer, 0, 500) == [*wanted], (selection, viewer)
        rows = listing.jobs(jobs, selection, viewer, 0, 500)
        assert [(row.id, row.state) for row in rows] == [*wanted.items()], (selection, viewer)
        newest = [row.id for row in listing.jobs(jobs, selection, viewer, 0, 3, newest=True)]
        assert newest == [*wanted][::-1][:3]
        after = rng.randint(1, 150)
        page = listing.job_ids(jobs, selection, viewer, after, 4)
        assert page == [job for job in wanted if job > after][:4]
    assert sum(size > 5 for size in sizes) > 40
    assert_counted(jobs)


def test_patterns_of_names_are_those_of_the_shell(jobs: Any) -> None:
    """Every character but * and ? stands for itself, and case counts, in each store."""
    seed = Random().randrange(2**32)
    print("seed", seed)
    rng, names = Random(seed), dict[int, str]()

    def text(least: int) -> str:
        return "".join(rng.choices("aAbé1*?[]%_!\\-^\n'", k=rng.randint(least, 4)))

    jobs.begin()
    for table, column in (("jobs", "name"), ("history", "job_name")):
        for (job,) in jobs.execute(f"SELECT id FROM {table}").fetchall():
            names[job] = text(1)
            jobs.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (names[job], job))
    jobs.commit()
    patterns = ["*", "?", "a*", "*%*", "[a]*", "*[*", "*_", "A?", *(text(1) for _ in range(80))]
    found = 0
    for pattern in patterns:
        means = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
        wanted = sorted(job for job, name in names.items() if means.fullmatch(name))
        selection, everybody = JobSelection(name_pattern=pattern), VIEWERS[0]
        assert listing.job_ids(jobs, selection, everybody, 0, 500) == wanted, (pattern, seed)
        assert sum(listing.counts(jobs, selection, everybody).values()) == len(wanted), (pattern, seed)
        found += len(wanted)
    assert found > len(names)
