"""A list of objects is whole or unknown: a page that is cut short, garbage or of another folder is no page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.operations import ListedObject
from pilotage.outside.storage.s3 import S3Place

OPTIONS = S3Options(endpoint="https://s3.example.org", bucket="data", prefix="out")
TIME = "2026-11-28T12:00:00.000Z"
NAMES = ["a/1", "a/2 &amp; b", "b"]


def page(names: list[str], *, truncated: bool = False) -> str:
    rows = "".join(
        f"<Contents><Key>out/{name}</Key><LastModified>{TIME}</LastModified><Size>7</Size></Contents>"
        for name in names
    )
    return (
        f'<?xml version="1.0"?><ListBucketResult xmlns="x"><KeyCount>{len(names)}</KeyCount>'
        f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{rows}</ListBucketResult>"
    )


WHOLE = page(NAMES)
SPOILT = {
    "nothing": "",
    "garbage": "<html>a page of the proxy</html>",
    "an empty list without a mark": "<ListBucketResult></ListBucketResult>",
    "no end": WHOLE.replace("</ListBucketResult>", ""),
    "no begin": WHOLE.partition("<KeyCount>")[2],
    "an object less": WHOLE.replace(re.findall(r"<Contents>.*?</Contents>", WHOLE)[1], ""),
    "an object without its size": WHOLE.replace("<Size>7</Size>", "", 1),
    "an object without its end": WHOLE.replace("</Contents>", "", 1),
    "a time without a zone": WHOLE.replace("000Z", "000", 1),
    "of another folder": WHOLE.replace("out/b", "other/b"),
    "whether it goes on is garbage": WHOLE.replace("<IsTruncated>false", "<IsTruncated>maybe"),
    "it goes on after nothing": page([], truncated=True),
    "the last page again": page(["after"]),
}


class Service:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        self.answer = httpx.Response(200)
        self.place = S3Place(OPTIONS)
        self.place._client.close()
        self.place._client = httpx.Client(transport=httpx.MockTransport(lambda request: self.answer))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service(monkeypatch)
    yield service
    service.place.close()


def test_a_whole_page_has_all_objects(service: Service) -> None:
    service.answer = httpx.Response(200, text=page(NAMES, truncated=True))
    told = service.place.list_objects("", 0.0)
    names = [f"{OPTIONS.address}/{name.replace('&amp;', '&')}" for name in NAMES]
    assert told.objects == [ListedObject(name, 7, 1795867200.0) for name in names]
    assert not told.is_last
    service.answer = httpx.Response(200, text=page([]))
    assert service.place.list_objects(names[-1], 0.0) == ([], True)


@pytest.mark.parametrize("way", SPOILT)
def test_a_spoilt_page_is_unknown(service: Service, way: str) -> None:
    service.answer = httpx.Response(200, text=SPOILT[way])
    with pytest.raises(Unreachable):
        service.place.list_objects(f"{OPTIONS.address}/after", 0.0)


@pytest.mark.parametrize("status", [500, 503])
def test_a_service_that_is_away_has_no_empty_list(service: Service, status: int) -> None:
    service.answer = httpx.Response(status, text=page([]))
    with pytest.raises(Unreachable):
        service.place.list_objects("", 0.0)
