"""Hears of the ends of jobs by the change feed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pilotage.client import Client, Selection
from pilotage.client.polling import FINAL_STATES
from pilotage.core.errors import CursorExpired, Overloaded, PilotageError, Unreachable
from pilotage.wire.changes import ChangesQuery

LISTEN = 30.0
"""Seconds of one long poll."""


class JobEnds:
    """The states in which watched jobs have ended. One thread listens; the methods may be called in any thread."""

    def __init__(self, client: Client, on_outage: Callable[[PilotageError], None]) -> None:
        self._client = client
        self._on_outage = on_outage
        self._lock = threading.Lock()
        self._unfinished: set[int] = set()
        self._ended: dict[int, str] = {}
        self._submitting = 0
        self._early: dict[int, str] = {}
        """Ends that were told before the answer to a submission."""
        self._failure: PilotageError | None = None
        self._news = threading.Event()
        self._closed = False
        self._owner = ""

    def start(self) -> None:
        """Listen to the changes from now on."""
        self._owner = self._client.whoami().user
        cursor = self._read("", 0.0)
        threading.Thread(target=self._listen, args=(cursor,), name="pilotage-changes", daemon=True).start()

    @contextmanager
    def submission(self) -> Iterator[None]:
        """Within it, ends of unknown jobs are kept: `watch` may come after the end of a job."""
        with self._lock:
            self._submitting += 1
        try:
            yield
        finally:
            with self._lock:
                self._submitting -= 1
                if not self._submitting:
                    self._early.clear()

    def watch(self, job: int, state: str = "") -> None:
        """Wait for the end of a job, which is in `state`."""
        with self._lock:
            known = self._early.pop(job, state)
            if known in FINAL_STATES:
                self._ended[job] = known
                self._news.set()
            else:
                self._unfinished.add(job)

    def take(self, job: int) -> str:
        """The final state of a watched job, once; "": it has not ended. Raises the error that ended the listening."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return self._ended.pop(job, "")

    def unfinished(self) -> list[int]:
        with self._lock:
            return sorted(self._unfinished)

    def wait(self, seconds: float) -> None:
        """Wait for the end of a watched job, an error, `close`, or until the seconds are over."""
        if self._news.wait(seconds) and not self._closed:
            self._news.clear()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def _listen(self, cursor: str) -> None:
        while not self._closed:
            try:
                cursor = self._read(cursor, LISTEN)
            except CursorExpired:
                cursor = self._read("", 0.0)
                self._look_at_all()
            except (Overloaded, Unreachable) as outage:
                self._on_outage(outage)
            except PilotageError as failure:
                with self._lock:
                    self._failure = failure
                self._news.set()
                return

    def _read(self, cursor: str, seconds: float) -> str:
        page = self._client.read_changes(ChangesQuery(cursor, wait=seconds, owner=self._owner))
        self._apply([(change.id, change.state) for change in page.changes if change.kind == "job"])
        return page.cursor

    def _look_at_all(self) -> None:
        """The feed has a gap: list the jobs once."""
        unfinished = self.unfinished()
        if unfinished:
            found = {job.id: job.state for job in self._client.jobs(Selection(ids=unfinished))}
            self._apply([(job, found.get(job, "Deleted")) for job in unfinished])

    def _apply(self, states: list[tuple[int, str]]) -> None:
        with self._lock:
            for job, state in states:
                if state not in FINAL_STATES:
                    continue
                if job in self._unfinished:
                    self._unfinished.discard(job)
                    self._ended[job] = state
                    self._news.set()
                elif self._submitting:
                    self._early[job] = state
