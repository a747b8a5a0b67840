"""Each answer of Rucio is spoilt once in each way, while the duty copies a container with real code on both sides.

What is stored is what Rucio has, or the data set stays open with a reason; the next reading completes it. The size of
an answer is checked, so a list that was shortened, repeated or miscounted is unknown.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from pilotage.core.policy.catalogue_model import CataloguePlace
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from tests.unit.outside.catalogue.recorded_rucio import Rucio, did, lock, refusal, replica
from tests.unit.server.catalogue_copies import Copies

BLOCKS = {"a": 3, "b": 2}
"""The data sets of the container, each with its number of files; b is in a container within it."""
SIZE = 10
Spoil = Callable[[httpx.Response, random.Random], httpx.Response]


def shortened(answer: httpx.Response, draw: random.Random) -> httpx.Response:
    """Whole lines are missing."""
    lines = answer.text.splitlines(keepends=True)
    return httpx.Response(200, text="".join(lines[: draw.randrange(len(lines))] if lines else ""))


def cut(answer: httpx.Response, draw: random.Random) -> httpx.Response:
    """It ends somewhere."""
    return httpx.Response(200, text=answer.text[: draw.randrange(max(1, len(answer.text)))])


def repeated(answer: httpx.Response, draw: random.Random) -> httpx.Response:
    """A line comes twice."""
    lines = answer.text.splitlines(keepends=True)
    return httpx.Response(200, text="".join([*lines, draw.choice(lines or [""])]))


def miscounted(answer: httpx.Response, draw: random.Random) -> httpx.Response:
    """A number is another one."""
    text = answer.text
    for number in (*BLOCKS.values(), sum(BLOCKS.values()), SIZE, 20, 30):
        text = text.replace(f": {number}", f": {number + draw.choice([-1, 1])}")
        text = text.replace(f":{number}", f":{number + draw.choice([-1, 1])}")
    return httpx.Response(200, text=text)


def refused(status: int, exception: str) -> Spoil:
    return lambda answer, draw: refusal(status, exception, "refused once")


def plain(status: int) -> Spoil:
    return lambda answer, draw: httpx.Response(status, text="<html>a page of the proxy</html>")


def late(answer: httpx.Response, draw: random.Random) -> httpx.Response:
    raise httpx.ReadTimeout("late")


def lost(answer: httpx.Response, draw: random.Random) -> httpx.Response:
    raise httpx.RemoteProtocolError("peer closed connection")


WAYS: dict[str, Spoil] = {
    "shortened": shortened,
    "cut": cut,
    "repeated": repeated,
    "miscounted": miscounted,
    "500": refused(500, "DatabaseException"),
    "403": refused(403, "AccessDenied"),
    "404": refused(404, "DataIdentifierNotFound"),
    "409": refused(409, "UnsupportedOperation"),
    "401": refused(401, "CannotAuthenticate"),
    "429": plain(429),
    "503": plain(503),
    "garbage": plain(200),
    "late": late,
    "lost": lost,
}


class FaultyRucio(Rucio):
    """Spoils one answer, counted from `arm`."""

    def __init__(self, options: RucioOptions, draw: random.Random) -> None:
        super().__init__(options, T1_SITE_A=CataloguePlace(site="here", prefix="/store"))
        self._draw = draw
        self._left = 0
        self._spoil: Spoil = late
        self.spoilt = ""
        """METHOD PATH of the spoilt answer; empty: none was."""

    def arm(self, number: int, spoil: Spoil) -> None:
        """Spoil this answer; the first one is 1."""
        self._left, self._spoil, self.spoilt = number, spoil, ""

    def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = super()._answer(request)
        self._left -= 1
        if self._left:
            return answer
        self.spoilt = f"{request.method} {request.url.raw_path.decode()}"
        return self._spoil(answer, self._draw)

    def fill(self) -> None:
        """The container."""
        names = {
            block: [{"scope": "data26", "name": f"{block}.{n}", "bytes": SIZE} for n in range(files)]
            for block, files in BLOCKS.items()
        }
        facts = [
            {"scope": "data26", "name": name, "is_open": False, "length": n} for name, n in BLOCKS.items()
        ]
        self.answers |= {
            "GET /dids/data/one?dynamic_depth=DATASET": did("one", "CONTAINER", open=False, length=5)
            | {"scope": "data"},
            "GET /dids/data/one/dids": [did("a"), did("within", "CONTAINER")],
            "GET /dids/data26/within/dids": [did("b")],
            "POST /dids/bulkmeta": facts,
            "POST /locks/bulk_locks_for_dids": [lock(name, "T1_SITE_A") for name in BLOCKS],
        }
        for name, files in BLOCKS.items():
            self.answers |= {
                f"GET /dids/data26/{name}?dynamic_depth=FILE": did(name, open=False, length=files)
                | {"bytes": files * SIZE},
                f"GET /dids/data26/{name}/files": names[name],
                f"GET /replicas/data26/{name}/datasets?deep=True": [replica("T1_SITE_A", files, files)],
            }


def stored(copies: Copies) -> dict[str, int]:
    return {name: block.files for name, block in copies.blocks().items() if not block.open}


def told(copies: Copies) -> str:
    return copies.followed.problem or copies.problem


RIGHT = {f"data26:{name}": files for name, files in BLOCKS.items()}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_stored_is_what_rucio_has_however_one_answer_is_spoilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    (tmp_path / "password").write_text("pass-word\n")
    options = RucioOptions(
        url="http://rucio.example.org",
        auth="userpass",
        account="root",
        username="ddmlab",
        password_file=str(tmp_path / "password"),
    )
    number = 0
    while True:
        number += 1
        rucio = FaultyRucio(options, draw)
        rucio.fill()
        folder = tmp_path / str(number)
        folder.mkdir()
        copies = Copies(folder, monkeypatch)
        copies.catalogue = rucio.catalogue
        rucio.arm(number, WAYS[way])
        copies.follow()
        copies.run()
        where = f"answer {number}, {rucio.spoilt}: {told(copies)}"
        if copies.followed.read is None:
            assert told(copies), where
            assert copies.dataset.open, where
            assert stored(copies).items() <= RIGHT.items(), where
            copies.bench.now += 61
            copies.run()
        assert (stored(copies), copies.dataset.open, told(copies)) == (RIGHT, False, ""), where
        assert {copies.sites(name) for name in RIGHT} == {frozenset({"here"})}, where
        copies.bench.end()
        if not rucio.spoilt:
            return
