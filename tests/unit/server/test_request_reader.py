"""The reader of requests tells how much of a request was received, and what is new of its body."""

from __future__ import annotations

import pytest

from pilotage.core.errors import HeaderTooLarge, InvalidInput
from pilotage.server.http.connection_limits import ConnectionLimits
from pilotage.server.http.request_reader import Received, RequestReader

HEADER = b"POST /path?a=1 HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\n\r\n"


@pytest.fixture
def reader() -> RequestReader:
    return RequestReader(ConnectionLimits(head=200))


def test_a_request_in_pieces(reader: RequestReader) -> None:
    request = reader.request
    reader.feed(HEADER[:30])
    assert request.received is Received.PART_OF_HEADER
    reader.feed(HEADER[30:] + b"ab")
    assert (request.received, request.body, request.size) == (Received.HEADER, b"ab", 2)
    assert (request.method, request.declared_size, request.target()) == (
        b"POST",
        6,
        ("/path", b"/path", b"a=1"),
    )
    reader.feed(b"cdef")
    assert (request.received, request.body, request.size) == (Received.ALL, b"cdef", 6)


def test_a_next_request_has_nothing_of_the_last(reader: RequestReader) -> None:
    reader.feed(HEADER + b"abcdef")
    reader.next_request()
    reader.feed(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")
    assert reader.request.received is Received.ALL
    assert reader.request.fields == [(b"host", b"there")]
    assert (reader.request.body, reader.request.size) == (b"", 0)


@pytest.mark.parametrize("further", [b"P", HEADER, b"\x00"])
def test_data_behind_a_request_is_not_read(reader: RequestReader, further: bytes) -> None:
    reader.feed(HEADER + b"abcdef" + further)
    assert (reader.request.received, reader.request.body) == (Received.TOO_MUCH, b"abcdef")
    assert len(reader.request.fields) == 2


def test_a_refused_request_raises_its_error(reader: RequestReader) -> None:
    with pytest.raises(InvalidInput, match="no Host"):
        reader.feed(b"GET / HTTP/1.1\r\n\r\n")


def test_an_endless_header_is_too_large(reader: RequestReader) -> None:
    reader.feed(b"GET / HTTP/1.1\r\nX: " + b"x" * 150)
    with pytest.raises(HeaderTooLarge):
        reader.feed(b"x" * 150)
