"""Accepts submissions: checks them, and stores them for the creation of their jobs.

A submission in one request is accepted as a whole or not at all. Its chunks are stored one by one, and the last chunk
makes it accepted. Then services/submission/job_creation.py creates its jobs; few jobs are created in the same
transaction. Submissions with rows in several requests are in services/submission/chunked.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from pilotage.core.errors import Conflict, InvalidInput, Overloaded, check_mistakes
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.json_format import description_to_json
from pilotage.core.jobs.per_job_inputs import decode_file, per_job_columns
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity, cpu_bucket, size_bucket, wall_bucket
from pilotage.core.slice_pace import SlicePace
from pilotage.core.trace_context import untraced
from pilotage.services.pool.state import Pool
from pilotage.services.submission.gates import check_parents, insert_whole_gate, lock_parents
from pilotage.services.submission.job_creation import ChunkRows, create_immediately, cut, files_named
from pilotage.services.submission.mails import insert_mails
from pilotage.services.submission.quota import check_room, jobs_of
from pilotage.services.submission.used_uploads import use_files, use_inputs
from pilotage.store.tables import chunks as chunk_rows
from pilotage.store.tables import submissions as rows
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input
from pilotage.wire.submissions import SubmitResponse, UploadedInput


@dataclass(frozen=True, slots=True)
class PreparedSubmission:
    """A submission that was parsed and checked, but not stored yet."""

    owner: str
    group: str
    key: str
    description: JobDescription
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    inputs: tuple[Input, ...]
    identity: QueueIdentity
    warnings: tuple[str, ...]
    expected: int | None = None
    """For rows that follow in chunks: their maximum number, if the client announced it."""

    @property
    def count(self) -> int:
        return len(self.rows) if self.names else 1


def identity_of(description: JobDescription, owner: str, group: str, policy: Policy) -> QueueIdentity:
    """The task queue that a job waits in (docs/reference/rules.md, section 1)."""
    return QueueIdentity(
        owner=owner,
        group=group,
        setup=description.setup,
        cpu_time=cpu_bucket(description.cpu_time, policy.matching.cpu_buckets),
        memory=size_bucket(description.memory, policy.matching.memory_buckets),
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
        wall_time=wall_bucket(description.wall_time),
        output_se=description.output_se,
        host_requirements=description.host_requirements,
        disk=size_bucket(description.disk, policy.matching.disk_buckets),
        folders=description.needed_folders,
    )


def check_places(description: JobDescription, policy: Policy) -> None:
    """Refuse sites and CEs that are not in the policy, because such a job would wait forever. Reports all at once.

    An unknown banned site does no harm; submission only warns of it.
    """
    check_mistakes(
        InvalidInput(
            f"{field}: {name} is not in the policy",
            hint=f"known: {', '.join(sorted(known)) or 'none'}",
            field=field,
        )
        for field, given, known in (
            ("Site", description.sites, set(policy.sites)),
            ("GridCE", description.grid_ces, set(policy.ces)),
        )
        for name in given
        if name not in known
    )


def resolve_inputs(
    description: JobDescription,
    names: Sequence[str],
    uploaded: Sequence[UploadedInput],
    size_of: Callable[[str], int | None],
    policy: Policy,
) -> tuple[Input, ...]:
    """The uploaded inputs. `size_of(digest)` returns the bytes of a file that this owner uploaded, or None."""
    inputs = []
    total = 0
    for item in uploaded:
        _check_name(item.name)
        size = size_of(item.digest)
        if size is None:
            raise InvalidInput(
                f"input {item.name} was not uploaded", hint=f"upload it first: PUT /v1/uploads/{item.digest}"
            )
        total += size
        inputs.append(Input(item.name, "copy", item.digest, size, item.executable))
    for name, count in Counter(item.name for item in inputs).items():
        if count > 1:
            raise InvalidInput(f"two input files have the name {name}", field="InputSandbox")
    most = policy.jobs.max_input_sandbox
    if total > most:
        raise InvalidInput(
            f"the input sandbox has {total:,} bytes; the limit is {most:,} (jobs.max_input_sandbox)",
            field="InputSandbox",
        )
    per_job = per_job_columns(description, names)
    sent = [item for place, item in enumerate(description.input_sandbox) if place not in per_job]
    if any(item.mode == "copy" for item in sent) and not uploaded:
        raise InvalidInput(
            "the files of the input sandbox were not uploaded",
            hint="submit with the client, which uploads them",
        )
    return tuple(inputs)


def check_per_job_files(
    description: JobDescription,
    names: Sequence[str],
    parameters: Sequence[Sequence[Any]],
    common: int,
    sizes_of: Callable[[Sequence[str]], Mapping[str, int]],
    policy: Policy,
) -> None:
    """Refuse rows with input files that this owner has not uploaded, or with too many bytes for one job.

    `common` is the size of the files that all jobs share. `sizes_of(digests)` returns digest → bytes of uploaded files.
    """
    places = tuple(per_job_columns(description, names).values())
    if not places:
        return
    sizes = sizes_of(files_named(parameters, places))
    most = policy.jobs.max_input_sandbox
    for number, row in enumerate(parameters, 1):
        files = [decode_file(row[place]) for place in places]
        for file in files:
            if sizes.get(file.digest) != file.size:
                raise InvalidInput(
                    f"row {number}: the input file {file.digest} was not uploaded",
                    hint=f"upload it first: PUT /v1/uploads/{file.digest}",
                )
        total = common + sum(file.size for file in files)
        if total > most:
            raise InvalidInput(
                f"row {number}: the input sandbox has {total:,} bytes; the limit is {most:,} (jobs.max_input_sandbox)",
                field="InputSandbox",
            )


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise InvalidInput(
            f"{name!r} is not a relative path inside of the job's folder", field="InputSandbox"
        )


@dataclass(slots=True)
class ChunkedInsert:
    """Stores a submission, one chunk per transaction. The last chunk makes it accepted."""

    prepared: PreparedSubmission
    chunks: tuple[ChunkRows, ...]
    pace: SlicePace | None = None
    """Jobs of a submission that it allows in one slice are created at once; None: all are created later."""
    submission: rows.SubmissionRow | None = None
    """The row of the submission, as stored so far."""
    has_jobs: bool = False
    """Whether all jobs are created."""
    _place: int = 0

    @classmethod
    def of(cls, prepared: PreparedSubmission, pace: SlicePace | None = None) -> ChunkedInsert:
        places = tuple(per_job_columns(prepared.description, prepared.names).values())
        return cls(prepared, tuple(cut(prepared.rows, prepared.count, places)), pace)

    def step(self, pool: Pool, tx: Transaction, now: float) -> rows.SubmissionRow | None:
        """Store the next chunk. Returns the submission after the last chunk, or if the owner used the key before."""
        before = self.submission, self.has_jobs, self._place

        def undo() -> None:
            self.submission, self.has_jobs, self._place = before

        tx.on_rollback(undo)
        part, earlier = self.chunks[self._place], self.submission
        last = self._place + 1 == len(self.chunks)
        state = rows.CLOSED if last else rows.STAGED
        if earlier is None:
            tx.lock(jobs_of(self.prepared.owner))
            known = self._known(tx)
            if known is not None:
                return known
            submission = begin(pool, tx, self.prepared, state, now, part.count)
        else:
            submission = replace(earlier, count=earlier.count + part.count, state=state, touched=now)
            save_progress(tx, earlier, submission)
        self._insert_chunk(pool, tx, submission, part)
        self.submission, self._place = submission, self._place + 1
        return submission if last else None

    def _insert_chunk(self, pool: Pool, tx: Transaction, row: rows.SubmissionRow, part: ChunkRows) -> None:
        first = JobId(row.first_job + row.count - part.count)
        chunk = ChunkRow(row.id, self._place, part.digest, first, part.count, 0, row.touched)
        pace = self.pace
        if pace is not None and len(self.chunks) == 1 and part.count <= pace.size:
            pace.measured(part.count, lambda: create_immediately(pool, tx, chunk, part))
            chunk, self.has_jobs = replace(chunk, made=chunk.count), True
        chunk_rows.insert(tx.connection, chunk, part.text)
        use_files(tx, row.owner, chunk, part.files)

    def _known(self, tx: Transaction) -> rows.SubmissionRow | None:
        prepared = self.prepared
        known = rows.by_key(tx.connection, prepared.owner, prepared.key) if prepared.key else None
        if known is None:
            return None
        check_not_staged(known)
        of_chunks = [(part.count, part.digest) for part in self.chunks]
        listed = chunk_rows.page(tx.connection, known.id, 0, len(of_chunks) + 1)
        stored = [(chunk.count, chunk.digest) for chunk in listed]
        if known.count != prepared.count or (all(digest for _, digest in stored) and stored != of_chunks):
            raise key_conflict(known, prepared)
        check_same(known, prepared)
        if known.state == rows.OPEN:
            raise Conflict(
                f"the submission {known.id} with the key {prepared.key} is still open for rows in chunks",
                hint="continue it with chunks, or submit with another key",
            )
        return known


def check_acceptable(pool: Pool, tx: Transaction, prepared: PreparedSubmission, now: float) -> None:
    """Raise the errors of `begin` without writing anything; for a dry run."""
    known = rows.by_key(tx.connection, prepared.owner, prepared.key) if prepared.key else None
    if known is None:
        check_room(
            pool.policy, tx, prepared.owner, prepared.count, blocked=prepared.description.begins_blocked
        )
        check_parents(tx, prepared.description, prepared.owner, prepared.expected or prepared.count)
        return
    check_not_staged(known)
    check_same(known, prepared)


def accept(pool: Pool, tx: Transaction, prepared: PreparedSubmission, now: float) -> rows.SubmissionRow:
    """Store a small submission in one transaction. The same owner and key again return the first submission."""
    insert = ChunkedInsert.of(prepared)
    while (submission := insert.step(pool, tx, now)) is None:
        pass
    return submission


def begin(
    pool: Pool, tx: Transaction, prepared: PreparedSubmission, state: str, now: float, count: int = 0
) -> rows.SubmissionRow:
    """Store a submission whose first `count` rows follow. Reserve the ids of its jobs if their number is known."""
    if state != rows.OPEN:
        check_room(
            pool.policy, tx, prepared.owner, prepared.count, blocked=prepared.description.begins_blocked
        )
    expected = prepared.expected if state == rows.OPEN else prepared.count
    use_inputs(tx, prepared.owner, prepared.inputs, now)
    lock_parents(tx, prepared.description)
    queue = rows.get_or_insert_queue(tx.connection, prepared.identity, now)
    pool.ids.rewind_on_rollback(tx)
    first = JobId(pool.ids.jobs.run(expected or 0))
    submission = rows.SubmissionRow(
        id=SubmissionId(pool.ids.submissions.next()),
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
        count=count,
        warnings=prepared.warnings,
        state=state,
        touched=now,
        expected=expected,
    )
    rows.insert(tx.connection, submission)
    insert_mails(tx, pool.policy, submission, prepared.description)
    insert_whole_gate(pool, tx, submission, prepared.description)
    return submission


def save_progress(tx: Transaction, before: rows.SubmissionRow, after: rows.SubmissionRow) -> None:
    """Store the columns that a chunk has changed.

    Raises `Overloaded` if another server has given the submission up meanwhile.
    """
    if not rows.save_progress(tx.connection, before, after):
        raise Overloaded(
            "another server has deleted the beginning of this submission, since no rows had come for a while",
            hint="submit it again",
            retry_after=0.2,
        )


def delete_staged(tx: Transaction, submission: SubmissionId, untouched_since: float = inf) -> bool:
    """Delete the last chunk of a submission that was not accepted. Returns whether nothing is left to delete.

    A submission that a request has changed since `untouched_since`, or has accepted, stays. The row counts the chunks
    that are left. So a request that goes on with the deleted ones is refused.
    """
    for row in rows.lock(tx.connection, [submission]):
        if row.state != rows.STAGED or row.touched >= untouched_since:
            continue
        chunk = chunk_rows.delete_last(tx.connection, submission)
        if chunk is not None:
            save_progress(tx, row, replace(row, count=row.count - chunk.count))
            return False
        rows.delete_staged(tx.connection, submission)
    return True


def _description_text(prepared: PreparedSubmission) -> str:
    return json.dumps(description_to_json(prepared.description), sort_keys=True)


def _inputs_text(prepared: PreparedSubmission) -> str:
    return json.dumps([asdict(item) for item in prepared.inputs])


def check_not_staged(known: rows.SubmissionRow) -> None:
    if known.state == rows.STAGED:
        raise Overloaded(
            f"another submission with the key {known.key} is being accepted now", retry_after=0.2
        )


def check_same(known: rows.SubmissionRow, prepared: PreparedSubmission) -> None:
    """Raises `Conflict` if the key belongs to another description."""
    description = _description_text(prepared)
    same = (known.inputs, known.names) == (_inputs_text(prepared), prepared.names)
    if not same or (
        known.description != description
        and untraced(json.loads(known.description)) != untraced(json.loads(description))
    ):
        raise key_conflict(known, prepared)


def key_conflict(known: rows.SubmissionRow, prepared: PreparedSubmission) -> Conflict:
    return Conflict(
        f"the key {prepared.key} belongs to another submission ({known.id})",
        hint="a key identifies one submission: use another key, or none",
    )


def response(submission: rows.SubmissionRow, last: int | None = None) -> SubmitResponse:
    """The answer to the client. `last` is the highest job id, if the ids are not consecutive."""
    first = submission.first_job
    return SubmitResponse(
        submission.id,
        first,
        first + submission.count - 1 if last is None else last,
        submission.count,
        submission.queue,
        list(submission.warnings),
    )
