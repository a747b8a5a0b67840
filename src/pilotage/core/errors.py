"""The one error tree.

    PilotageError
    ├── InvalidInput         the input is wrong: the field, the line, a correct value
    │   ├── Mistakes         several such errors, reported together
    │   ├── TooLarge         a limit of size or count is exceeded
    │   │   └── HeaderTooLarge   of the header of a request
    │   ├── TooSlow          a request did not come in the time that it has
    │   ├── DatabaseDamaged  the database has to be replaced by a backup
    │   └── IncompatibleVersion  a pilot or client of another protocol
    ├── NotAuthenticated     no token, an expired one, one of another server
    ├── Forbidden            the identity is known and may not do this
    ├── NotFound             no such job, pilot, queue (also for objects the caller may not see)
    ├── Conflict             the state does not allow it (a move outside the table, a second server)
    │   ├── IllegalMove
    │   ├── CursorExpired    changes after a cursor of the feed may be gone
    │   └── Superseded       a message of an old epoch or of another incarnation
    ├── Overloaded           come again later: a bounded queue is full
    │   └── DiskFull         a disk of the server or of its database has no room
    └── Unreachable          the server or a batch system does not answer

Lower floors raise these; routes alone know HTTP, the command line alone knows exit codes.
`message` states the problem, `hint` how to solve it.
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_TEXT = 16_000
"""Characters of a message or hint. They repeat the input, which may have millions."""
LONGEST_LINE = 300
"""Characters shown of one mistake among several."""


def _cut(text: str, most: int = LONGEST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class PilotageError(Exception):
    """Base of all errors meant for a person. `code` is stable and machine-readable."""

    code = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = _cut(message)
        self.hint = _cut(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(PilotageError):
    """The input is invalid. `line` and `column` count from 1."""

    code = "invalid-input"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column
        self.field = None if field is None else _cut(field)
        self.file = ""
        """The file that has the line, if the error is of a file."""

    @property
    def place(self) -> str:
        """`FILE: line 3, column 4: `, as far as known; a message follows."""
        file = f"{self.file}: " if self.file else ""
        if self.line is None:
            return file
        column = "" if self.column is None else f", column {self.column}"
        return f"{file}line {self.line}{column}: "

    def __str__(self) -> str:
        return f"{self.place}{super().__str__()}"


MISTAKES_TOLD = 50


class Mistakes(InvalidInput):
    """Two or more errors of one text. `all` are the single errors; the message has a line for each."""

    def __init__(self, errors: Iterable[InvalidInput]) -> None:
        self.all = tuple(errors)
        lines = [_cut(str(error), LONGEST_LINE) for error in self.all[:MISTAKES_TOLD]]
        if len(self.all) > MISTAKES_TOLD:
            lines.append(f"... and {len(self.all) - MISTAKES_TOLD:,} more")
        super().__init__("\n  ".join([f"{len(self.all):,} mistakes:", *lines]))


def check_mistakes(errors: Iterable[InvalidInput]) -> None:
    """Raise the error, or several as one; return if there is none."""
    mistakes = tuple(errors)
    if len(mistakes) > 1:
        raise Mistakes(mistakes)
    if mistakes:
        raise mistakes[0]


class TooLarge(InvalidInput):
    code = "too-large"


class HeaderTooLarge(TooLarge):
    code = "header-too-large"


class TooSlow(InvalidInput):
    code = "too-slow"


class DatabaseDamaged(InvalidInput):
    code = "database-damaged"


class IncompatibleVersion(InvalidInput):
    code = "incompatible-version"


class NotAuthenticated(PilotageError):
    code = "not-authenticated"


class Forbidden(PilotageError):
    code = "forbidden"


class NotFound(PilotageError):
    code = "not-found"


class Conflict(PilotageError):
    code = "conflict"


class IllegalMove(Conflict):
    code = "illegal-move"


class CursorExpired(Conflict):
    """Changes after a cursor of the change feed may be deleted, or belong to another state of the database."""

    code = "cursor-expired"


class Superseded(Conflict):
    code = "superseded"


class Overloaded(PilotageError):
    """The caller may try again after `retry_after` seconds; nothing was changed."""

    code = "overloaded"

    def __init__(self, message: str, *, hint: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class DiskFull(Overloaded):
    code = "disk-full"


class Unreachable(PilotageError):
    code = "unreachable"
