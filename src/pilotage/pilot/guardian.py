"""The guardian: the parent process of the pilot, which cleans up after it however it ends.

The pilot is forked from it before the secret is read or a connection is opened, so the guardian holds no secret and
stays small. As a child subreaper it becomes the parent of every process that the pilot leaves behind, and kills it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable, NoReturn

from .process_tree import kill_descendants
from .removal import remove_tree
from .system import LEAVE_SIGNALS, become_subreaper, die_with_parent, forbid_dumps, kill

CRASHED = 70
"""Exit code if the pilot was killed or crashed: EX_SOFTWARE of sysexits.h."""

_SWEEP_SECONDS = 20.0
_PATIENCE = 28
"""Seconds after a forwarded signal at which a pilot that is still there is killed."""


def run_guarded(folder: str, pilot: Callable[[], int]) -> NoReturn:
    """Run `pilot` in a child. When it ends, kill its descendants, remove `folder` and exit with its exit code.

    Does not return in either process.
    """
    become_subreaper()
    # Signals stay blocked during the fork, so that none arrives before both processes have their handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, LEAVE_SIGNALS)
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        _exit_with(_run_pilot(guardian, folder, pilot))
    signal.signal(signal.SIGALRM, lambda number, frame: kill(child, signal.SIGKILL))

    def forward(number: int, frame: Any) -> None:
        kill(child, number)
        signal.alarm(_PATIENCE)

    for number in LEAVE_SIGNALS:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEAVE_SIGNALS)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    code = _reap_until_exit(child)
    kill_descendants(os.getpid(), set(), _SWEEP_SECONDS)
    remove_tree(folder)
    _exit_with(code)


def _run_pilot(guardian: int, folder: str, pilot: Callable[[], int]) -> int:
    # SIGTERM, not SIGKILL: without its guardian the pilot can still end its payloads and clean up itself.
    die_with_parent(signal.SIGTERM)
    forbid_dumps()
    become_subreaper()
    if os.getppid() != guardian:
        return CRASHED
    try:
        return pilot()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return CRASHED
    finally:
        if os.getppid() != guardian:  # the guardian has ended: clean up here
            kill_descendants(os.getpid(), set(), _SWEEP_SECONDS)
            remove_tree(folder)


def _reap_until_exit(child: int) -> int:
    """Reap ended children until the pilot itself has ended; returns its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else CRASHED
            if os.WIFSIGNALED(status):
                print(f"pilot killed by signal {os.WTERMSIG(status)}", file=sys.stderr, flush=True)
            return code


def _exit_with(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
