"""What a finish has named stays as it was: a late upload changes nothing. The pilot is the tests' own."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pilotage.services.pilots.enrolment import secret_hash
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

SECRET = "a secret of the tests"


class Speaker:
    """A pilot that says what a test wants."""

    def __init__(self, url: str) -> None:
        self.raw = httpx.Client(base_url=url, timeout=PATIENCE)
        enrol = {"secret": SECRET, "index": 0, "nonce": "n"}
        answer = self.raw.post("/v1/pilot/enrol", content=json.dumps(enrol))
        assert answer.status_code == 200, answer.text
        self.incarnation = answer.json()["incarnation"]
        self.raw.headers["Authorization"] = f"Bearer {answer.json()['token']}"
        self.number = 0

    def exchange(self, **messages: Any) -> dict[str, Any]:
        body = {"incarnation": self.incarnation, **messages}
        answer = self.raw.post("/v1/pilot/exchange", content=json.dumps(body))
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def take(self, job: int) -> int:
        """Be offered the job and confirm it; its epoch."""
        self.number += 1
        node = {"processors": 1, "cpu_left": 1e6, "tags": ["spoken"]}
        told = self.exchange(take={"number": self.number, "count": 1, "node": node})
        [offer] = told["offers"]
        assert offer["job"] == job, told
        [verdict] = self.exchange(confirms=[{"job": job, "epoch": offer["epoch"]}])["confirms"]
        assert verdict["verdict"] == "accepted"
        return int(offer["epoch"])

    def put(self, job: int, epoch: int, name: str, content: bytes) -> int:
        return self.raw.put(f"/v1/pilot/jobs/{job}/{epoch}/outputs/{name}", content=content).status_code

    def tail(self, job: int, epoch: int, content: bytes) -> int:
        query = {"stream": "stdout", "epoch": epoch, "offset": 0}
        return self.raw.post(f"/v1/pilot/jobs/{job}/tail", params=query, content=content).status_code  # type: ignore[arg-type]

    def finish(self, job: int, epoch: int, *outputs: str, **more: Any) -> str:
        message = {"job": job, "epoch": epoch, "exit_code": 0, "outputs": outputs, **more}
        [verdict] = self.exchange(finishes=[message])["finishes"]
        return str(verdict["verdict"])


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("late")) as instance:
        sql = (
            "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory,"
            " submitted, batch_id) VALUES (999, 'spoken', ?, 0, 'Submitted', 'here', 'local', 'generic', 1, 0, 0,"
            " '@elsewhere')"
        )
        with (
            contextlib.closing(
                sqlite3.connect(instance.home / "pilotage.db", timeout=PATIENCE)
            ) as connection,
            connection,
        ):
            connection.execute(sql, (secret_hash(SECRET),))
        yield instance
        assert "Traceback" not in instance.log()


@pytest.fixture(scope="module")
def pilot(pool: Instance) -> Iterator[Speaker]:
    speaker = Speaker(pool.client().url)
    yield speaker
    speaker.raw.close()


def submitted(pool: Instance) -> int:
    """A job that no other pilot is offered."""
    return pool.client().submit({"executable": "true", "tags": ["spoken"], "output_sandbox": ["r"]}).first


def output(pool: Instance, job: int) -> bytes:
    return pool.client()._transport.request("GET", f"/v1/jobs/{job}/outputs/r").content


def test_an_applied_output_stays_whatever_comes_late(pool: Instance, pilot: Speaker) -> None:
    job = submitted(pool)
    epoch = pilot.take(job)
    assert pilot.put(job, epoch, "r", b"right") == 201
    assert pilot.put(job, epoch, "r", b"right") == 201, "the answer was lost: the same again"
    assert pilot.finish(job, epoch, "r") == "accepted"
    assert output(pool, job) == b"right"
    assert pilot.put(job, epoch, "r", b"right") == 201, "the same again changes nothing"
    assert pilot.put(job, epoch, "r", b"wrong") == 409
    assert pilot.put(job, epoch, "more", b"new") == 409
    assert pilot.tail(job, epoch, b"late") == 409
    assert pilot.put(job, epoch + 1, "r", b"of a try that was not given") == 403
    assert output(pool, job) == b"right"
    assert [one.name for one in pool.client().outputs(job)] == ["r"]
    assert not list((pool.home / "sandboxes" / "partial").iterdir())


def test_an_upload_does_not_replace_a_file_of_the_same_name_before_the_finish(
    pool: Instance, pilot: Speaker
) -> None:
    """Else an upload that is under way while the finish is applied would replace what it named."""
    job = submitted(pool)
    epoch = pilot.take(job)
    assert pilot.put(job, epoch, "r", b"right") == 201
    assert pilot.put(job, epoch, "r", b"wrong") == 409
    assert pilot.finish(job, epoch, "r") == "accepted"
    assert output(pool, job) == b"right"


def test_nothing_is_taken_of_a_try_that_another_has_followed(pool: Instance, pilot: Speaker) -> None:
    job = submitted(pool)
    first = pilot.take(job)
    assert pilot.put(job, first, "r", b"of the first") == 201
    pilot.exchange(releases=[{"job": job, "epoch": first}])
    second = until(lambda: _taken(pilot, job), what="the second offer")
    assert second > first
    assert pilot.put(job, first, "other", b"late") == 409
    assert pilot.tail(job, first, b"late") == 409
    assert pilot.put(job, second, "r", b"of the second") == 201
    assert pilot.finish(job, second, "r") == "accepted"
    assert output(pool, job) == b"of the second"


def _taken(pilot: Speaker, job: int) -> int | None:
    try:
        return pilot.take(job)
    except ValueError:
        return None  # It is not offered again yet.


def test_an_offset_that_no_file_can_have_is_refused(pool: Instance, pilot: Speaker) -> None:
    job = submitted(pool)
    epoch = pilot.take(job)
    for offset, status in ((2**41, 413), (2**62, 413), (2**63, 400), (-1, 400)):
        query = {"stream": "stdout", "epoch": epoch, "offset": offset}
        answer = pilot.raw.post(f"/v1/pilot/jobs/{job}/tail", params=query, content=b"x")  # type: ignore[arg-type]
        assert answer.status_code == status, answer.text
    for path in (f"/v1/pilot/jobs/{2**64}/1/outputs/x", f"/v1/pilot/jobs/{job}/{2**31}/outputs/x"):
        assert pilot.raw.put(path, content=b"x").status_code == 400
    assert pilot.finish(job, epoch) == "accepted"
