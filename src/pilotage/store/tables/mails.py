"""Mails that submissions have asked for. The server that deletes a row sends its mail, so it is sent at most once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.ids import SubmissionId
from pilotage.store.engine.bulk_statements import RowWriter, insert
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.rows import columns


class MailKey(NamedTuple):
    submission: SubmissionId
    event: str


class MailRow(NamedTuple):
    submission: SubmissionId
    event: str
    recipient: str
    tries: int = 0
    not_before: float = 0.0

    @property
    def key(self) -> MailKey:
        return MailKey(self.submission, self.event)


_COLUMNS = columns(MailRow, submission="submission_id")
add = RowWriter[MailRow](insert("mails", _COLUMNS.split(", ")))


def pending(connection: Connection, now: float, after: MailKey, most: int) -> list[MailRow]:
    """Mails behind `after` that may be tried, in their order, at most `most`."""
    sql = (
        f"SELECT {_COLUMNS} FROM mails WHERE (submission_id, event) > (?, ?) AND not_before <= ?"
        " ORDER BY submission_id, event LIMIT ?"
    )
    return [MailRow(*row) for row in connection.execute(sql, (*after, now, most))]


def any_wait(connection: Connection, now: float) -> bool:
    """Whether a mail waits for a later try."""
    return (
        connection.execute("SELECT 1 FROM mails WHERE not_before > ? LIMIT 1", (now,)).fetchone() is not None
    )


def take(connection: Connection, keys: Sequence[MailKey]) -> list[MailRow]:
    """Delete these mails, and return the rows that existed: no other server sends them."""
    taken = []
    for key in keys:
        sql = f"DELETE FROM mails WHERE submission_id = ? AND event = ? RETURNING {_COLUMNS}"
        taken += [MailRow(*row) for row in connection.execute(sql, key).fetchall()]
    return taken


def delete_of_submissions(connection: Connection, submissions: Sequence[int]) -> None:
    """Delete the mails of deleted submissions."""
    them, value = in_list(connection, "submission_id", submissions)
    connection.execute(f"DELETE FROM mails WHERE {them}", (value,))
