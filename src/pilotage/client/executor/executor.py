"""`pilotage.Executor`: functions run as jobs, by the interface of concurrent.futures."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as StandardExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar
from weakref import WeakValueDictionary, finalize

from pilotage.client.api import Client
from pilotage.client.credentials import default_home, read_server_facts
from pilotage.client.executor import payload
from pilotage.client.executor.calls import CallFuture, PendingCall
from pilotage.client.executor.courier import Courier
from pilotage.client.executor.journal import CallJournal
from pilotage.client.executor.outcomes import read_outcome
from pilotage.client.executor.pickling import PickledFunction, digest, pickle_arguments, pickle_function
from pilotage.client.executor.result_files import OwnFolder, ResultFrame
from pilotage.client.server_process import await_start, refuse_suspended
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client.executor.progress import CallProgress

P = ParamSpec("P")
T = TypeVar("T")

HOME_VARIABLE = "PILOTAGE_HOME"
STARTING = 30.0
"""Seconds that a server which is just starting may take."""


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

    At most one result of each call is applied. A call may *run* more than once, as a job may. The interpreter ends
    when all calls have ended.
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
        options: dict[str, Any] = {"job_name": name or "map", "processors": cores, "retries": retries}
        options |= {field: value for field, value in given.items() if value} | _checked(description or {})
        if client is None:
            options["environment"] = _with_home(options.get("environment", {}))
        self._name = name
        self._data = results == "data"
        self._chunk = 0 if chunk == "auto" else chunk
        self._lock = threading.Lock()
        self._equal: Counter[str] = Counter()
        self._functions: WeakValueDictionary[str, PickledFunction] = WeakValueDictionary()
        self._progress: CallProgress | None = None
        with ExitStack() as resources:
            journal = CallJournal(default_home() / "executors", name) if name else None
            if journal:
                resources.callback(journal.close)
                folder: Path | OwnFolder = journal.folder
            else:
                folder = OwnFolder()
            if client is None:
                client = resources.enter_context(_connected())
            self._courier = Courier(client, folder, options, group, journal, data=self._data)
            if progress:
                from pilotage.client.executor.progress import CallProgress

                self._progress = CallProgress(name or "calls")
                resources.callback(self._progress.close)
            self._courier.start(resources)
        # An executor that nobody has any more runs the calls that it has accepted.
        finalize(self, self._courier.close, cancel=False).atexit = False

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

        The results wait on the disk until their turn.
        All arguments are pickled before the first is sent: raises NotPicklable. `chunksize`: calls of a job.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        function = self._pickled(fn)
        packed: list[tuple[tuple[Any, ...], dict[str, Any], bytes]] = [
            (args, {}, pickle_arguments(function.name, args, {})) for args in zip(*iterables, strict=False)
        ]
        size = self._chunk if chunksize is None else chunksize
        futures = self._send(fn, function, packed, size, keeps_frame=True)
        return _results(futures, timeout, data=self._data)

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
        *,
        keeps_frame: bool = False,
    ) -> list[CallFuture[Any]]:
        of_function = digest(self._name, fn) if self._name else ""
        futures, fresh = [], []
        with self._lock:
            for args, kwargs, arguments in packed:
                key = self._key(of_function, args, kwargs) if self._name else ""
                future = self._courier.claim(key, keeps_frame=keeps_frame) if key else None
                if future is None:
                    future = self._courier.new_future(keeps_frame=keeps_frame)
                    fresh.append(PendingCall(function, arguments, key, chunk, future))
                futures.append(future)
        self._courier.add(fresh)
        if self._progress:
            self._progress.add(futures)
        return futures

    def _key(self, of_function: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The key of a call: with its number among equal calls of this process."""
        equal = digest(of_function, args, sorted(kwargs.items()))
        self._equal[equal] += 1
        return digest(equal, self._equal[equal])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `wait`: until all have ended. `cancel_futures`: cancel calls without a result."""
        self._courier.close(cancel=cancel_futures)
        if wait:
            self._courier.join()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Wait for all calls. After an error the end of the program waits for them, and Ctrl-C ends that."""
        self.shutdown(wait=kind is None)


def _checked(description: Mapping[str, Any]) -> dict[str, Any]:
    """Further fields of the description of the jobs. Raises InvalidInput for one that is made here."""
    own = sorted(payload.OWN_FIELDS.intersection(description))
    if own:
        raise InvalidInput(
            f"description: the executor itself sets {', '.join(own)}", hint="give paths of files as arguments"
        )
    return dict(description)


def _with_home(environment: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """The variables of calls: an executor in a call finds the server where the node has the same home folder."""
    given = (
        environment if isinstance(environment, Mapping) else dict(text.split("=", 1) for text in environment)
    )
    home = str(default_home().absolute())
    return {**({} if "%" in home else {HOME_VARIABLE: home}), **given}  # a percent sign may begin a parameter


def _connected() -> Client:
    """A client of the server of this home. Raises Unreachable at once if that is suspended."""
    home = default_home()
    await_start(home, STARTING)
    refuse_suspended(read_server_facts(home))
    return Client.connect(home=home)


def _results(futures: list[CallFuture[T]], timeout: float | None, *, data: bool) -> Iterator[T]:
    """Iterate over the results in order. Each is read when its turn comes, and nothing here keeps it.

    Calls that nobody waits for are cancelled, as by the standard library.
    """
    end = None if timeout is None else time.monotonic() + timeout
    futures.reverse()

    def one_by_one() -> Iterator[T]:
        try:
            while futures:
                yield _value(futures.pop().result(None if end is None else end - time.monotonic()), data=data)
        finally:
            for future in futures:
                future.cancel()

    return one_by_one()


def _value(found: Any, *, data: bool) -> Any:
    """The result of a call of `map`, or its exception."""
    if not isinstance(found, ResultFrame):
        return found  # it was settled before `map` asked for it
    value, error = read_outcome(found, data=data)
    if error is None:
        return value
    try:
        raise error
    finally:
        error = None  # else the exception and this frame would keep each other
