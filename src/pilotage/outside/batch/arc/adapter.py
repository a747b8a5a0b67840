"""An ARC CE as a batch system: pilots are looked up by the names of their jobs, never by the id alone.

ARC holds no jobs: a job starts as soon as its script is uploaded. A job whose script never comes does not start, so
listings tell it, and the director cancels it. The name of a job is STAMP/INDEX.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus

from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    submissions_of,
)
from pilotage.outside.batch.arc import answers, information
from pilotage.outside.batch.arc.answers import ENDED_STATES
from pilotage.outside.batch.arc.description import INDEX_VARIABLE, LOG, describe_pilots
from pilotage.outside.batch.arc.information import ArcDocument
from pilotage.outside.batch.arc.jobs import ArcJobs
from pilotage.outside.batch.arc.rest import ArcClient, NotSent, RefusedCall
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.pilot_logs import log_name, read_log_tail
from pilotage.outside.batch.properties import read_properties
from pilotage.outside.batch.submission import (
    CLUSTER_MARK,
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

PILOT_OPTIONS: Mapping[str, str] = {
    # Some versions of ARC write the id with the address of the job before it.
    "--batch-id": "${GRID_GLOBAL_JOBID##*/}",
    "--batch-start": "${SLURM_JOB_START_TIME:-0}",
    "--batch-end": "${SLURM_JOB_END_TIME:-0}",
    "--restarts": "${SLURM_RESTART_COUNT:-${RESTARTED:-0}}",
}
"""The `BatchAdapter.pilot_options` of ARC. The batch systems behind it tell the rest."""

MOST_JOBS = 100
"""Pilots in one request: a request that fails leaves as many in doubt."""

MOST_LOG_BYTES = 1_000_000
"""Bytes of a pilot's output that are fetched."""

FULL = ("No more jobs allowed",)
"""Words of the CE when it has reached a limit of its own."""


