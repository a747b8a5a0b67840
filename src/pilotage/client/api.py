"""The Python client: one method per operation of the HTTP API."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pilotage import wire
from pilotage.client import polling, selections
from pilotage.client.administration import AdministrationMethods
from pilotage.client.changes import ChangeCursor, ChangeMethods
from pilotage.client.credentials import (
    FixedToken,
    TokenFile,
    default_home,
    parse_server_url,
    read_server_facts,
    require_safe,
    server_facts_of,
    write_server_facts,
)
from pilotage.client.datasets import DataSetMethods
from pilotage.client.graphs import GraphMethods
from pilotage.client.matchmaking import MatchmakingMethods
from pilotage.client.pilots import PilotMethods
from pilotage.client.polling import LogPiece
from pilotage.client.reports import ReportMethods
from pilotage.client.requests import RequestMethods
from pilotage.client.selections import Which, selection_of
from pilotage.client.submission import SubmitMethods
from pilotage.client.submissions import SubmissionMethods
from pilotage.client.token_calls import TokenCalls
from pilotage.client.transport import Transport
from pilotage.client.typed_requests import TypedRequests, verb, verb_on
from pilotage.core.errors import InvalidInput, NotFound, PilotageError
from pilotage.wire.limits import MAX_PAGE
from pilotage.wire.server_trust import ServerTrust

if TYPE_CHECKING:
    from pilotage.client import downloads
    from pilotage.wire.jobs import ActionResponse, Counts, JobSummary
    from pilotage.wire.pool import QueueSummary
    from pilotage.wire.submissions import SubmissionSource

BULK_TIMEOUT = 600.0
"""Seconds; an action on 100,000 jobs is answered when all of them are processed."""


class Client(
    SubmitMethods,
    SubmissionMethods,
    GraphMethods,
    RequestMethods,
    DataSetMethods,
    ReportMethods,
    MatchmakingMethods,
    AdministrationMethods,
    ChangeMethods,
    PilotMethods,
    TypedRequests,
):
    """A connection to one server with one identity; thread-safe.

    >>> from pilotage.client import Client                                # doctest: +SKIP
    >>> with Client.connect() as client:                                  # the server of ~/.pilotage
    ...     jobs = client.submit({"executable": "/bin/sleep", "arguments": ["%s"]}, values=[1, 2, 3])
    ...     client.wait(jobs)
    ...     for job in client.jobs(jobs):
    ...         client.download(job.id, "results")

    Parameters of the constructor:

    - `url`: address of the server, http://HOST:PORT or https://HOST:PORT, with #sha256=FINGERPRINT to pin. Several
      servers of one pool are separated by commas; when one does not answer, the next is asked.
    - `token`: the text of a token, or a TokenFile, which is renewed in place.
    - `group`: the group to work in, if the token is one of a trusted issuer; "": the first of the token.
    - `patience`: seconds for which requests to an unreachable or busy server are retried. Requests that could take
      effect twice are not repeated.
    - `connect_patience`: the same until the server's first answer; None: as `patience`.
    - `timeout`: seconds without data after which a request fails.
    - `on_outage`: called with the error when retries take longer than a few seconds, and then each minute.
    - `trust`: the accepted certificates of the server; None: the system's CAs decide.
    - `on_new_pins`: called when the server has announced other certificates than the pinned ones.
    - `on_notice`: called once with the server's notice to all clients, such as "the disk is full".

    Every method raises a subclass of `pilotage.core.errors.PilotageError`: Unreachable (no answer), Overloaded (come
    back later), NotAuthenticated, Forbidden, and NotFound for objects that do not exist or belong to another user.
    Methods name further errors.
    """

    def __init__(
        self,
        url: str,
        token: str | TokenFile,
        *,
        group: str = "",
        patience: float = 30.0,
        timeout: float = 60.0,
        connect_patience: float | None = None,
        trust: ServerTrust | None = None,
        on_outage: Callable[[PilotageError], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        on_new_pins: Callable[[ServerTrust], None] | None = None,
    ) -> None:
        if trust is None:
            place = parse_server_url(url)
            url, trust = place.url, place.trust
        require_safe(url, trust)
        source = FixedToken(token) if isinstance(token, str) else token
        self._transport = Transport(
            url.split(","),
            lambda: source.current(calls),
            refused=lambda token, error: source.refused(token, error, calls),
            group=group,
            patience=patience,
            connect_patience=connect_patience,
            timeout=timeout,
            trust=trust,
            on_outage=on_outage,
            on_notice=on_notice,
            on_new_pins=on_new_pins,
        )
        calls = TokenCalls(self._transport)
        self.exchange = calls.exchange

    @classmethod
    def connect(
        cls,
        *,
        home: Path | str | None = None,
        server: str | None = None,
        token_file: Path | str | None = None,
        patience: float = 30.0,
        connect_patience: float | None = None,
        on_outage: Callable[[PilotageError], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> Self:
        """Create a client for the server of a home folder, or for the address `server`.

        `home` defaults to PILOTAGE_HOME, else ~/.pilotage; its server.json has the address. `token_file` defaults to
        the file `token` in that folder. The constructor explains the other parameters.
        Raises Unreachable if no server was started there, InvalidInput if server.json cannot be read.
        """
        folder = default_home() if home is None else Path(home)
        place = server_facts_of(server, folder) if server else read_server_facts(folder)

        def save_pins(trust: ServerTrust) -> None:
            # The server itself writes server.json of its own home.
            if not server and place.pid is None:
                with contextlib.suppress(OSError):
                    write_server_facts(folder, place.url, trust)

        file = (
            TokenFile(Path(token_file))
            if token_file
            else TokenFile(folder / "token", of_home=place.pid is not None)
        )
        return cls(
            place.url,
            file,
            patience=patience,
            connect_patience=connect_patience,
            trust=place.trust,
            on_outage=on_outage,
            on_notice=on_notice,
            on_new_pins=save_pins,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._transport.url

    # --- jobs

    def jobs(
        self,
        which: Which = wire.jobs.Selection(),  # noqa: B008
        *,
        page: int = MAX_PAGE,
        newest: bool = False,
    ) -> Iterator[JobSummary]:
        """Iterate over the selected jobs by ascending id, or by descending id with `newest`.

        Jobs are fetched in pages of `page`. If more ids are given than one request can carry, batches follow the
        order of the ids. Raises InvalidInput for an empty condition.
        """
        for piece in selections.split_by_ids(selection_of(which), selections.IDS_PER_QUERY):
            asked = wire.jobs.JobsQuery(**selections.given_conditions(piece), newest=newest)
            yield from self._pages(wire.jobs.LIST_JOBS, asked, lambda answer: answer.jobs, page=page)

    job = verb_on(lambda: wire.jobs.SHOW_JOB)

    def counts(self, which: Which = wire.jobs.Selection()) -> Counts:  # noqa: B008
        """Count the selected jobs by state."""
        total = wire.jobs.Counts({}, 0, 0)
        for piece in selections.split_by_ids(selection_of(which), selections.IDS_PER_QUERY):
            conditions = selections.given_conditions(piece)
            part = self.call(wire.jobs.COUNT_JOBS, wire.jobs.ListedJobs(**conditions))
            for state, number in part.states.items():
                total.states[state] = total.states.get(state, 0) + number
            total.total += part.total
            total.final += part.final
        return total

    def wait(
        self,
        which: Which,
        *,
        timeout: float | None = None,
        progress: Callable[[Counts], None] | None = None,
    ) -> Counts:
        """Wait until all selected jobs are in a final state, or for `timeout` seconds; return the last counts.

        After a timeout `counts.final` is below `counts.total`. `progress` is called with the counts when they change.
        Raises NotFound if no job is selected.
        """
        selection = selection_of(which)
        feed = ChangeCursor(self.read_changes, selection)
        return polling.wait_until_final(lambda: self.counts(selection), feed.await_change, timeout, progress)

    def source(self, submission: int, which: Which = wire.jobs.Selection()) -> SubmissionSource:  # noqa: B008
        """Return the description and inputs of your own submission, with the parameter values of the selected jobs."""
        whole: SubmissionSource | None = None
        for piece in selections.split_by_ids(selection_of(which), selections.IDS_PER_QUERY):
            asked = wire.submissions.SourceQuery(**selections.given_conditions(piece), limit=MAX_PAGE)
            while True:
                page = self.call(wire.submissions.SHOW_SOURCE, asked, submission_id=submission)
                if whole is None:
                    whole = page
                else:
                    whole.jobs += page.jobs
                if page.next is None:
                    break
                asked.after = page.next
        assert whole is not None
        return whole

    def missing_uploads(self, digests: Sequence[str]) -> list[str]:
        """Return which of these input files (SHA-256) you have not uploaded, or not since they were deleted."""
        from pilotage.client.inputs import missing_digests

        return missing_digests(self._transport, digests)

    events = verb_on(lambda: wire.jobs.LIST_EVENTS)

    why = verb_on(lambda: wire.why.WHY_JOB)

    outputs = verb_on(lambda: wire.jobs.LIST_OUTPUTS)

    def download(self, job: int, folder: Path | str, *, force: bool = False) -> downloads.Download:
        """Download the outputs of a job to `folder`/<job id>/.

        Existing files are kept unless `force` is set. Raises NotFound, and InvalidInput if a file cannot be written.
        """
        from pilotage.client import downloads

        target = Path(folder) / str(job)
        return downloads.fetch(self._transport, job, self.outputs(job), target, force)

    def download_many(
        self, jobs: Iterable[int], folder: Path | str | Mapping[int, Path], *, force: bool = False
    ) -> Iterator[downloads.Download]:
        """Download the outputs of many jobs with one request; yield one Download per job by ascending id.

        The outputs of a job go to `folder`/<job id>. A mapping has the folder of each job instead.
        Failures of a job are reported in `Download.failed`. Existing files are not sent again unless `force` is set.
        """
        from pilotage.client import archives, downloads

        def place(job: int) -> Path:
            return folder[job] if isinstance(folder, Mapping) else Path(folder) / str(job)

        wanted = sorted(set(jobs))
        with_folder = [] if force else [job for job in wanted if place(job).exists()]
        partly_downloaded = set()
        for listed in archives.list_outputs(self._transport, with_folder):
            folder_of_job = place(listed.id)
            paths = [downloads.output_path(folder_of_job, output.name) for output in listed.outputs]
            if any(os.path.lexists(path) for path in paths):
                partly_downloaded.add(listed.id)
                try:
                    yield downloads.fetch(self._transport, listed.id, listed.outputs, folder_of_job, force)
                except (InvalidInput, NotFound) as error:
                    yield downloads.Download(listed.id, folder_of_job, failed={"": error.message})
        missing = [job for job in wanted if job not in partly_downloaded]
        yield from archives.fetch_outputs(self._transport, missing, place, force)

    def log(self, job: int, offset: int = 0, *, stream: str = "stdout", attempt: int = 0) -> LogPiece:
        """Return the part of a job's output from byte `offset` on.

        `stream` is "stdout" or "stderr". For a running job the request makes its pilot send recent output.
        `attempt`: of this attempt, as far as its pilot has sent it; 0: of the last one.
        """
        asked = wire.jobs.LogQuery(offset, attempt)
        answer = self._transport.send(wire.jobs.READ_LOG, asked, job=job, stream=stream)
        begin = answer.headers.get("x-pilotage-offset", "")
        state = answer.headers.get("x-pilotage-state", "")
        return LogPiece(int(begin) if begin.isdigit() else offset, answer.content, state)

    def logs(
        self, job: int, *, stream: str = "stdout", follow: bool = False, attempt: int = 0
    ) -> Iterator[LogPiece]:
        """Iterate over a job's output so far; with `follow`, until the job is in a final state. See `log`."""
        ask = partial(self.log, job, stream=stream, attempt=attempt)
        if not follow:
            return polling.read_log(ask)
        feed = ChangeCursor(self.read_changes, selection_of(job))
        return polling.follow_log(ask, wait=feed.await_change, silent=polling.SILENT_STATES)

    def kill(self, which: Which, *, dry_run: bool = False, reason: str = "") -> ActionResponse:
        """Kill waiting or running jobs. Jobs in another state are listed in `ActionResponse.refused`.

        With `dry_run` nothing changes. `reason` is recorded in the events.
        """
        return self._action("kill", which, dry_run, reason)

    def reschedule(self, which: Which, *, dry_run: bool = False, reason: str = "") -> ActionResponse:
        """Queue failed or killed jobs again, with their stored files. Parameters: see `kill`."""
        return self._action("reschedule", which, dry_run, reason)

    def redo(self, which: Which, *, dry_run: bool = False, reason: str = "") -> ActionResponse:
        """Queue failed, killed or Done jobs again; jobs skipped because of them follow. Parameters: see `kill`."""
        return self._action("redo", which, dry_run, reason)

    def hold(self, which: Which, *, dry_run: bool = False, reason: str = "") -> ActionResponse:
        """Keep waiting or blocked jobs from running, until `release`. Parameters: see `kill`."""
        return self._action("hold", which, dry_run, reason)

    def release(self, which: Which, *, dry_run: bool = False, reason: str = "") -> ActionResponse:
        """Let held jobs run. Parameters: see `kill`."""
        return self._action("release", which, dry_run, reason)

    def set_priority(
        self, which: Which, priority: int, *, dry_run: bool = False, reason: str = ""
    ) -> ActionResponse:
        """Give jobs that have not ended another priority, from 0 to 10. Parameters: see `kill`."""
        return self._action("priority", which, dry_run, reason, priority)

    def delete(self, which: Which, *, dry_run: bool = False, reason: str = "") -> ActionResponse:
        """Delete jobs and their outputs; accounting records are kept. Parameters: see `kill`."""
        return self._action("delete", which, dry_run, reason)

    def _action(
        self, action: str, which: Which, dry_run: bool, reason: str, priority: int | None = None
    ) -> ActionResponse:
        total = wire.jobs.ActionResponse(0, 0)
        for piece in selections.split_by_ids(selection_of(which), selections.IDS_PER_ACTION):
            # Not an ActionRequest: conditions that were not given are left out, `null` is refused.
            request = {"selection": selections.given_conditions(piece), "dry_run": dry_run, "reason": reason}
            if priority is not None:
                request["priority"] = priority
            part = self._transport.call(wire.jobs.ACT_ON_JOBS, request, timeout=BULK_TIMEOUT, verb=action)
            total.matched += part.matched
            total.done += part.done
            total.refused += part.refused
            total.skipped += part.skipped
        return total

    # --- the system

    def queues(self) -> Iterator[QueueSummary]:
        """Iterate over the task queues with waiting jobs."""
        return self._pages(wire.pool.LIST_QUEUES, wire.pool.QueuesQuery(), lambda answer: answer.queues)

    why_queue = verb_on(lambda: wire.why.WHY_QUEUE)

    sites = verb(lambda: wire.sites.LIST_SITES)

    partitions = verb(lambda: wire.sites.LIST_PARTITIONS)

    ces = verb(lambda: wire.ces.LIST_CES)

    ce = verb(lambda: wire.ces.REPORT_CE)

    whoami = verb(lambda: wire.identity.WHOAMI)

    sign_in_code = verb(lambda: wire.web.CREATE_SIGN_IN_CODE)

    # --- requests
