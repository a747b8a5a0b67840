"""Submission: a description becomes jobs that wait in a task queue.

Accepted is what one transaction has stored: the description and the rows of its parameters. The jobs are made of
it in short transactions afterwards, by the server itself if need be (after a crash), so that an accepted
submission is always whole and no write holds the others up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pilotage.core.errors import Conflict, InvalidInput, Overloaded
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.stored import description_to_json
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity, cpu_bucket, memory_bucket
from pilotage.services.pool import Pool
from pilotage.store import submissions as rows
from pilotage.store.events import record
from pilotage.store.writer import Transaction
from pilotage.wire.people import SubmitResponse, UploadedInput
from pilotage.wire.pilot import Input

CHUNK = 500
"""Jobs made in one transaction: no write takes over 5 ms."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission that has been read and checked, before anything is stored."""

    owner: str
    group: str
    key: str
    description: JobDescription
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    inputs: tuple[Input, ...]
    identity: QueueIdentity
    warnings: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.rows) if self.names else 1


def identity_of(description: JobDescription, owner: str, group: str, policy: Policy) -> QueueIdentity:
    """The task queue that a job waits in (RULES 1)."""
    return QueueIdentity(
        owner=owner,
        group=group,
        setup=description.setup,
        cpu_time=cpu_bucket(description.cpu_time, policy.matching.cpu_buckets),
        memory=memory_bucket(description.memory, policy.matching.memory_buckets),
        processors=description.processors,
        job_type=description.job_type,
        force_generic=description.force_generic,
        requirements=description.requirements,
        submit_pools=frozenset(description.submit_pools),
        pilot_types=frozenset(description.pilot_types),
        sites=frozenset(description.sites),
        banned_sites=frozenset(description.banned_sites),
        grid_ces=frozenset(description.grid_ces),
        grid_middlewares=frozenset(description.grid_middlewares),
        platforms=frozenset(description.platforms),
        tags=frozenset(description.required_tags),
    )


def check_places(description: JobDescription, policy: Policy) -> None:
    """Refuse sites and CEs that the policy does not have: such a job would wait for ever."""
    for field, given, known in (
        ("Site", description.sites, policy.sites),
        ("BannedSites", description.banned_sites, policy.sites),
        ("GridCE", description.grid_ces, policy.ces),
    ):
        for name in given:
            if name not in known:
                raise InvalidInput(
                    f"{field}: there is no {name} in the policy",
                    hint=f"there are: {', '.join(sorted(known)) or 'none'}",
                    field=field,
                )


def warnings_for(
    description: JobDescription, policy: Policy, capacity: Callable[[str], tuple[int, int]]
) -> list[str]:
    """What is accepted but will not run as things are. `capacity(ce)` is (cores, MB), 0 for not known."""
    said = []
    last = policy.matching.cpu_buckets[-1]
    if description.cpu_time > last:
        said.append(
            f"CPUTime {description.cpu_time:g} s is above the last bucket: it waits in that of {last} s, and may be"
            " given to a pilot with less time left than it needs"
        )
    sites = set(description.sites or policy.sites) - set(description.banned_sites)
    ces = {name: capacity(name) for name, ce in policy.ces.items() if ce.site in sites}
    if not ces:
        said.append("no site that it may run at has a CE: it waits until the policy has one")
        return said
    for asked, place, noun in (
        (description.processors, 0, "processors"),
        (description.memory, 1, "MB of memory"),
    ):
        most = max(both[place] for both in ces.values())
        if all(both[place] for both in ces.values()) and asked > most:
            said.append(
                f"it asks for {asked} {noun}, and no CE of its sites has more than {most}: it will wait"
            )
    return said


def resolve_inputs(
    description: JobDescription,
    uploaded: Sequence[UploadedInput],
    size_of: Callable[[str], int | None],
    policy: Policy,
) -> tuple[Input, ...]:
    """The uploaded part of the input sandbox. `size_of(digest)`: bytes that this owner has uploaded, or None."""
    inputs = []
    total = 0
    for item in uploaded:
        _check_name(item.name)
        size = size_of(item.digest)
        if size is None:
            raise InvalidInput(
                f"input {item.name} was not uploaded", hint=f"PUT /v1/uploads/{item.digest} first"
            )
        total += size
        inputs.append(Input(item.name, "copy", item.digest, size, item.executable))
    names = [item.name for item in inputs]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInput(f"two inputs are called {name}", field="InputSandbox")
    most = policy.jobs.max_input_sandbox
    if total > most:
        raise InvalidInput(f"the input sandbox has {total} bytes, more than {most}", field="InputSandbox")
    wanted = sum(1 for item in description.input_sandbox if item.mode == "copy")
    if wanted and not uploaded:
        raise InvalidInput(
            "the files of the input sandbox were not uploaded", hint="submit them with the client"
        )
    return tuple(inputs)


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise InvalidInput(f"{name!r} is no relative path inside the payload's folder", field="InputSandbox")


