"""The tape of a server: its inputs from outside, and its answers. It is recorded, or played by a replay."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilotage.core.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    PilotageError,
    Unreachable,
)
from pilotage.outside.batch.submission import SubmissionFailed, SubmissionRefusal
from pilotage.server.recording.lines import (
    Answered,
    CallOutcome,
    Input,
    ListeningEnded,
    ReceivedMessage,
    ReceivedSignal,
)
from pilotage.server.recording.turns import ThreadCall, present_call

Value = TypeVar("Value")

_TOLD = (Unreachable, NotAuthenticated, Forbidden, NotFound, Conflict, InvalidInput)
"""Failures of calls whose class decides about the next step."""
_KINDS: dict[str, type[PilotageError]] = {kind.__name__: kind for kind in _TOLD}

TIMED = frozenset({"/metrics"})
"""Addresses whose answers have durations by the clock of the machine. They decide nothing."""

BEGIN_OF_BODY = 400
"""Bytes of an answer that a record keeps for people."""


class WholeAnswer(NamedTuple):
    """The answer to a message."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Tape(ABC):
    """Implements `InputSource`. Used in the thread of the decisions, where nothing else is said."""

    live: bool
    """Whether calls leave the process. A replay makes none."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        """The present instant of the decisions."""
        self.changes: Callable[[], int] = lambda: 0
        """The rows that the server has changed since its start."""
        self.serve: Callable[[ReceivedMessage], object] = lambda message: None
        self.listening_ended: Callable[[], object] = lambda: None
        self._on_signal: dict[int, Callable[[], object]] = {}
        self._calls: dict[str, int] = {}
        self._left: dict[tuple[str, int], ThreadCall] = {}
        """The threads that wait for the outcome of a call."""
        self._last: dict[str, CallOutcome] = {}

    @abstractmethod
    def next_inputs(self, now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        """The next inputs: see `InputSource`."""

    @abstractmethod
    def _outcome(self, call: str, number: int, make: Callable[[], CallOutcome]) -> CallOutcome:
        """The outcome of a call: that of `make`, or the one of the record."""

    @abstractmethod
    def _await_outcome(self, make: Callable[[], CallOutcome]) -> None:
        """Called in a thread: hand the outcome in later, from `make` or from the record."""

    @abstractmethod
    def answered(self, message: ReceivedMessage, answer: WholeAnswer) -> None:
        """The server has answered a message."""

    @abstractmethod
    def ended(self, tables: Callable[[], dict[str, str]]) -> None:
        """The server has stopped. `tables` makes the digests of its tables."""

    def on_signal(self, signal: int, callback: Callable[[], object]) -> None:
        self._on_signal[signal] = callback

    def ask(self, call: str, kind: Any, make: Callable[[], Value]) -> Value:
        """The result of a call that leaves the process. It is of type `kind`, as msgspec reads it.

        Errors that batch systems and catalogues raise are raised again.
        """
        number = self._calls[call] = self._calls.get(call, 0) + 1

        def made() -> CallOutcome:
            return self._made(call, number, make)

        thread = present_call()
        if thread is None:
            outcome = self._outcome(call, number, made)
        else:
            self._left[call, number] = thread
            outcome = thread.leave(lambda: self._await_outcome(made))
        if outcome.error:
            raise _error(outcome)
        value: Value = msgspec.json.decode(outcome.value, type=kind)
        return value

    def _made(self, call: str, number: int, make: Callable[[], Value]) -> CallOutcome:
        try:
            made, error = msgspec.json.encode(make()), ""
        except SubmissionFailed as failed:
            made, error = msgspec.json.encode([failed.refusal, failed.reason]), "SubmissionFailed"
        except OSError as failed:
            made, error = msgspec.json.encode([failed.errno, failed.strerror]), "OSError"
        except _TOLD as failed:
            made, error = msgspec.json.encode([failed.message, failed.hint]), _kind_of(failed).__name__
        except Exception as failed:
            made, error = msgspec.json.encode([str(failed), ""]), "PilotageError"
        return CallOutcome(self.clock(), call, number, msgspec.Raw(made), error)

    def _hand_in(self, given: Input) -> Callable[[], object]:
        match given:
            case ReceivedMessage():
                return lambda: self.serve(given)
            case ReceivedSignal():
                return lambda: self._on_signal[given.number]()
            case ListeningEnded():
                return lambda: self.listening_ended()
            case CallOutcome():
                return lambda: self._left.pop((given.call, given.number)).go_on(given)

    def abandon(self) -> None:
        """End the threads that wait for an outcome."""
        while self._left:
            self._left.popitem()[1].go_on()


def _error(outcome: CallOutcome) -> Exception:
    first, second = msgspec.json.decode(outcome.value, type=tuple[Any, Any])
    match outcome.error:
        case "SubmissionFailed":
            return SubmissionFailed(SubmissionRefusal(first), second)
        case "OSError":
            return OSError(first, second)
        case _:
            return _KINDS.get(outcome.error, PilotageError)(first, hint=second)


def _kind_of(failed: PilotageError) -> type[PilotageError]:
    """The class of a failure as the record names it: a class of an adapter's own counts as its base."""
    return next(kind for kind in _TOLD if isinstance(failed, kind))


def answer_line(at: float, message: ReceivedMessage, status: int, body: bytes) -> Answered:
    """`body`: without secrets."""
    if message.path in TIMED:
        body = b""
    digest = hashlib.sha256(body).hexdigest()[:32]
    begin = body[:BEGIN_OF_BODY].decode(errors="replace")
    return Answered(at, message.number, status, len(body), digest, begin)
