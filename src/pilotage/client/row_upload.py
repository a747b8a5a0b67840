"""Submission of parameter rows in chunks, resumable after an interruption.

At most three chunks are in memory: one being sent, one waiting, one being filled.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from pilotage import wire
from pilotage.client.transport import Transport
from pilotage.core.errors import Conflict, InvalidInput, PilotageError
from pilotage.core.jobs.description import Scalar
from pilotage.core.jobs.lengths import MAX_VALUE_CHARS
from pilotage.core.jobs.per_job_inputs import is_file_column
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.submissions import ChunkSummary, OpenRequest, OpenSubmission, SubmitResponse

PATIENCE = 600.0
"""Seconds for which a chunk is retried while the server restarts or has no space."""

Progress = Callable[[int, int | None], None]
"""Called with (rows stored, total rows or None)."""

Row = Sequence[Scalar]
GivenRow = Row | Scalar
"""A row as callers give it: with one name it may be the value alone."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RowChunk:
    """A range of rows; `body` is their JSON list without spaces."""

    first: int
    count: int
    body: bytes


def send_rows(
    transport: Transport, request: OpenRequest, rows: Iterable[GivenRow], progress: Progress | None = None
) -> SubmitResponse:
    """Open the submission of `request` or resume the one with its key, send the rows, and close it.

    Raises Conflict if stored rows differ from the given rows. The hint of every error has the number of stored rows
    and the key to resume with.
    """
    opened = transport.call(wire.submissions.OPEN_SUBMISSION, request, patience=PATIENCE)
    sender = _RowSender(transport, request, opened, progress)
    try:
        return sender.run(check_rows(rows, request.names))
    except PilotageError as error:
        error.hint = f"{error.hint}; {sender.resume_hint()}" if error.hint else sender.resume_hint()
        raise


class _RowSender:
    """Sends the rows of one submission."""

    def __init__(
        self, transport: Transport, request: OpenRequest, opened: OpenSubmission, progress: Progress | None
    ) -> None:
        self._transport = transport
        self._key = request.key
        self._opened = opened
        self._expected = request.expected
        self._progress = progress
        self._stored = opened.count
        self._max_rows = wire.submissions.max_rows_per_chunk(sum(map(is_file_column, request.names)))

    def resume_hint(self) -> str:
        return (
            f"the server has {plural(self._stored, 'row')}, as submission {self._opened.submission}; repeat all rows"
            f" with the key {self._key} to resume"
        )

    def run(self, rows: Iterator[Row]) -> SubmitResponse:
        self._report_progress()
        compared = self._skip_stored_rows(rows)
        if not self._opened.open:
            if next(rows, None) is not None:
                raise Conflict(f"submission {self._opened.submission} is closed, and there are more rows")
            return self._close(compared)
        self._send_all(enumerate(split_into_chunks(rows, compared, self._max_rows), self._opened.chunks))
        return self._close(self._stored)

    def _send_all(self, chunks: Iterator[tuple[int, RowChunk]]) -> None:
        """Send the chunks in order; encode the next chunk while one is sent."""
        under_way: Future[None] | None = None
        try:
            for number, chunk in chunks:
                if under_way is not None:
                    under_way.result()
                under_way = _run_in_thread(partial(self._send, number, chunk))
        except PilotageError:
            if under_way is not None:
                under_way.exception()  # wait, so that the count of stored rows is right
            raise
        if under_way is not None:
            under_way.result()

    def _send(self, number: int, chunk: RowChunk) -> None:
        self._transport.send(
            wire.submissions.PUT_CHUNK,
            body=lambda: chunk.body,
            size=len(chunk.body),
            patience=PATIENCE,
            submission_id=self._opened.submission,
            number=number,
        )
        self._stored = chunk.first + chunk.count
        self._report_progress()

    def _close(self, count: int) -> SubmitResponse:
        if not count:
            raise InvalidInput("there are no rows: there would be no job")
        closing, number = wire.submissions.CloseRequest(count), self._opened.submission
        return self._transport.call(
            wire.submissions.CLOSE_SUBMISSION, closing, patience=PATIENCE, submission_id=number
        )

    def _report_progress(self) -> None:
        if self._progress:
            self._progress(self._stored, self._expected)

    def _skip_stored_rows(self, rows: Iterator[Row]) -> int:
        """Consume the rows that the server already has from `rows`; return their number."""
        done = 0
        # Only the chunks known when it was opened: another client with the same key may send more meanwhile.
        for chunk in islice(self._stored_chunks(), self._opened.chunks):
            given = list(islice(rows, chunk.count))
            if len(given) < chunk.count:
                raise Conflict(
                    f"the server has {plural(self._stored, 'row')}, and only {done + len(given):,} are given"
                )
            if hashlib.sha256(_encode(given)).hexdigest() != chunk.digest and chunk.digest:
                raise Conflict(
                    f"of rows {done + 1:,} to {done + chunk.count:,} at least one differs from the stored row",
                    hint="stored rows cannot change: correct later rows only, or submit with another key",
                )
            done += chunk.count
        return done

    def _stored_chunks(self) -> Iterator[ChunkSummary]:
        after: int | None = -1
        while after is not None and self._opened.chunks:
            asked = wire.submissions.ChunksQuery(after)
            page = self._transport.call(
                wire.submissions.LIST_CHUNKS, asked, submission_id=self._opened.submission
            )
            yield from page.chunks
            after = page.next


