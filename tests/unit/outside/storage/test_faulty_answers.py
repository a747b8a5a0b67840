"""The server's own questions to an S3 service: an answer that is not whole, or no answer of it, tells nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from pilotage.core.errors import PilotageError
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.operations import ObjectPiece, StoredObject
from pilotage.outside.storage.s3 import S3Place

OPTIONS = S3Options(endpoint="https://s3.example.org", bucket="data")
URL = f"{OPTIONS.address}/a"
CONTENTS = b"the contents of an object"
HEADERS = {"ETag": '"mark"'}
Spoil = Callable[[httpx.Response], httpx.Response]


def right(request: httpx.Request) -> httpx.Response:
    if request.method == "HEAD":
        return httpx.Response(200, headers={**HEADERS, "Content-Length": str(len(CONTENTS))})
    first, _, last = request.headers["Range"].partition("=")[2].partition("-")
    piece = CONTENTS[int(first) : int(last) + 1]
    if not piece:
        return httpx.Response(416)
    told = f"bytes {first}-{int(first) + len(piece) - 1}/{len(CONTENTS)}"
    return httpx.Response(206, headers={**HEADERS, "Content-Range": told}, content=piece)


def refused(status: int) -> Spoil:
    return lambda due: httpx.Response(status, text="<Code>Refused</Code>")


WAYS: dict[str, Spoil] = {
    **{str(status): refused(status) for status in (408, 429, 500, 503)},
    "garbage": lambda due: httpx.Response(200, text="<html>a page of the proxy</html>"),
    "shortened": lambda due: httpx.Response(
        due.status_code, headers=due_headers(due), content=due.content[:3]
    ),
    "another piece": lambda due: httpx.Response(
        due.status_code, headers={**due_headers(due), "Content-Range": "bytes 7-9/25"}, content=due.content
    ),
}


def due_headers(due: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in due.headers.items() if name.lower() != "content-length"}


class Service:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        self.spoil: Spoil = lambda due: due
        self.place = S3Place(OPTIONS)
        self.place._client.close()
        self.place._client = httpx.Client(
            transport=httpx.MockTransport(lambda request: self.spoil(right(request)))
        )


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service(monkeypatch)
    yield service
    service.place.close()


def test_right_answers_are_taken(service: Service) -> None:
    assert service.place.look_at([URL], 0.0) == [StoredObject(len(CONTENTS), "mark")]
    assert service.place.read(ObjectPiece(URL, "mark", 4, 8), 0.0) == CONTENTS[4:12]
    assert service.place.read(ObjectPiece(URL, "mark", 20, 80), 0.0) == CONTENTS[20:]
    assert service.place.read(ObjectPiece(URL, "mark", 25, 80), 0.0) == b""
    service.spoil = lambda due: httpx.Response(200, headers=HEADERS, content=CONTENTS)
    assert service.place.read(ObjectPiece(URL, "mark", 4, 8), 0.0) == CONTENTS[4:12], "it knows no ranges"


@pytest.mark.parametrize("way", WAYS)
def test_a_spoilt_answer_tells_nothing(service: Service, way: str) -> None:
    service.spoil = WAYS[way]
    with pytest.raises(PilotageError):
        service.place.read(ObjectPiece(URL, "mark", 4, 8), 0.0)
    if way not in ("shortened", "another piece"):
        [there] = service.place.look_at([URL], 0.0)
        assert there.is_unknown
        assert there.problem
