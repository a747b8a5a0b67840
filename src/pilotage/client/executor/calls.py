"""A call, and the future of its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pilotage.client.executor.pickling import PickledFunction

T = TypeVar("T")


class CallFuture(Future[T]):
    """The future of a call. It can be cancelled until it has its result."""

    def __init__(
        self,
        why: Callable[[int], str],
        cancelled: Callable[[CallFuture[Any]], None],
        *,
        keeps_frame: bool = False,
    ) -> None:
        super().__init__()
        self.keeps_frame = keeps_frame
        """Its result is the frame of the result's file: `map` reads one after the other."""
        self.job: int | None = None
        """The job with this call and others; None: it was not sent yet."""
        self.started = False
        """Whether its job has been told as running."""
        self._why = why
        self._tell_cancelled = cancelled
        self._cancelling = threading.Lock()

    def why(self) -> str:
        """Why the call waits, in one sentence, or where it is."""
        if self.cancelled():
            return "it was cancelled"
        if self.done():
            return "it has ended"
        return self._why(self.job) if self.job else "its job was not submitted yet"

    def running(self) -> bool:
        """Whether its job runs. Other calls of the job may come first."""
        return self.started and not self.done()

    def cancel(self) -> bool:
        """Cancel the call, unless it has its result. Its job is killed if all calls of the job are cancelled."""
        with self._cancelling:
            if self.cancelled():
                return True
            if not super().cancel():
                return False
            self.set_running_or_notify_cancel()
        self._tell_cancelled(self)
        return True

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """Apply an outcome. The first one counts, and a cancelled call takes none."""
        with suppress(InvalidStateError):
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)


@dataclass(eq=False, slots=True)
class PendingCall:
    """A call with all that its job needs."""

    function: PickledFunction | None
    """None: it was sent by an earlier process."""
    arguments: bytes
    key: str
    """Digest by which a later process finds it; "" if none will."""
    chunk: int
    """How many calls its job has; 0: the measured durations decide."""
    future: CallFuture[Any] = field(repr=False)
    kind: str = ""
    """Calls of one kind have durations in common."""