def _run_in_thread(call: Callable[[], None]) -> Future[None]:
    """Run `call` in a daemon thread, which does not keep an interrupted program alive."""
    future: Future[None] = Future()

    def work() -> None:
        try:
            call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="sender", daemon=True).start()
    return future


def check_rows(rows: Iterable[GivenRow], names: Sequence[str]) -> Iterator[Row]:
    """The rows, if each has a value for every name; a value alone is a row of one."""
    width = len(names)
    for number, given in enumerate(rows, 1):
        row = given if isinstance(given, list | tuple) else (given,)
        if len(row) != width:
            raise InvalidInput(f"row {number:,} has {plural(len(row), 'value')}, not {width}")
        for value in row:
            trouble = find_value_error(value)
            if trouble:
                raise InvalidInput(f"row {number:,}: {trouble}")
        yield row


def find_value_error(value: Any) -> str:
    """The error of a parameter value, or "" if it is valid."""
    if isinstance(value, str):
        if len(value) > MAX_VALUE_CHARS:
            return f"a value has {len(value):,} characters; the limit is {MAX_VALUE_CHARS:,}"
        return "a value contains a NUL character" if "\0" in value else ""
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return f"{value} is not a number that can be used"
    if isinstance(value, int | float):
        return "" if abs(value) < 2**63 or isinstance(value, float) else f"{value} has more than 64 bits"
    return f"values are texts, numbers or truth values, not {type(value).__name__}"


def split_into_chunks(
    rows: Iterable[Row], first: int = 0, most: int = wire.submissions.MAX_CHUNK_ROWS
) -> Iterator[RowChunk]:
    """Cut rows into chunks of at most `most` rows and MAX_CHUNK_BYTES; `first` is the number of the first row."""
    parts: list[bytes] = []
    size = 2
    for row in rows:
        try:
            text = _encode(row)
        except (UnicodeEncodeError, OverflowError) as trouble:
            raise InvalidInput(f"row {first + len(parts) + 1:,}: {trouble}") from trouble
        if len(text) + 2 > wire.submissions.MAX_CHUNK_BYTES:
            raise InvalidInput(
                f"row {first + len(parts) + 1:,} has {len(text):,} bytes,"
                f" more than the {wire.submissions.MAX_CHUNK_BYTES:,} of a chunk",
                hint="put long values into files, and name these",
            )
        if len(parts) == most or size + len(text) > wire.submissions.MAX_CHUNK_BYTES:
            yield _chunk(first, parts)
            first += len(parts)
            parts, size = [], 2
        parts.append(text)
        size += len(text) + 1
    if parts:
        yield _chunk(first, parts)


def _chunk(first: int, parts: list[bytes]) -> RowChunk:
    return RowChunk(first, len(parts), b"[" + b",".join(parts) + b"]")
