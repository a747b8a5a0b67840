"""Pages of lists: bounded in rows by who asks, and in bytes by the server.

Rows are encoded one after the other as the store gives them, and the page ends when it has enough bytes: whatever
stands in the rows, an answer holds no more memory than a page may have and one row.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from fastapi import Response

from pilotage.wire.people import MAX_PAGE_BYTES

_encode = msgspec.json.Encoder().encode


def page(name: str, rows: Iterable[tuple[int, object]], limit: int) -> Response:
    """`{name: [row ...], "next": id}` of (id, row); `next` is null after the last page.

    `rows` has at most `limit` rows, and is read only as far as the page goes.
    """
    parts: list[bytes] = []
    size, last = 0, None
    following: int | None = None
    for id_, row in rows:
        text = _encode(row)
        if parts and size + len(text) > MAX_PAGE_BYTES:
            following = last
            break
        parts.append(text)
        size += len(text) + 1
        last = id_
    if len(parts) == limit:
        following = last
    body = b'{"%s":[%s],"next":%s}' % (name.encode(), b",".join(parts), _encode(following))
    return Response(body, media_type="application/json")