class ArcBatch:
    """The adapter of one CE: a `BatchAdapter`. It keeps no state: everything is read from the CE."""

    holds = False
    keeps_ended = True
    index_variable = INDEX_VARIABLE
    pilot_options = PILOT_OPTIONS
    place = ""

    def __init__(
        self, client: ArcClient, options: ArcOptions, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._jobs = ArcJobs(client)

    def close(self) -> None:
        self._client.close()

    def submit(self, submission: BatchSubmission) -> Receipt:
        try:
            self._client.require_credential()
        except Unreachable as error:
            raise SubmissionFailed(SubmissionRefusal.REFUSED, str(error)) from None
        ids: list[str] = []
        script = submission.script.encode()
        for first in range(0, submission.count, MOST_JOBS):
            indexes = range(first, min(first + MOST_JOBS, submission.count))
            ids += self._submit_some(submission, indexes, script, is_first=not first)
        return Receipt(ids[0], tuple(ids))

    def _submit_some(
        self, submission: BatchSubmission, indexes: Sequence[int], script: bytes, *, is_first: bool
    ) -> list[str]:
        """The ids of some pilots. `is_first`: the CE has none of the submission yet."""
        created: list[str] = []
        try:
            text = self._client.post("new", describe_pilots(submission, indexes, self._options))
            made = answers.read_answers(text)
            created = [answer.id for answer in made if answer.status == HTTPStatus.CREATED]
            refusals = [answer.reason for answer in made if answer.status != HTTPStatus.CREATED]
            for id_ in created:
                self._jobs.upload(id_, script)
        except (NotSent, RefusedCall) as error:
            nothing = is_first and not created
            raise SubmissionFailed(_refusal_of(error) if nothing else _DOUBT, str(error)) from None
        except Unreachable as error:
            raise SubmissionFailed(_DOUBT, str(error)) from None
        if refusals:
            nothing = is_first and not created
            reason = refusals[0] or "without a reason"
            refused = "the CE refuses the job description" if nothing else "the CE refuses some of the pilots"
            raise SubmissionFailed(SubmissionRefusal.REFUSED if nothing else _DOUBT, f"{refused}: {reason}")
        if len(created) != len(indexes) or not all(map(answers.is_job_id, created)):
            raise SubmissionFailed(
                _DOUBT, f"the CE answered with {len(created)} ids for {len(indexes)} pilots"
            )
        return created

    def release(self, stamps: Sequence[str]) -> None:
        """The submission has released them."""

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        if not stamps:
            return
        tasks = self._jobs.tasks(self._jobs.list(frozenset(stamps)))
        wanted = (NativeState.WAITING,) if waiting_only else (NativeState.WAITING, NativeState.RUNNING)
        self._act(kill=[task.batch_id for task in tasks if task.state in wanted])

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if not batch_ids:
            return
        if epoch != self._epoch:
            raise Unreachable("the CE was started again: its ids may belong to other jobs now")
        wanted = frozenset(batch_ids)
        jobs = [job for job in self._jobs.list() if job.id in wanted]
        ended = [job for job in jobs if job.state in ENDED_STATES]
        for job in ended if self._options.log_folder else ():
            self._fetch_log(job.id, job.stamp, job.index)
        live = [job for job in jobs if answers.judge_state(job.state, "").state is not NativeState.ENDED]
        self._act(kill=[job.id for job in live], clean=[job.id for job in ended])

    def _act(self, **actions: Sequence[str]) -> None:
        """Kill and clean jobs, and complain of failures then. A job that is gone is none to complain of."""
        failed = [
            f"the CE could not {action} job {answer.id}: {answer.reason}"
            for action, ids in actions.items()
            for answer in self._client.act(action, ids)
            if answer.status >= 400 and not answer.is_missing
        ]
        if failed:
            raise Unreachable(failed[0])

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        if stamps is not None and not stamps:
            return BatchListing(self._epoch)
        try:
            wanted = None if stamps is None else frozenset(stamps)
            return BatchListing(self._epoch, tuple(self._jobs.tasks(self._jobs.list(wanted))))
        except Unreachable as error:
            return BatchListing(failure=str(error))

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """List by stamp: all jobs of the identity are one listing."""
        return self.list_pilots(submissions_of(batch_ids))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        """The CE keeps ended jobs until they are removed."""
        return []

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        if stamps is not None and not stamps:
            return {}
        wanted = None if stamps is None else frozenset(stamps)
        properties: dict[tuple[str, int | None], dict[str, str]] = {}
        for job in self._jobs.list(wanted):
            if job.index is not None and (annotation := self._jobs.annotation(job.id)):
                properties[job.stamp, job.index] = read_properties(annotation)
        return properties

    def describe(self) -> list[BatchPartition]:
        return information.read_partitions(self._document())

    def information(self) -> CeInformation:
        """One question, however many nodes there are."""
        document = self._document()
        document.require_current(self._clock())
        return information.describe_ce(document, self._options, self._client.host)

    def _document(self) -> ArcDocument:
        return information.read_document(self._client.get("info?schema=glue2"))

    def accounts(self) -> list[BatchAccount]:
        """The CE maps the identity to an account by itself."""
        return []

    def check(self, shape: Shape) -> str:
        self._client.require_credential()
        try:
            return information.refusal_of(shape, self._document(), self._options)
        except UnreadableOutput as error:
            return str(error)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        """ARC names no hosts, so nothing is known of the hosts of the policy."""
        return []

    def output(self, stamp: str, index: int, most: int) -> str:
        """From the folder of the job, or from the log folder after its removal from the CE."""
        with suppress(Unreachable):
            for job in self._jobs.list([stamp]):
                if job.index == index:
                    # A character has at most four bytes.
                    return self._read_log(job.id, 4 * most).decode(errors="replace")[-most:]
        return read_log_tail(self._options.log_folder, f"{stamp}/{index}", most)

    def _read_log(self, id_: str, most: int) -> bytes:
        """The end of the output of a job; empty: it has none."""
        return self._client.read_end(f"jobs/{id_}/session/{LOG}", most)

    def _fetch_log(self, id_: str, stamp: str, index: int | None) -> None:
        """Keep the output of an ended pilot. Without it the job is still removed."""
        path = os.path.join(self._options.log_folder, log_name(stamp, str(index)))
        with suppress(OSError, RefusedCall):
            text = self._read_log(id_, MOST_LOG_BYTES)
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(number, "wb") as file:
                file.write(text)

    @property
    def _epoch(self) -> str:
        """A constant: an id of ARC is never used again."""
        return f"-{CLUSTER_MARK}{self._client.host}"


_DOUBT = SubmissionRefusal.IN_DOUBT


def _refusal_of(error: NotSent | RefusedCall) -> SubmissionRefusal:
    """The meaning of an error in place of the answer to a first request."""
    if isinstance(error, NotSent):
        return SubmissionRefusal.UNREACHED
    if any(words in error.reason for words in FULL):
        return SubmissionRefusal.FULL
    # A gateway may have passed the request on before it gave up.
    return SubmissionRefusal.REFUSED if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else _DOUBT
