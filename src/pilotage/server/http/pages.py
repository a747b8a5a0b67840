"""Pages of lists: the caller limits their rows, the server limits their bytes.

Rows are encoded one at a time as the store yields them, and a page ends when it has enough bytes. So an answer never
needs more memory than the largest page and one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse

from pilotage.wire.limits import MAX_PAGE_BYTES

_encode = msgspec.json.Encoder().encode


def page(name: str, rows: Iterable[tuple[int, object]], limit: int) -> Response:
    """Answer `{name: [row ...], "next": id}` from pairs (id, row); `next` is null on the last page.

    `rows` has at most `limit` rows. It is read only up to the end of the page.
    """
    parts: list[bytes] = []
    size, last_id = 0, None
    next_id: int | None = None
    for id_, row in rows:
        text = _encode(row)
        if parts and size + len(text) > MAX_PAGE_BYTES:
            next_id = last_id
            break
        parts.append(text)
        size += len(text) + 1
        last_id = id_
    if len(parts) == limit:
        next_id = last_id
    body = b'{"%s":[%s],"next":%s}' % (name.encode(), b",".join(parts), _encode(next_id))
    return Response(body, media_type="application/json")


def encoded(answer: object) -> Response:
    """An answer with many rows. It is encoded here, in the thread of the route: FastAPI would do it in the loop's."""
    return Response(_encode(answer), media_type="application/json")


def streamed_list(portions: Iterable[Sequence[object]]) -> Response:
    """A JSON list of all rows, sent portion by portion; memory holds one portion."""
    return StreamingResponse(_list_parts(portions), media_type="application/json")


def _list_parts(portions: Iterable[Sequence[object]]) -> Iterator[bytes]:
    separator = b"["
    for portion in portions:
        if portion:
            yield separator + _encode(portion)[1:-1]
            separator = b","
    yield b"[]" if separator == b"[" else b"]"
