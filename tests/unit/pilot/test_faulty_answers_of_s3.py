"""Each answer of an S3 service is spoilt once in each way while the pilot stores, reads and removes files.

All files are there in the end as they were written, all that is read is right, and a sweep removes what it should.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotage.pilot import place, s3_place
from pilotage.pilot.checksums import Checksum
from pilotage.pilot.data_in import SpoiltInput, prepare_inputs
from pilotage.pilot.place import DataAttempt
from pilotage.pilot.places import OpenPlaces
from pilotage.pilot.s3_place import S3PilotPlace
from pilotage.wire.data import DataFile, StoragePlace
from tests.deadlines import PATIENCE
from tests.unit.pilot.paper_s3 import PaperS3, Told

WAYS: dict[str, Callable[[Told], Told | None]] = {
    **{
        str(status): lambda due, status=status: Told(status, b"<Code>Refused</Code>")
        for status in (403, 404, 429, 500, 503)
    },
    "garbage": lambda due: Told(200, b"<html>a page of the proxy</html>"),
    "an empty list": lambda due: due._replace(body=b"<ListBucketResult></ListBucketResult>"),
    "nothing": lambda due: Told(200),
    "lost": lambda due: None,
    "cut": lambda due: due._replace(body=due.body[:-3], announced=len(due.body)),
    "shortened": lambda due: due._replace(body=due.body[: len(due.body) // 2]),
    "a line less": lambda due: due._replace(
        body=b"".join(due.body.splitlines(keepends=True)[:2] + due.body.splitlines(keepends=True)[3:])
    ),
    "flipped": lambda due: due._replace(body=due.body.replace(b"whole", b"whose")),
}
SMALL, LARGE = b"a whole small file\n", b"a whole large file, in several parts\n"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PAUSES", (0.0,))
    monkeypatch.setattr(s3_place, "PART", 20)


@pytest.fixture
def service() -> Iterator[PaperS3]:
    service = PaperS3()
    yield service
    service.close()


class Bench:
    def __init__(self, service: PaperS3, folder: Path) -> None:
        self.service = service
        attempt = DataAttempt((1, 1), service, str(folder), lambda: False)  # type: ignore[arg-type]
        told = StoragePlace("results", service.address, "s3", PATIENCE)
        self.place = S3PilotPlace(told, attempt)
        self.order = SimpleNamespace(places=[told], sources=[], files=[])
        self.places = OpenPlaces(cast(Any, self.order), attempt)

    def write(self, name: str, contents: bytes) -> None:
        self.place.write(f"{self.service.address}/{name}", [contents], Checksum("adler32"))

    def read(self, name: str, contents: bytes) -> bytes:
        checksum = f"adler32:{zlib.adler32(contents):08x}"
        self.order.files = [DataFile(name, f"{self.service.address}/{name}", len(contents), checksum)]
        [copy] = prepare_inputs(cast(Any, self.order), None, self.places)
        return Path(copy).read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_one_spoilt_answer_changes_nothing(service: PaperS3, tmp_path: Path, way: str) -> None:
    number = 0
    while not number or service.spoilt:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        bench = Bench(service, folder)
        service.objects = {f"x/1/{rest}": b"left" for rest in "abcde"}
        service.parts = {}
        service.arm(number, WAYS[way])
        bench.write("x/1/small", SMALL)
        bench.write("large", LARGE)
        where = f"answer {number}, to {service.spoilt}"
        assert bench.read("x/1/small", SMALL) == SMALL, where
        assert bench.place.sweep(service.address, "x/1", {"x/1/small"}) == [], where
        where = f"answer {number}, to {service.spoilt}"
        assert service.objects == {"x/1/small": SMALL, "large": LARGE}, where


def test_a_file_that_differs_again_and_again_is_refused(service: PaperS3, tmp_path: Path) -> None:
    bench = Bench(service, tmp_path)
    bench.write("small", SMALL)
    with pytest.raises(SpoiltInput, match="its checksum is"):
        bench.read("small", SMALL.replace(b"whole", b"whose"))
