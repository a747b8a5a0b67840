"""`pilotage.Executor`: functions run as jobs, by the interface of concurrent.futures."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from pilotage.client.api import Client
from pilotage.client.credentials import default_home
from pilotage.client.executor.calls import CallFuture, PendingCall
from pilotage.client.executor.courier import Courier
from pilotage.client.executor.journal import CallJournal
from pilotage.client.executor.pickling import PickledFunction, digest, pickle_arguments, pickle_function
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client.executor.progress import CallProgress

P = ParamSpec("P")
T = TypeVar("T")


class Executor(StandardExecutor):
    """Runs functions on all CEs of the pool, as jobs.

    >>> from pilotage import Executor                                     # doctest: +SKIP
    >>> with Executor(memory="500 MB") as executor:
    ...     print(sum(executor.map(pow, range(10_000), range(10_000))))

    Parameters of the constructor:

    - `name`: a later executor of this name finds its calls again, also after this process was killed. A call is known
      by its function's code, its arguments, and its number among equal calls. One process at a time uses a name.
    - `client`: of the server; by default that of PILOTAGE_HOME, else ~/.pilotage.
    - `cores`, `memory`, `wall`, `tags`, `requirements`: of each job, as `processors`, `memory`, `wall_time`, `tags` and
      `requirements` of docs/reference/job-description.md. A job has several calls, one after the other.
    - `retries`: how often a job is tried again if its process dies. A function's exception is a result.
    - `group`: the group to submit as; by default that of the token.
    - `chunk`: calls of a job. "auto": a few calls are sent alone, then groups of calls that last seconds.
    - `results`: "data" accepts plain data from the nodes, and arrays of NumPy: no code of a node runs here.
    - `progress`: show a line with the number of ended calls, if stderr is a terminal.
    - `description`: further fields of a job description.

    At most one result of each call is applied. A call may *run* more than once, as a job may.
    Raises Conflict if another process uses the name, and Unreachable if there is no server.
    """

    def __init__(
        self,
        name: str = "",
        *,
        client: Client | None = None,
        cores: int = 1,
        memory: int | str | None = None,
        wall: int | str | None = None,
        tags: Sequence[str] = (),
        requirements: str = "",
        group: str = "",
        retries: int = 0,
        chunk: int | Literal["auto"] = "auto",
        results: Literal["any", "data"] = "any",
        progress: bool = False,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        if chunk != "auto" and (not isinstance(chunk, int) or chunk < 1):
            raise InvalidInput(f'chunk is "auto" or a number of calls, not {chunk!r}')
        if results not in ("any", "data"):
            raise InvalidInput(f'results is "any" or "data", not {results!r}')
        given = {"memory": memory, "wall_time": wall, "tags": list(tags), "requirements": requirements}
        options = {"job_name": name or "map", "processors": cores, "retries": retries}
        options |= {field: value for field, value in given.items() if value}
        self._name = name
        self._chunk = 0 if chunk == "auto" else chunk
        self._lock = threading.Lock()
        self._equal: Counter[str] = Counter()
        self._functions: WeakValueDictionary[str, PickledFunction] = WeakValueDictionary()
        self._shut = False
        self._progress: CallProgress | None = None
        with ExitStack() as resources:
            journal = CallJournal(default_home() / "executors", name) if name else None
            if journal:
                resources.callback(journal.close)
                folder = journal.folder
            else:
                folder = Path(
                    resources.enter_context(tempfile.TemporaryDirectory(prefix="pilotage-executor-"))
                )
            if client is None:
                client = resources.enter_context(Client.connect())
            self._courier = Courier(
                client,
                folder,
                {**options, **(description or {})},
                group,
                journal,
                data=results == "data",
            )
            self._courier.start()
            self._resources = resources.pop_all()
        if progress:
            from pilotage.client.executor.progress import CallProgress

            self._progress = CallProgress(name or "calls")
            self._resources.callback(self._progress.close)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[T]:
        """Run `fn(*args, **kwargs)` in a job. Raises NotPicklable before anything is sent."""
        function = self._pickled(fn)
        arguments = pickle_arguments(function.name, args, kwargs)
        [future] = self._send(fn, function, [(args, kwargs, arguments)], self._chunk)
        return future

    def map(
        self,
        fn: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[T]:
        """Run `fn` with the items of the iterables; iterate over the results in their order.

        All arguments are pickled before the first is sent: raises NotPicklable. `chunksize`: calls of a job.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        function = self._pickled(fn)
        packed: list[tuple[tuple[Any, ...], dict[str, Any], bytes]] = [
            (args, {}, pickle_arguments(function.name, args, {})) for args in zip(*iterables, strict=False)
        ]
        futures = self._send(fn, function, packed, self._chunk if chunksize is None else chunksize)
        return _results(futures, timeout)

    def _pickled(self, fn: Callable[..., Any]) -> PickledFunction:
        """Its pickle. Calls of a function share one in memory, also if each was submitted by itself."""
        function = pickle_function(fn)
        return self._functions.setdefault(function.digest, function)

    def _send(
        self,
        fn: Callable[..., Any],
        function: PickledFunction,
        packed: Sequence[tuple[tuple[Any, ...], Mapping[str, Any], bytes]],
        chunk: int,
    ) -> list[CallFuture[Any]]:
        of_function = digest(self._name, fn) if self._name else ""
        futures, fresh = [], []
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            for args, kwargs, arguments in packed:
                key = self._key(of_function, args, kwargs) if self._name else ""
                future = self._courier.claim(key) if key else None
                if future is None:
                    future = self._courier.new_future()
                    fresh.append(PendingCall(function, arguments, key, chunk, future))
                futures.append(future)
        if self._progress:
            self._progress.add(futures)
        self._courier.add(fresh)
        return futures

    def _key(self, of_function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The key of a call: with its number among equal calls of this process."""
        equal = digest(of_function, args, sorted(kwargs.items()))
        self._equal[equal] += 1
        return digest(equal, self._equal[equal])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `wait`: until all have ended. `cancel_futures`: cancel calls without a result."""
        with self._lock:
            self._shut = True
        self._courier.close(wait=False, cancel=cancel_futures)
        if wait:
            self._close()
        else:
            threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        """Wait for the end of all calls, then remove the files and close the connections."""
        self._courier.close(wait=True, cancel=False)
        self._resources.close()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Wait for all calls, but not after an error: the server may be away for hours. Jobs go on then."""
        self.shutdown(wait=kind is None)


def _results(futures: list[CallFuture[T]], timeout: float | None) -> Iterator[T]:
    """Iterate over the results in order. Calls that nobody waits for are cancelled, as by the standard library."""
    import time

    end = None if timeout is None else time.monotonic() + timeout

    def one_by_one() -> Iterator[T]:
        left: list[Future[T]] = list(reversed(futures))
        try:
            while left:
                yield left.pop().result(None if end is None else end - time.monotonic())
        finally:
            for future in left:
                future.cancel()

    return one_by_one()
