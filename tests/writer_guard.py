"""Fails every change of the pool's state that is not made by a request of the writer.

`install` patches the classes, so production code pays nothing. The services' and the store's tests run with it
(`active`), and so does the server of the acceptance tests: this file, run as a program, is `pilotage` with the guard,
and writes `VIOLATION` and a stack to its log.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from pilotage.core.queues.index import QueueIndex
from pilotage.services.pool.job_caches import JobCaches
from pilotage.services.pool.known_ces import KnownCes
from pilotage.services.pool.known_pilots import KnownPilots
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.offer_state import OfferState
from pilotage.services.pool.provisioning import Provisioning
from pilotage.services.pool.server_state import ServerState
from pilotage.services.pool.share_state import ShareState
from pilotage.services.pool.state import Pool
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.store.writer.writer import Writer

VIOLATION = "the pool was changed outside of the writer"
MUTATORS = ("__setitem__", "__delitem__", "pop", "popitem", "clear", "update", "setdefault", "move_to_end")
SET_MUTATORS = ("add", "discard", "remove", "pop", "clear", "update", "difference_update")
PARTS = (ServerState, TaskQueues, OfferState, KnownPilots, JobCaches, ShareState, KnownCes, Provisioning)
"""The classes of the pool's fields that are assigned to. `test_writer_guard` compares them with the pool's."""
INDEX_MUTATORS = (
    *("add_queue", "remove_queue", "clear", "reset_queue", "copy_waiting", "add_jobs", "load_jobs"),
    *("return_job", "remove_job", "restore_lost_job", "apply_peer_delta", "apply_priorities"),
)

_request = threading.local()
_log = False
_installed = False
_active = False


def check() -> None:
    if not _active:
        return
    if getattr(_request, "depth", 0):
        return
    if _log:
        print(VIOLATION, "".join(traceback.format_stack()), file=sys.stderr, flush=True)
    raise AssertionError(VIOLATION)


@contextlib.contextmanager
def active() -> Iterator[None]:
    """Guard the pools of one test; other tests of the process may drive an index without a writer."""
    global _active
    install()
    _active = True
    try:
        yield
    finally:
        _active = False


@contextlib.contextmanager
def as_writer() -> Iterator[None]:
    """For a test that takes the writer's place."""
    _request.depth = getattr(_request, "depth", 0) + 1
    try:
        yield
    finally:
        _request.depth -= 1


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(*arguments: Any, **more: Any) -> Any:
        check()
        return method(*arguments, **more)

    return checked


def _in_request(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def carried_out(*arguments: Any, **more: Any) -> Any:
        with as_writer():
            return method(*arguments, **more)

    return carried_out


def _guarded(base: type[Any], mutators: tuple[str, ...]) -> type[Any]:
    methods = {name: _checked(getattr(base, name)) for name in mutators if hasattr(base, name)}
    return type(f"Guarded{base.__name__}", (base,), methods)


GuardedDict, GuardedSet = _guarded(dict, MUTATORS), _guarded(set, SET_MUTATORS)


def _wrapped(value: object) -> object:
    if type(value) is dict:
        return GuardedDict(value)
    if type(value) is set:
        return GuardedSet(value)
    return value


def _checked_assign(assign: Callable[[Any, str, Any], None]) -> Callable[[Any, str, Any], None]:
    def checked_assign(state: object, name: str, value: object) -> None:
        check()
        assign(state, name, _wrapped(value))

    return checked_assign


def install(*, log: bool = False) -> None:
    """Patch the classes, once per process."""
    global _installed, _log
    if _installed:
        return
    _installed, _log = True, log
    for state in (Pool, *PARTS):
        state.__setattr__ = _checked_assign(state.__setattr__)  # type: ignore[method-assign]
    for name in MUTATORS:
        setattr(LruCache, name, _checked(getattr(LruCache, name)))
    for name in INDEX_MUTATORS:
        _patch(QueueIndex, name, _checked)
    for name in ("_run_group", "_undo_memory"):
        _patch(Writer, name, _in_request)


def _patch(owner: type[Any], name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, wrap(vars(owner)[name]))


def _send_compiled_pilots() -> None:
    """Send pilots of batch systems the program that local ones get: the nodes of the tests have this Python.

    A pilot that compiles its modules needs 0.32 s of processor time to start, and 0.19 s without. A server that runs
    without this guard sends the sources alone.
    """
    from pilotage.outside.batch.script import pilot_program
    from pilotage.server.duties import ce

    compiled = functools.partial(pilot_program, compiled=True)
    setattr(ce, "pilot_program", lambda **_: compiled())  # noqa: B010 - mypy knows no other way to replace it


if __name__ == "__main__":
    install(log=True)
    _active = True
    _send_compiled_pilots()
    from pilotage.main import main

    sys.exit(main())
