"""Writes the record of a running server."""

from __future__ import annotations

import logging
import os
import signal as signals
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.server.recording.lines import (
    Ended,
    Header,
    Input,
    Inputs,
    KnownSecret,
    Line,
    Message,
    Outcome,
    Signal,
    line_of,
)
from pilotage.server.recording.redaction import Redaction
from pilotage.server.recording.tape import Answer, Tape, answer_line

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
        """Write a line at once: what was written outlives the death of the process."""
        if not self.open:
            return
        text = line_of(line)
        self._left -= len(text)
        if self._left < 0 and not isinstance(line, Ended):
            log.warning("the recording has ended: %s has reached its limit; the server goes on", self._path)
            at = 0.0 if isinstance(line, Header) else line.at
            text = line_of(Ended(at, 0, {}, "it had reached its limit"))
            self.open = False
        try:
            os.write(self._handle, text)
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
        self._late: list[Input] = []
        """Inputs that came when a timer was due already."""

    def post(self, given: Input) -> None:
        """Hand an input in. Any thread may call it, and signal handlers."""
        self._mailbox.put(given)

    def on_signal(self, signal: int, callback: Callable[[], object]) -> None:
        super().on_signal(signal, callback)
        signals.signal(signal, lambda number, _frame: self.post(Signal(number)))

    def next_inputs(self, now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        while True:
            real = self._real()
            if due is not None and real >= due:
                return due, ()
            inputs = self._waiting(None if due is None else due - real)
            at = max(now, self._real())
            if inputs and (due is None or at < due):
                shown = [self._redaction.of_input(given) for given in inputs]
                self._file.write(Inputs(at, self.changes(), shown))
                return at, [self._hand_in(given) for given in inputs]
            self._late = inputs

    def _waiting(self, seconds: float | None) -> list[Input]:
        inputs, self._late = self._late, []
        try:
            while True:
                block = not inputs
                inputs.append(self._mailbox.get(block, seconds if block else None))
        except Empty:
            return inputs

    def _outcome(self, call: str, number: int, make: Callable[[], Outcome]) -> Outcome:
        outcome, last = make(), self._last.get(call)
        if last is None or (outcome.value, outcome.error) != (last.value, last.error):
            self._last[call] = outcome
            self._file.write(outcome)
        return outcome

    def _await_outcome(self, make: Callable[[], Outcome]) -> None:
        self.post(make())

    def answered(self, message: Message, answer: Answer) -> None:
        body = self._redaction.of_bytes(answer.body)
        self._file.write(answer_line(self.clock(), message, answer.status, body))

    def ended(self, tables: Callable[[], dict[str, str]]) -> None:
        if self._file.open:
            self._file.write(Ended(self.clock(), self.changes(), tables()))
        self._file.close()
