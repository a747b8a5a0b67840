"""Calls that are answered without FastAPI read a query as FastAPI does, or leave it to FastAPI."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest
from fastapi import FastAPI, Response
from hypothesis import given
from hypothesis import strategies as st

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.direct_calls import read_query
from pilotage.server.tokens import Caller
from pilotage.wire.changes import READ_CHANGES, ChangesQuery

CALLER = Caller("alice", "home", frozenset(), 0.0, 0.0)

ODD = [
    "",
    "0",
    "1",
    "1.5",
    "-1",
    "+3",
    "1e2",
    "1e400",
    "601",
    " 7",
    "7 ",
    "1_0",
    "0x1",
    "١",
    "true",
    "null",
    "None",
]
ODD += ["NaN", "inf", "-Infinity", "1.", ".5", "00012", "9" * 30, "\0", "a" * 300, "é"]
VALUES = st.one_of(st.sampled_from(ODD), st.text(max_size=12))
NAMES = st.sampled_from(["after", "wait", "limit", "submission", "owner", "group", "other", ""])


def fastapi() -> FastAPI:
    """An application whose only route answers with the query that it has read."""
    router = CallRouter("test")

    @router.call(READ_CHANGES)
    async def echo(asked: ChangesQuery) -> Response:
        return Response(msgspec.json.encode(asked))

    app = FastAPI()
    app.router.routes.extend(router.routes)
    return app


APP = fastapi()


def as_fastapi_reads(query: bytes) -> dict[str, Any]:
    """The fields of the query as FastAPI reads it; empty: it refuses it."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": READ_CHANGES.path,
        "query_string": query,
        "headers": [],
        "state": {"identity": CALLER},
    }
    asyncio.run(APP(scope, receive, send))
    if sent[0]["status"] != 200:
        return {}
    return dict(msgspec.json.decode(sent[1]["body"]))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_a_query_is_read_as_fastapi_reads_it(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{name}={quote_plus(value, errors='surrogatepass')}" for name, value in pairs).encode()
    found = read_query(ChangesQuery, query)
    if found is not None:
        assert asdict(found) == as_fastapi_reads(query)


@pytest.mark.parametrize(
    "query", [b"", b"after=1.2.3&wait=600", b"submission=12&limit=1000", b"owner=null&group=home"]
)
def test_plain_queries_are_read_here(query: bytes) -> None:
    found = read_query(ChangesQuery, query)
    assert found is not None
    assert asdict(found) == as_fastapi_reads(query)


@pytest.mark.parametrize(
    "query",
    [
        *(b"wait=1&wait=2", b"other=1", b"wait=nan", b"wait=601", b"submission=0"),
        *(
            b"owner=%00",
            b"wait",
            b"&",
            b"owner=",
            b"after=",
            b"after=+",
            b"\xff=1",
            b"limit=1.0",
            b"limit=007",
        ),
    ],
)
def test_doubtful_queries_are_left_to_fastapi(query: bytes) -> None:
    assert read_query(ChangesQuery, query) is None
