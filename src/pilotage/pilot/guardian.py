"""The guardian: parent of the pilot proper, and the one that sweeps up after it, however it ends.

It is forked before the pilot reads its secret or opens a connection, so it holds nothing worth stealing and stays
small. As a child subreaper it inherits whatever the pilot leaves behind.
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
"""The pilot proper was killed; 70 as in sysexits.h."""

_SWEEP_SECONDS = 20.0
_PATIENCE = 28
"""A pilot that was told to leave and has not by then is frozen or stuck: it is killed and swept up after."""


def run_guarded(folder: str, pilot: Callable[[], int]) -> NoReturn:
    """Run `pilot` in a child, then kill what it left, remove `folder` and exit as it did.

    Does not return in either process.
    """
    become_subreaper()
    # Blocked over the fork, so that no signal falls between the fork and the handlers of either process.
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
    # SIGTERM, not SIGKILL: without its guardian the pilot can still end its payloads and tidy up itself.
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
        if os.getppid() != guardian:  # nobody will sweep up after us
            kill_descendants(os.getpid(), set(), _SWEEP_SECONDS)
            remove_tree(folder)


def _reap_until_exit(child: int) -> int:
    """Reap whatever ends until the pilot proper does; its exit code."""
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
