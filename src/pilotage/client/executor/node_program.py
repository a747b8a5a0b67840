"""Runs the calls of one job on the node. It is the main program of a zip file, which also has cloudpickle.

Standard library only, and syntax of old Pythons: another Python must come far enough to say that it is the wrong one.
Arguments: the Python of the caller, as 3.11, and the number of the chunk. Files: `functions` and `calls`, both plain
pickles. The file `results` gets a frame for each call: HEADER, then the pickled outcome.

These files lie in the folder of the job. Each call works in a new folder below it, and may write and remove all there.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import pickle
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

HEADER = struct.Struct(">BdQ")
"""Outcome, seconds that the call took without its imports, bytes that follow."""
RETURNED, RAISED, UNUSABLE = 0, 1, 2
"""UNUSABLE: the outcome cannot be pickled, and a text says so."""
FOLDER = "calls.work"
"""The folder below that of the job where calls have theirs."""
WRONG_PYTHON = 78
"""Exit code: this Python is not the caller's."""


def main() -> int:
    wanted, chunk = sys.argv[1], int(sys.argv[2])
    here = ".".join(str(part) for part in sys.version_info[:2])
    if here != wanted:
        print("this node has Python " + here + ", and the calls need Python " + wanted, file=sys.stderr)
        return WRONG_PYTHON
    with open("functions", "rb") as file:
        bodies, folders, data = pickle.load(file)  # noqa: S301  # the caller's own file
    with open("calls", "rb") as file:
        calls = pickle.load(file)[chunk]  # noqa: S301
    sys.path += [folder for folder in folders if folder not in sys.path and os.path.isdir(folder)]
    sys.path[0] = sys.argv[0] = os.path.abspath(sys.argv[0])  # the calls work elsewhere
    folder = _WorkFolder(os.path.abspath(FOLDER))
    functions: dict[int, Any] = {}
    with open("results", "wb") as results:
        for number, arguments in calls:
            _run(functions, bodies, number, arguments, results, data, folder)
    return 0


class _WorkFolder:
    """The working folder of the next call. It is empty, also if a call has written there, removed it, or left it."""

    def __init__(self, above: str) -> None:
        self._above = above
        self._number = 0
        self._path = ""

    def enter(self) -> None:
        if not self._is_clean():
            self._number += 1
            self._path = os.path.join(self._above, str(self._number))
            os.makedirs(self._path)
            os.chdir(self._path)
        os.environ["PWD"] = self._path

    def _is_clean(self) -> bool:
        """Whether the folder of the last call can be used again: a new one costs more than a short call."""
        try:
            return os.path.samefile(self._path, ".") and not os.listdir(self._path)
        except OSError:
            return False


def _end(code: int) -> None:
    """End this process. Threads and processes that calls have left do not hold it: the results are written."""
    children = sys.modules.get("multiprocessing")
    main = threading.main_thread()
    threads = [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]
    if threads or (children and children.active_children()):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a call may have closed it
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _run(
    functions: dict[int, Any],
    bodies: list[bytes],
    number: int,
    arguments: bytes,
    results: BinaryIO,
    data: bool,
    folder: _WorkFolder,
) -> None:
    """Run one call in `folder` and write its frame. `data`: the outcome is plain data."""
    begun, imports = time.perf_counter(), _Imports()
    is_first = number not in functions
    try:
        folder.enter()
        if is_first:
            functions[number] = pickle.loads(bodies[number])  # noqa: S301
        positional, named = pickle.loads(arguments)  # noqa: S301
        begun = time.perf_counter()  # without the imports of the first call
        with imports.timed() if is_first else contextlib.nullcontext():
            kind, outcome = RETURNED, functions[number](*positional, **named)
    except BaseException as error:  # also SystemExit: it is the outcome of this call, not of the job
        kind, outcome = RAISED, (error, traceback.format_exc())
    seconds = time.perf_counter() - begun - imports.seconds
    if data and kind == RAISED:
        outcome = (type(outcome[0]).__name__ + ": " + str(outcome[0]), outcome[1])
    kind, body = _pickled(kind, outcome, _dump_plain if data else None)
    results.write(HEADER.pack(kind, seconds, len(body)) + body)
    results.flush()


class _Imports:
    """The seconds of imports in the body of a function. Later calls of the job find the modules imported."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._thread = threading.get_ident()
        self._inside = False

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Time the imports of this thread. A function may replace the import itself, and keeps its replacement."""
        before = builtins.__import__, importlib.import_module
        ours = self._timed(before[0]), self._timed(before[1])
        builtins.__import__, importlib.import_module = ours
        try:
            yield
        finally:
            if builtins.__import__ is ours[0]:
                builtins.__import__ = before[0]
            if importlib.import_module is ours[1]:
                importlib.import_module = before[1]

    def _timed(self, load: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*positional: Any, **named: Any) -> Any:
            if self._inside or threading.get_ident() != self._thread:
                return load(*positional, **named)
            begun, self._inside = time.perf_counter(), True
            try:
                return load(*positional, **named)
            finally:
                self.seconds += time.perf_counter() - begun
                self._inside = False

        return timed


class _PlainPickler(pickle.Pickler):
    """Writes plain data only. Arrays are written as NumPy writes them to files without pickle."""

    def persistent_id(self, thing: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None or not (type(thing) is numpy.ndarray or isinstance(thing, numpy.generic)):
            return None
        file = io.BytesIO()
        numpy.lib.format.write_array(file, numpy.asarray(thing), allow_pickle=False)
        return isinstance(thing, numpy.generic), file.getvalue()

    def reducer_override(self, thing: Any) -> Any:
        raise pickle.PicklingError("a value of type " + type(thing).__name__ + " is no plain data")


def _dump_plain(outcome: Any) -> bytes:
    file = io.BytesIO()
    _PlainPickler(file, 4).dump(outcome)
    return file.getvalue()


def _pickled(kind: int, outcome: Any, dump: Callable[[Any], bytes] | None) -> tuple[int, bytes]:
    import cloudpickle

    try:
        body = (dump or cloudpickle.dumps)(outcome)
        if dump is None and kind == RAISED:
            pickle.loads(body)  # noqa: S301  # exceptions with a constructor of their own often come back broken
        return kind, body
    except Exception as trouble:
        if kind == RAISED:
            error, text = outcome
            return UNUSABLE, pickle.dumps((repr(error) + " was raised, and cannot be pickled", text))
        message = "the result, of type " + type(outcome).__name__ + ", cannot be pickled: " + str(trouble)
        return UNUSABLE, pickle.dumps((message, traceback.format_exc()))


if __name__ == "__main__":
    _end(main())
