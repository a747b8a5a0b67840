"""COMMIT in a separate thread: it only waits for the disk, and the writer processes the next group meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter

from pilotage.store.engine.connection import WriterConnection


class Commit:
    """One COMMIT in progress or done."""

    __slots__ = ("_lock", "error", "seconds")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The error of a failed COMMIT; valid once it is over."""
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._lock.acquire()

    @property
    def over(self) -> bool:
        return not self._lock.locked()

    def wait(self) -> None:
        """Block until the COMMIT is over."""
        with self._lock:
            pass

    def run(self, connection: WriterConnection) -> None:
        begun = perf_counter()
        try:
            connection.commit()
        except BaseException as error:
            self.error = error
        self.seconds = perf_counter() - begun
        self._lock.release()


class CommitThread:
    """The thread that commits. During a COMMIT no other thread may use the connection."""

    def __init__(self, connection: WriterConnection, over: Callable[[], None]) -> None:
        """`over` is called in the commit thread after each COMMIT."""
        self._connection = connection
        self._over = over
        self._begun: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def begin(self) -> Commit:
        commit = Commit()
        self._begun.put(commit)
        # Release the GIL, so that the COMMIT starts now and not at the end of this thread's time slice.
        time.sleep(0)
        return commit

    def stop(self) -> None:
        self._begun.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (commit := self._begun.get()) is not None:
            commit.run(self._connection)
            self._over()
