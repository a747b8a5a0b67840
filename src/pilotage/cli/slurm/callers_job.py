"""A job that ends with the process that submitted it, in whichever way that ends: the job of an `srun`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

from pilotage.cli.session import LONG_PATIENCE

_ENDS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_ENDED: Final = b"ended\n"
_GUARD: Final = """\
import sys

words = sys.stdin.read().split()
if len(words) == 1:
    from pilotage.cli.slurm.run import run

    run("scancel", words)
"""
"""A process in a session of its own, which no signal to the caller reaches. It reads the number, and then `ended`."""


@contextmanager
def ends_with_caller(submit: Callable[[], int], cancel: Callable[[int], object]) -> Iterator[int]:
    """Submit a job; its number. A signal that ends this process cancels it, and a guard does so after SIGKILL."""
    environment = os.environ | {"PILOTAGE_PATIENCE": f"{LONG_PATIENCE:.0f}s"}
    guard = subprocess.Popen(
        [sys.executable, "-c", _GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )
    assert guard.stdin is not None
    # No signal between the submission and the words to the guard.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        number = submit()
        guard.stdin.write(b"%d\n" % number)
        guard.stdin.flush()
        for ending in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(ending) is not signal.SIG_IGN:  # as under nohup
                signal.signal(ending, _leave)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield number
        except (KeyboardInterrupt, SystemExit):
            cancel(number)
            guard.stdin.write(_ENDED)
            raise
        guard.stdin.write(_ENDED)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        guard.stdin.close()
    guard.wait()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
