"""Writes the record of a running server."""

from __future__ import annotations

import errno
import logging
import os
import signal as signals
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.recording.lines import (
    CallOutcome,
    Ended,
    Input,
    Inputs,
    KnownSecret,
    Line,
    ReceivedMessage,
    ReceivedSignal,
    RecordBegin,
    line_of,
)
from pilotage.server.recording.redaction import Redaction
from pilotage.server.recording.tape import Tape, WholeAnswer, answer_line

log = logging.getLogger(__name__)


class RecordFile:
    """The file of a record, for its owner only. It ends at a limit or at a failed write; the server goes on."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._left = path, limit
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise Conflict(f"{path} exists already", hint="a record goes to a new file") from None
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written: {error.strerror}") from None
        self.open = True

    def write(self, line: Line) -> None:
        """Write a line at once, so that it outlives the death of the process."""
        if not self.open:
            return
        text = line_of(line)
        self._left -= len(text)
        if self._left < 0 and not isinstance(line, Ended):
            log.warning("the recording has ended: %s has reached its limit; the server goes on", self._path)
            at = 0.0 if isinstance(line, RecordBegin) else line.at
            text = line_of(Ended(at, 0, {}, "it had reached its limit"))
            self.open = False
        try:
            if os.write(self._handle, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log.warning("the recording has ended: %s: %s; the server goes on", self._path, error.strerror)
            self.open = False

    def close(self) -> None:
        self.open = False
        os.close(self._handle)


class Recorder(Tape):
    """The tape of a live server."""

    live = True

    def __init__(self, file: RecordFile, redaction: Redaction, real: Callable[[], float]) -> None:
        """`real`: the instant by the clock of this machine, which must never go back."""
        super().__init__()
        self._file = file
        self._redaction = redaction
        self._real = real
        redaction.known_secret = lambda digest, shown: file.write(KnownSecret(self.clock(), digest, shown))
        self._mailbox: SimpleQueue[Input] = SimpleQueue()
        self._timer_first = False

    def post(self, given: Input) -> None:
        """Hand an input in. Any thread may call it, and signal handlers."""
        self._mailbox.put(given)

    def on_signal(self, signal: int, callback: Callable[[], object]) -> None:
        super().on_signal(signal, callback)
        signals.signal(signal, lambda number, _frame: self.post(ReceivedSignal(number)))

    def next_inputs(self, now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        while True:
            real = self._real()
            if due is not None and real >= due and self._timer_first:
                self._timer_first = False
                return due, ()
            left = None if due is None else max(0.0, due - real)
            if inputs := self._waiting(left):
                at = max(now, self._real())
                if due is not None and at >= due:
                    # The decisions are behind. So that neither starves, the timer comes after these inputs.
                    at, self._timer_first = now, True
                self._file.write(Inputs(at, self.changes(), [self._shown(given) for given in inputs]))
                return at, [self._hand_in(given) for given in inputs]
            if left == 0.0:
                assert due is not None
                return due, ()

    def _shown(self, given: Input) -> Input:
        """An input as the record has it."""
        if not isinstance(given, CallOutcome):
            return self._redaction.of_input(given)
        if self._is_repeated(given):
            return CallOutcome(given.at, given.call, given.number, msgspec.Raw(b"null"), repeated=True)
        return self._redaction.of_outcome(given)

    def _is_repeated(self, outcome: CallOutcome) -> bool:
        last = self._last.get(outcome.call)
        self._last[outcome.call] = outcome
        return last is not None and (outcome.value, outcome.error) == (last.value, last.error)

    def _waiting(self, seconds: float | None) -> list[Input]:
        """The inputs that wait. If there are none, the first one that comes within as many seconds; None: for ever."""
        inputs: list[Input] = []
        try:
            while True:
                block = not inputs
                inputs.append(self._mailbox.get(block, seconds if block else None))
        except Empty:
            return inputs

    def _outcome(self, call: str, number: int, make: Callable[[], CallOutcome]) -> CallOutcome:
        outcome = make()
        if not self._is_repeated(outcome):
            self._file.write(self._redaction.of_outcome(outcome))
        return outcome

    def _await_outcome(self, make: Callable[[], CallOutcome]) -> None:
        self.post(make())

    def answered(self, message: ReceivedMessage, answer: WholeAnswer) -> None:
        body = self._redaction.of_bytes(answer.body)
        self._file.write(answer_line(self.clock(), message, answer.status, body))

    def ended(self, tables: Callable[[], dict[str, str]]) -> None:
        if self._file.open:
            self._file.write(Ended(self.clock(), self.changes(), tables()))
        self._file.close()
