"""Sends calls as jobs, hears of their ends by the change feed, and brings their results.

Three threads: one submits, one listens, one downloads. Each takes all that has come since its last turn.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage.client.executor import payload, process_end
from pilotage.client.executor.calls import CallFuture, PendingCall
from pilotage.client.executor.chunking import ChunkRule
from pilotage.client.executor.journal import CallJournal, SentChunks
from pilotage.client.executor.losses import LostCalls, tell_lost
from pilotage.client.executor.outages import Outages
from pilotage.client.executor.outcomes import settle
from pilotage.client.executor.result_files import OwnFolder, ResultFile, ResultFrame
from pilotage.client.polling import FINAL_STATES
from pilotage.core.errors import CursorExpired, PilotageError
from pilotage.wire.changes import ChangesQuery
from pilotage.wire.jobs import Selection

if TYPE_CHECKING:
    from pilotage.client.api import Client
    from pilotage.wire.changes import FeedChange
    from pilotage.wire.jobs import JobSummary

GATHER = 0.02
"""Seconds in which calls come together before they are sent."""
LOOK = 1.0
"""Seconds after which calls that were held are looked at again."""
MAX_JOBS = 2000
"""Jobs of one submission."""
LISTEN = 30.0
"""Seconds of one long poll."""


class Courier:
    """The calls of one executor on their way."""

    def __init__(
        self,
        client: Client,
        folder: Path | OwnFolder,
        options: dict[str, Any],
        group: str,
        journal: CallJournal | None,
        *,
        data: bool,
    ) -> None:
        """`folder`: for the files on their way. `data`: results are plain data."""
        self._client = client
        self._owned = [folder] if isinstance(folder, OwnFolder) else []
        self._folder = folder.path if isinstance(folder, OwnFolder) else folder
        self._options = options
        self._group = group
        self._data = data
        self._journal = journal
        self._outages = Outages(client)
        self._rule = ChunkRule()
        self._changed = threading.Condition()
        self._waiting: deque[PendingCall] = deque()
        self._jobs: dict[int, list[PendingCall]] = {}
        """Calls of submitted jobs until their outcomes are applied."""
        self._awaited: set[int] = set()
        """Jobs that have not ended, as far as is known."""
        self._ended: dict[int, str] = {}
        """Jobs whose results must be downloaded, with their states."""
        self._early: dict[int, str] = {}
        """Ends that were told before the answer to the submission."""
        self._to_kill: list[int] = []
        self._places: dict[str, tuple[int, int]] = {}
        """Job and position of the calls of earlier processes, by key."""
        self._sending: list[PendingCall] = []
        """Calls of the submission that is being made."""
        self._closed = ""
        """Why no calls are taken; "": they are."""
        self._broken: Exception | None = None
        self._cursor = ""
        self._owner = ""
        self._frames = lru_cache(64)(lambda job: self._result_file(job).frames())
        self._resources = ExitStack()
        turns = (self._send_turn, self._listen_turn, self._gather_turn)
        self._threads = [
            threading.Thread(target=self._work, args=(turn,), name=turn.__name__, daemon=False)
            for turn in turns
        ]
        self._working = len(turns)

    # --- for the executor, in any thread

    def start(self, resources: ExitStack) -> None:
        """Find the calls that an earlier process has sent, and begin to work.

        The last thread closes `resources`: the executor may be forgotten while its calls run.
        """
        self._owner = self._client.whoami().user
        if self._journal is not None:
            self._recover(self._journal)
        process_end.watch(self)
        self._resources = resources.pop_all()
        for thread in self._threads:
            thread.start()

    def new_future(self, *, keeps_frame: bool = False) -> CallFuture[Any]:
        return CallFuture(lambda job: self._client.why(job).summary, self._cancelled, keeps_frame=keeps_frame)

    def add(self, calls: Iterable[PendingCall]) -> None:
        """Accept calls. Raises RuntimeError after `close`, and after the end of the interpreter has begun."""
        with self._changed:
            if self._closed:
                raise RuntimeError(f"cannot schedule new futures after {self._closed}")
            self._waiting.extend(calls)
            self._changed.notify_all()
            broken = self._broken
        if broken:
            self._break(broken)

    def claim(self, key: str, *, keeps_frame: bool) -> CallFuture[Any] | None:
        """The future of a call that an earlier process has sent; None: it has none, or was lost."""
        place = self._places.pop(key, None)
        if place is None:
            return None
        job, position = place
        with self._changed:
            if job in self._jobs:
                future = self._jobs[job][position].future
                future.keeps_frame = keeps_frame
                return future
        outcomes = self._frames(job)
        if position >= len(outcomes):
            return None
        future = self.new_future(keeps_frame=keeps_frame)
        future.job = job
        settle(future, outcomes[position], data=self._data)
        return future

    def close(self, *, cancel: bool) -> None:
        """Take no more calls."""
        self._close("shutdown")
        for call in self._calls() if cancel else ():
            call.future.cancel()

    def end(self) -> None:
        self._close("interpreter shutdown")

    def _close(self, reason: str) -> None:
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def left(self) -> int:
        return sum(not call.future.done() for call in self._calls())

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all calls have an outcome and all is closed, and say whether that is so."""
        until = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _calls(self) -> list[PendingCall]:
        with self._changed:
            submitted = (call for calls in self._jobs.values() for call in calls)
            return list(dict.fromkeys((*self._waiting, *self._sending, *submitted)))

    def _cancelled(self, future: CallFuture[Any]) -> None:
        with self._changed:
            job = future.job
            if job in self._awaited and all(call.future.cancelled() for call in reversed(self._jobs[job])):
                self._to_kill.append(job)
            self._changed.notify_all()

    # --- the threads

    def _work(self, turn: Callable[[], bool]) -> None:
        """Take turns until one says that all is done. An error that nobody can handle ends all calls."""
        try:
            while turn():
                pass
        except Exception as trouble:
            self._break(trouble)
        finally:
            with self._changed:
                self._working -= 1
                is_last = not self._working
            if is_last:
                self._resources.close()
                self._owned.clear()

    def _break(self, trouble: Exception) -> None:
        with self._changed:
            self._broken = trouble
            calls = self._calls()
            for book in (self._waiting, self._sending, self._jobs, self._awaited, self._ended):
                book.clear()
            self._changed.notify_all()
        for call in calls:
            call.future.settle(error=trouble)

    def _over(self) -> bool:
        is_ending = self._closed or self._broken
        return bool(is_ending) and not (self._waiting or self._sending or self._jobs)

    def _send_turn(self) -> bool:
        with self._changed:
            if not self._waiting and not self._to_kill and not self._over():
                self._changed.wait()
            if self._over():
                return False
        time.sleep(GATHER)
        with self._changed:
            killed, self._to_kill = self._to_kill, []
            chunks = self._rule.take(self._waiting, time.monotonic())
            self._sending = [call for chunk in chunks for call in chunk]
        if killed:
            self._outages.persist(lambda: self._client.kill(killed, reason="cancelled by its executor"))
        for first in range(0, len(chunks), MAX_JOBS):
            self._submit(chunks[first : first + MAX_JOBS])
        with self._changed:
            self._sending = []
            self._early.clear()
            self._changed.notify_all()
            if self._waiting and not chunks:
                self._changed.wait(LOOK)
        return True

    def _submit(self, chunks: list[list[PendingCall]]) -> None:
        if not self._cursor:
            self._cursor = self._outages.persist(lambda: self._client.read_changes(self._query())).cursor
        key = str(uuid.uuid4())
        folder = self._payload(key)
        description = payload.write_payload(folder, chunks, self._options, data=self._data)
        keys = [[call.key for call in chunk] for chunk in chunks]
        sent = SentChunks(key, description, self._group, keys)
        if self._journal is not None:
            self._journal.sending(sent)
        try:
            self._outages.persist(lambda: self._send(sent))
        except PilotageError as refusal:
            if self._journal is not None:
                self._journal.refused(key)
            payload.remove(folder)
            for call in (call for chunk in chunks for call in chunk):
                call.future.settle(error=refusal)
            return
        self._register(sent, chunks)

    def _send(self, sent: SentChunks) -> None:
        """Submit, also again: the key makes that harmless."""
        folder = self._payload(sent.key)
        values = list(range(len(sent.chunks)))
        answer = self._client.submit(
            sent.description, values=values, folder=folder, group=sent.group, key=sent.key
        )
        sent.submission, sent.first = answer.submission, answer.first
        if self._journal is not None:
            self._journal.accepted(sent.key, answer.submission, answer.first)
        payload.remove(folder)

    def _register(self, sent: SentChunks, chunks: Sequence[list[PendingCall]]) -> None:
        with self._changed:
            if self._broken:
                return
            for job, calls in enumerate(chunks, sent.first):
                self._jobs[job] = calls
                for call in calls:
                    call.future.job = job
                    call.arguments = b""  # they are on their way
                if job in self._early:
                    self._ended[job] = self._early.pop(job)
                else:
                    self._awaited.add(job)
                    if all(call.future.cancelled() for call in calls):
                        self._to_kill.append(job)
            self._changed.notify_all()

    def _listen_turn(self) -> bool:
        with self._changed:
            if not self._awaited:
                if not self._sending:
                    self._cursor = ""
                if self._over():
                    return False
                self._changed.wait()
                return True
        try:
            page = self._outages.persist(lambda: self._client.read_changes(self._query(LISTEN)))
            changes: Iterable[FeedChange | JobSummary] = [
                change for change in page.changes if change.kind == "job"
            ]
            self._cursor = page.cursor
        except CursorExpired:
            self._cursor = self._outages.persist(
                lambda: self._client.read_changes(self._query(begin=True))
            ).cursor
            changes = self._outages.persist(lambda: list(self._client.jobs(list(self._awaited))))
        with self._changed:
            for change in changes:
                self._apply(change)
            self._changed.notify_all()
        return True

    def _query(self, wait: float = 0.0, begin: bool = False) -> ChangesQuery:
        return ChangesQuery("" if begin else self._cursor, wait=wait, owner=self._owner)

    def _apply(self, change: FeedChange | JobSummary) -> None:
        if change.id not in self._awaited:
            if self._sending and change.state in FINAL_STATES:
                self._early[change.id] = change.state
        elif change.state in FINAL_STATES:
            self._awaited.discard(change.id)
            self._ended[change.id] = change.state
        elif change.state == "Running":
            for call in self._jobs[change.id]:
                call.future.started = True
                if call.kind:
                    self._rule.started(call.kind, time.monotonic())

    def _gather_turn(self) -> bool:
        with self._changed:
            if not self._ended:
                if self._over():
                    return False
                self._changed.wait()
                return True
            ended, self._ended = self._ended, {}
        reports = self._outages.persist(
            lambda: list(self._client.download_many(ended, self._folder / payload.RESULTS))
        )
        lost = []
        for report in reports:
            calls, outcomes = self._jobs[report.job], self._result_file(report.job).frames()
            if len(outcomes) < len(calls):
                lost.append(LostCalls(report.job, len(outcomes), calls, list(report.failed.values())))
            self._deliver(calls, outcomes)
        tell_lost(self._client, self._rule, lost)
        with self._changed:
            for job in ended:
                self._jobs.pop(job, None)
            self._changed.notify_all()
        return True

    def _deliver(self, calls: list[PendingCall], outcomes: list[ResultFrame]) -> None:
        for call, outcome in zip(calls, outcomes, strict=False):
            with self._changed:
                if call.kind:
                    self._rule.measured(call.kind, outcome.seconds)
            settle(call.future, outcome, data=self._data)

    # --- calls of earlier processes

    def _recover(self, journal: CallJournal) -> None:
        for sent in journal.sent.values():
            if not sent.first:
                self._send(sent)
            jobs = range(sent.first, sent.first + len(sent.chunks))
            for job, keys in zip(jobs, sent.chunks, strict=True):
                self._places.update({key: (job, position) for position, key in enumerate(keys)})
            missing = {job for job in jobs if not self._results(job).exists()}
            if missing:
                self._await_again(sent, missing)

    def _await_again(self, sent: SentChunks, missing: set[int]) -> None:
        if not self._cursor:
            self._cursor = self._client.read_changes(self._query()).cursor
        states = {job.id: job.state for job in self._client.jobs(Selection(submission=sent.submission))}
        ended = [job for job in missing if states.get(job) in FINAL_STATES]
        if ended:
            list(self._client.download_many(ended, self._folder / payload.RESULTS))
        for job in missing.intersection(states).difference(ended):
            keys = sent.chunks[job - sent.first]
            self._jobs[job] = [PendingCall(None, b"", key, 0, self.new_future()) for key in keys]
            for call in self._jobs[job]:
                call.future.job = job
            self._awaited.add(job)

    def _payload(self, key: str) -> Path:
        return self._folder / "payloads" / key

    def _results(self, job: int) -> Path:
        return self._folder / payload.RESULTS / str(job) / payload.RESULTS

    def _result_file(self, job: int) -> ResultFile:
        """Without a journal the file of a job is removed when its last outcome was read."""
        path = self._results(job)
        return ResultFile(path, *self._owned, *(OwnFolder(path.parent) for _ in self._owned))