def accept(pool: Pool, tx: Transaction, prepared: Prepared, now: float) -> rows.Submission:
    """Store a submission; the same owner and key again gives the first one."""
    if prepared.key:
        known = rows.by_key(tx.connection, prepared.owner, prepared.key)
        if known is not None:
            return _same_or_conflict(known, prepared)
    most = pool.policy.jobs.max_waiting_per_owner
    if rows.waiting_of_owner(tx.connection, prepared.owner) + prepared.count > most:
        raise Overloaded(f"{prepared.owner} would have more than {most} waiting jobs", retry_after=60.0)
    _check_uploads(tx, prepared)
    queue = rows.queue_for(tx.connection, prepared.identity, now)
    last_submission, last_job = pool.last_submission, pool.last_job

    def undo() -> None:
        pool.last_submission, pool.last_job = last_submission, last_job

    tx.on_rollback(undo)
    pool.last_submission += 1
    first = JobId(pool.last_job + 1)
    pool.last_job += prepared.count
    submission = rows.Submission(
        id=SubmissionId(pool.last_submission),
        owner=prepared.owner,
        group=prepared.group,
        key=prepared.key or None,
        submitted=now,
        description=_description_text(prepared),
        inputs=_inputs_text(prepared),
        names=prepared.names,
        job_name=prepared.description.job_name,
        job_group=prepared.description.job_group,
        job_type=prepared.description.job_type,
        queue=queue,
        first_job=first,
        count=prepared.count,
        warnings=prepared.warnings,
    )
    rows.insert(tx.connection, submission, [list(row) for row in prepared.rows])
    return submission


def _check_uploads(tx: Transaction, prepared: Prepared) -> None:
    """They were there when the submission was prepared; old ones that nobody named may have gone since."""
    for item in prepared.inputs:
        if rows.upload_size(tx.connection, prepared.owner, item.source) is None:
            raise InvalidInput(
                f"input {item.name} is no longer there: it was too old", hint="submit again with the file"
            )


def _description_text(prepared: Prepared) -> str:
    return json.dumps(description_to_json(prepared.description), sort_keys=True)


def _inputs_text(prepared: Prepared) -> str:
    return json.dumps([asdict(item) for item in prepared.inputs])


def _same_or_conflict(known: rows.Submission, prepared: Prepared) -> rows.Submission:
    same = (known.description, known.inputs, known.names, known.count) == (
        _description_text(prepared),
        _inputs_text(prepared),
        prepared.names,
        prepared.count,
    )
    if not same:
        raise Conflict(
            f"the key {prepared.key} was used before for another submission ({known.id})",
            hint="a key says that two submissions are the same one: give another, or none",
        )
    return known


@dataclass(slots=True)
class Making:
    """Makes the jobs of one accepted submission, a chunk for each transaction.

    How far it is stands in the store alone: the same submission may be in the making twice, when a client sends it
    again before the first answer.
    """

    submission: SubmissionId
    _rows: list[list[Any]] | None = None

    def step(self, pool: Pool, tx: Transaction) -> bool:
        """Make the next chunk; whether all jobs are made."""
        facts = pool.submission(tx, self.submission)
        row, made = facts.row, rows.jobs_made(tx.connection, facts.row)
        if made < row.count:
            if self._rows is None:
                self._rows = rows.pending_rows(tx.connection, self.submission) or []
            count = min(CHUNK, row.count - made)
            self._insert(pool, tx, row, made, count, facts.description.user_priority)
            made += count
        if made < row.count:
            return False
        rows.all_made(tx.connection, self.submission)
        return True

    def _insert(
        self, pool: Pool, tx: Transaction, row: rows.Submission, made: int, count: int, user_priority: int
    ) -> None:
        parameters: list[str | None] = [None] * count
        if self._rows:
            chunk = self._rows[made : made + count]
            parameters = [json.dumps(values, separators=(",", ":")) for values in chunk]
        first = JobId(row.first_job + made)
        event = record(
            tx.connection,
            pool.events,
            at=row.submitted,
            kind="submitted",
            actor=f"user:{row.owner}",
            detail=f"submission {row.id}",
            jobs=json.dumps([first, count]),
            new="Waiting",
        )
        rows.insert_jobs(tx.connection, row, first, parameters, user_priority, event)
        pool.touch_queue(tx, row.queue)
        pool.index.jobs_added(row.queue, user_priority, first, count)


def response(submission: rows.Submission) -> SubmitResponse:
    first = submission.first_job
    return SubmitResponse(
        submission.id,
        first,
        first + submission.count - 1,
        submission.count,
        submission.queue,
        list(submission.warnings),
    )
