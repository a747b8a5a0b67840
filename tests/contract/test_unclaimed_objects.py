"""Objects that no data set names are told from all others on each store: a wrong one would be removed."""

from __future__ import annotations

from typing import Any

from pilotage.outside.storage.operations import ListedObject
from pilotage.services.jobs.unclaimed import unclaimed_objects
from pilotage.store.tables import history, submissions
from tests.contract.stores import IDENTITY
from tests.contract.test_history import add_pilots, submission

PLACE = "s3://s3.example.org/data/out"
NOW = 1000.0
Attempt = tuple[int, str | None, float | None]
"""Epoch, outcome and end."""
LOST: Attempt = (1, "lease over", 10.0)
CASES: dict[str, tuple[str, int, int, list[Attempt], set[int]]] = {
    # State, epoch, and epoch of the result; attempts; the epochs whose objects nobody claims.
    "applied": ("Done", 1, 1, [(1, "applied", 10.0)], set()),
    "lost, then done": ("Done", 2, 2, [LOST, (2, "applied", 20.0)], {1}),
    "lost, runs again": ("Running", 2, 0, [LOST, (2, None, None)], {1}),
    "lost, may come back": ("Waiting", 1, 0, [LOST], set()),
    "lost just now": ("Running", 2, 0, [(1, "lease over", NOW), (2, None, None)], set()),
    "registration waits": ("Completed", 2, 2, [LOST, (2, "applied", 20.0)], {1}),
    "killed": ("Killed", 1, 1, [(1, "killed", 10.0)], {1}),
    "failed": ("Failed", 1, 1, [(1, "applied", 10.0)], {1}),
    "retried, then done": ("Done", 2, 2, [(1, "retried", 10.0), (2, "applied", 20.0)], {1}),
    "unknown attempt": ("Done", 2, 2, [(2, "applied", 20.0)], set()),
    "taken ahead": ("Waiting", 2, 0, [(1, None, None)], set()),
}


def listed(job: int, epoch: int, *, folder: str = "copy-1/process", name: str = "lines.txt") -> ListedObject:
    return ListedObject(f"{PLACE}/{folder}/7/{job}-{epoch}-1764133812/{name}", 5, 10.0)


def fill(connection: Any) -> dict[str, int]:
    """A request with the job of each case; half of the ended jobs are archived. Returns the jobs by case."""
    connection.begin()
    submissions.insert_queue(connection, IDENTITY, 1.0)
    add_pilots(connection)
    submission(connection, 1, 1, len(CASES) + 1)
    connection.execute("UPDATE submissions SET request_id = 1")
    for number, name in ((1, "/copy-1/process"), (2, "/other")):
        connection.execute(
            "INSERT INTO datasets (id, name, owner, grp, created) VALUES (?, ?, 'o', 'g', 1)", (number, name)
        )
    connection.execute(
        "INSERT INTO request_steps (request_id, position, name, type, start_policy, splitting, output_dataset)"
        " VALUES (1, 0, 'process', 'Processing', 'Block', '{}', 1)"
    )
    jobs = {name: number for number, name in enumerate(CASES, start=1)}
    for name, (state, epoch, finished, attempts, _) in CASES.items():
        ended = 20.0 + jobs[name] if state in ("Done", "Killed", "Failed") else None
        connection.execute(
            "UPDATE jobs SET state = ?, epoch = ?, finished_epoch = ?, ended = ? WHERE id = ?",
            (state, epoch, finished, ended, jobs[name]),
        )
        for number, outcome, end in attempts:
            connection.execute(
                "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome)"
                " VALUES (?, ?, ?, 1, 5, ?, ?)",
                (jobs[name], number, number, end, outcome),
            )
    history.archive(connection, 20.0 + len(CASES) // 2, 1000)
    return jobs


def test_only_objects_of_refused_attempts_are_unclaimed(connection: Any) -> None:
    jobs = fill(connection)
    assert 0 < connection.execute("SELECT count(*) FROM history").fetchone()[0] < len(CASES)
    objects = [listed(job, epoch) for job in jobs.values() for epoch in (1, 2, 3)]
    wanted = {(jobs[name], epoch) for name, case in CASES.items() for epoch in case[4]}
    found = unclaimed_objects(connection, PLACE, objects, NOW)
    assert {(row.job, row.epoch) for row in found} == wanted


def test_an_object_that_is_young_elsewhere_or_named_is_claimed(connection: Any) -> None:
    job = fill(connection)["killed"]
    objects = [
        listed(job, 1, name="left"),
        listed(job, 1, name="named%_"),
        listed(job, 1, folder="copy-2/process"),
        listed(job, 1, folder="sandboxes/copy-1/process"),
        ListedObject(f"{PLACE}/copy-1/process/7/{job}-1-5/young", 5, NOW),
        ListedObject(f"{PLACE}/copy-1/process/{job}-1/flat", 5, 1.0),
        ListedObject(f"{PLACE}/readme", 5, 1.0),
    ]
    # A person has added the file to another data set, by an address of its own.
    named = "7/" + objects[1].url.rpartition("/7/")[2]
    connection.execute("INSERT INTO blocks (id, dataset_id, name, created) VALUES (1, 2, 'b', 1)")
    connection.execute(
        "INSERT INTO files (dataset_id, block_id, name, created) VALUES (2, 1, ?, 1)", (named,)
    )
    connection.execute(
        "INSERT INTO replicas (block_id, site, prefix, known) VALUES (1, '*', ?, 1)",
        (f"{PLACE}/copy-1/process",),
    )
    found = unclaimed_objects(connection, PLACE, objects, NOW)
    assert [row.url for row in found] == [objects[0].url]
