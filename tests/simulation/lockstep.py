"""Programs that block, in virtual time. Each runs in a thread of its own, in turns with the loop.

Only one of all threads runs at any time, and the loop decides which. So the order of events depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore, Thread
from typing import Any

from tests.simulation.processes import ProcessDied


class LockstepProgram:
    """One run of a program. It stands still while it waits for something, and may be killed there."""

    def __init__(self, program: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """`ended`: called in the loop with the error of the program, unless it was killed."""
        self._program, self._on_end = program, ended
        self._turn, self._back = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._run, daemon=True)
        self._begin: Callable[[], object] | None = None
        self._given: Any = None
        self._killed = False
        self._ended = False
        self._error: BaseException | None = None

    # In the thread of the program

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self._killed:
                self._program()
        except BaseException as error:
            self._error = error
        self._ended = True
        self._back.release()

    def wait_for(self, begin: Callable[[], object]) -> Any:
        """Wait for what the loop gives. `begin` is called in the loop, and must have it call `go_on` later."""
        self._begin = begin
        self._back.release()
        self._turn.acquire()
        if self._killed:
            raise ProcessDied
        return self._given

    # In the loop

    def start(self) -> None:
        self._thread.start()
        self.go_on()

    def go_on(self, given: Any = None) -> None:
        """Let the program go on, with what it waited for, until it waits again or ends."""
        if self._ended:
            return
        self._given = given
        self._turn.release()
        self._back.acquire()
        if self._ended:
            self._thread.join()
            if not self._killed:
                self._on_end(self._error)
        elif (begin := self._begin) is not None:
            self._begin = None
            begin()

    def kill(self) -> None:
        """End it at once, where it waits."""
        if not self._ended:
            self._killed = True
            self.go_on()
