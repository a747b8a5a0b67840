"""The pilot's side of S3 places, with a real service, and what the faults of line and service do to it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.outside.storage.operations import S3Operation
from pilotage.outside.storage.s3 import S3Place
from pilotage.pilot import place, s3_place
from pilotage.pilot.checksums import Checksum
from pilotage.pilot.place import DataAttempt, DataCancelled, PlaceFailed
from pilotage.pilot.s3_place import S3PilotPlace
from pilotage.wire.data import StoragePlace
from pilotage.wire.storage import AddressRequest, SignedAddress
from tests.deadlines import PATIENCE
from tests.s3 import FaultyLine, S3Server

pytestmark = pytest.mark.slow

MIB = 1 << 20
names = itertools.count()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "PAUSES", (0.0, 0.1))


class Signer:
    """The connection to the server: it signs addresses, the first ones with another age."""

    def __init__(self, s3: S3Server, line: FaultyLine, **options: Any) -> None:
        self._place = S3Place(s3.options(endpoint=line.url, **options))
        self.ages: list[float] = []
        """Seconds since the first addresses were made; later ones are new."""
        self.asked: list[AddressRequest] = []

    def post(self, path: str, asked: AddressRequest, kind: type[SignedAddress]) -> SignedAddress:
        assert path == "/v1/pilot/jobs/1/1/addresses"
        self.asked.append(asked)
        age = self.ages.pop(0) if self.ages else 0.0
        operation = S3Operation(asked.operation, asked.url, asked.upload, asked.part, asked.after)
        return SignedAddress(*self._place.sign(operation, time.time() - age))

    def operations(self) -> list[str]:
        return [asked.operation for asked in self.asked]


class Bench:
    """One place, as a pilot has it."""

    def __init__(self, s3: S3Server, line: FaultyLine, patience: float = PATIENCE, **options: Any) -> None:
        self.s3 = s3
        self.signer = Signer(s3, line, **options)
        self.cancelled = False
        self.attempt = DataAttempt((1, 1), self.signer, "/", lambda: self.cancelled)  # type: ignore[arg-type]
        self.place = S3PilotPlace(StoragePlace("results", line.address, "s3", patience), self.attempt)
        self.key = f"file-{next(names)}"
        self.url = f"{line.address}/{self.key}"

    def write(self, *pieces: bytes) -> Checksum:
        checksum = Checksum("adler32")
        self.etag = self.place.write(self.url, pieces, checksum)
        return checksum

    @property
    def stored(self) -> bytes:
        return self.s3.read(f"{self.s3.address}/{self.key}")


@pytest.fixture
def bench(s3: S3Server, line: FaultyLine) -> Bench:
    return Bench(s3, line)


def pieces(size: int) -> Iterable[bytes]:
    """A file of this size without a pattern that a service could mix up."""
    return (number.to_bytes(4, "big") * (MIB // 4) for number in range(size // MIB))


@pytest.mark.parametrize("contents", [b"", b"one line\n", b"x" * MIB])
def test_a_small_file_is_one_request(bench: Bench, contents: bytes) -> None:
    checksum = bench.write(contents)
    assert bench.stored == contents
    assert checksum.size == len(contents)
    assert bench.signer.operations() == ["put"]
    assert b"".join(bench.place.read(bench.url)) == contents


def test_names_with_odd_characters(bench: Bench, s3: S3Server) -> None:
    root, folder = bench.url.rpartition("/")[0], f"odd-{bench.key}"
    for name in ("a b", "plus+and=equal", "ü", "percent%41", "quote'\"", "star*(1)"):
        bench.url = f"{root}/{folder}/{name}"
        bench.write(name.encode())
        assert b"".join(bench.place.read(bench.url)) == name.encode()
    assert len(s3.keys(f"{folder}/")) == 6
    assert bench.place.sweep(root, folder, {f"{folder}/a b"}) == []
    assert s3.keys(f"{folder}/") == [f"{folder}/a b"], "all others were removed"


def test_a_large_file_goes_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_place, "PART", 5 * MIB)
    checksum = bench.write(*pieces(12 * MIB))
    assert bench.signer.operations() == ["begin", "part", "part", "part", "complete"]
    assert (checksum.size, len(bench.stored)) == (12 * MIB, 12 * MIB)
    service = S3Place(bench.s3.options())
    [there] = service.look_at([f"{bench.s3.address}/{bench.key}"], time.time())
    service.close()
    assert (there.size, there.etag) == (12 * MIB, bench.etag)
    read = Checksum("adler32")
    for piece in bench.place.read(bench.url):
        read.update(piece)
    assert read.text == checksum.text


def test_an_expired_address_is_replaced(bench: Bench) -> None:
    bench.signer.ages = [3600.0]
    bench.write(b"late")
    assert bench.stored == b"late"
    assert bench.signer.operations() == ["put", "put"]
    bench.signer.ages = [3600.0]
    assert b"".join(bench.place.read(bench.url)) == b"late"


def test_a_forbidden_key_is_told_soon(s3: S3Server, line: FaultyLine) -> None:
    for profile in ("reader", "wrong"):
        bench = Bench(s3, line, profile=profile)
        with pytest.raises(PlaceFailed, match=r"answers 403 (AccessDenied|SignatureDoesNotMatch)") as failed:
            bench.write(b"never")
        assert bench.signer.operations() == ["put"] * 4, "a key may just be replaced"
        assert "X-Amz" not in str(failed.value)


def test_a_bucket_that_does_not_exist(s3: S3Server, line: FaultyLine) -> None:
    bench = Bench(s3, line, bucket="nothing-here", profile="reader")
    bench.url = bench.url.replace("/data/", "/nothing-here/")
    with pytest.raises(PlaceFailed, match="no such bucket"):
        list(bench.place.read(bench.url))


def test_an_object_that_does_not_exist(bench: Bench) -> None:
    with pytest.raises(PlaceFailed, match="no such object"):
        list(bench.place.read(bench.url))
    bench.place.remove(bench.url)


def test_an_upload_that_is_cut_leaves_nothing_and_is_sent_again(bench: Bench, line: FaultyLine) -> None:
    line.cut_upload = [300_000, 100_000]
    bench.write(b"y" * MIB)
    assert bench.stored == b"y" * MIB
    assert line.connections >= 3


def test_a_part_that_is_cut_is_sent_again(
    bench: Bench, line: FaultyLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_place, "PART", 5 * MIB)
    line.cut_upload = [-1, 6000, 2 * MIB]
    checksum = bench.write(*pieces(11 * MIB))
    assert len(bench.stored) == checksum.size == 11 * MIB


def test_bytes_that_change_on_their_way_are_found(bench: Bench, line: FaultyLine) -> None:
    line.spoil = [b"precious"]
    bench.write(b"a precious file\n")
    assert bench.stored == b"a precious file\n"
    assert bench.signer.operations() == ["put", "put"]


def test_a_download_that_is_cut_goes_on_where_it_was(bench: Bench, line: FaultyLine) -> None:
    contents = b"".join(pieces(6 * MIB))
    bench.write(contents)
    line.cut_download = [MIB, 3 * MIB]
    assert b"".join(bench.place.read(bench.url)) == contents


def test_a_download_does_not_go_on_with_another_object(bench: Bench, line: FaultyLine) -> None:
    bench.write(b"".join(pieces(6 * MIB)))
    line.cut_download = [MIB]
    reading = iter(bench.place.read(bench.url))
    next(reading)
    bench.s3.put(bench.key, b"others" * MIB)
    with pytest.raises(PlaceFailed, match="answers 412"):
        list(reading)


def test_a_service_that_is_away_is_tried_for_a_while(s3: S3Server, line: FaultyLine, tmp_path: Path) -> None:
    bench = Bench(s3, line, patience=0.5)
    s3.kill()
    with pytest.raises(PlaceFailed, match=r"the service does not answer: .*for 0.5 s"):
        bench.write(b"early")
    assert len(bench.signer.asked) < 20, "it waits between tries"
    bench = Bench(s3, line)
    writing = threading.Thread(target=bench.write, args=(b"in the end",), daemon=True)
    writing.start()
    s3.start()
    writing.join(PATIENCE)
    assert bench.stored == b"in the end"


def test_a_job_that_is_killed_stops_writing_and_clears_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_place, "PART", 5 * MIB)
    bench.write(b"an earlier file of the attempt")

    def endless() -> Iterator[bytes]:
        for _ in range(8):
            yield b"z" * MIB
        bench.cancelled = True
        while True:
            yield b"z" * MIB

    with pytest.raises(DataCancelled):
        bench.place.write(f"{bench.url}-2", endless(), Checksum("adler32"))
    assert bench.signer.operations() == ["put", "begin", "part", "abort"]
    prefix, _, name = bench.url.rpartition("/")
    bench.place.withdraw(prefix, [name], "")
    assert bench.s3.keys(bench.key) == []
