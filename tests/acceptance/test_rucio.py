"""Requests over containers of a real Rucio server, and what its faults do to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import NotFound
from pilotage.core.workqueue.eligibility import Obstacle
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until
from tests.rucio import PASSWORD, SCOPE, FaultyWay, RucioServer, running_rucio, stored_file
from tests.s3 import S3Server, running_s3

pytestmark = pytest.mark.slow

CATALOGUE = """
[catalogues.rucio]
type = "rucio"
period = 5
retry = 1
[catalogues.rucio.places.DISK]
site = "here"
[catalogues.rucio.places.OUT]
site = "here"
prefix = "{out}"
[catalogues.rucio.rucio]
url = "{url}"
auth = "userpass"
account = "root"
username = "ddmlab"
password_file = "{password_file}"
"""

BUCKET_OF_OUTPUTS = """
[catalogues.rucio.places.BUCKET]
site = "*"
prefix = "{address}"
[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "{endpoint}"
bucket = "data"
prefix = "out"
credentials_file = "{credentials}"
"""


@pytest.fixture(scope="module")
def rucio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RucioServer]:
    with running_rucio(tmp_path_factory.mktemp("rucio")) as server:
        store = server.folder / "store"
        store.mkdir()
        server.add_rse("DISK", str(store))
        out = server.folder / "out"
        out.mkdir()
        server.add_rse("OUT", str(out), deterministic=False)
        yield server


@pytest.fixture(scope="module")
def way(rucio: RucioServer) -> Iterator[FaultyWay]:
    way = FaultyWay(rucio.url)
    yield way
    way.close()


@pytest.fixture(scope="module")
def instance(
    rucio: RucioServer, way: FaultyWay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("pool")) as instance:
        out = rucio.folder / "out"
        instance.policy = instance.policy.replace("[sites.here]", f'[sites.here]\nstorage = ["{out}"]')
        instance.policy += CATALOGUE.format(url=way.url, password_file=rucio.password_file, out=out)
        instance.apply()
        yield instance


def fill(rucio: RucioServer, container: str, datasets: int, **how: Any) -> None:
    """A container of data sets with three files each; their contents are their names."""
    rucio.add_container(container)
    for block in range(datasets):
        names = [f"{container}.{block}.{number}" for number in range(3)]
        files = [stored_file(rucio.folder / "store", name, f"{name}\n".encode()) for name in names]
        rucio.add_dataset(f"{container}.{block}", "DISK", files, container=container, **how)
    rucio.close(container)


def specification(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "team": "home",
        "input": f"rucio:{SCOPE}:{name}",
        "program": {"executable": "/bin/sh", "arguments": "-c 'cat $PILOTAGE_FILES > read.txt'"},
        "splitting": {"algorithm": "FileBased", "files_per_job": 2},
        "output": {"files": ["read.txt"]},
        **more,
    }


def ends(instance: Instance, number: int, state: str = "completed") -> None:
    """Wait for the end of a request, which must have this state."""

    def ended() -> bool:
        return instance.client().request(number).request.state in ("completed", "failed", "aborted")

    until(ended, what="the end of the request")
    assert instance.client().request(number).request.state == state


def test_a_request_over_a_container_reads_all_of_its_files_and_ends(
    rucio: RucioServer, instance: Instance
) -> None:
    fill(rucio, "whole", 3)
    accepted = instance.client().submit_request(specification("whole"))
    number = accepted.request.id

    ends(instance, number)
    report = instance.client().dataset(f"rucio:{SCOPE}:whole")
    assert (report.dataset.open, report.dataset.blocks, report.dataset.files) == (False, 3, 9)
    assert [(site.site, site.blocks) for site in report.sites] == [("here", 3)]


def test_outputs_are_registered_as_data_sets_with_a_rule(rucio: RucioServer, instance: Instance) -> None:
    fill(rucio, "seen", 2)
    instance.client().submit_request(
        specification("seen", output={"files": ["read.txt"], "dataset": f"rucio:{SCOPE}:seen.read"})
    )
    until(lambda: rucio.is_closed("seen.read"), what="the end of the container")
    [dataset] = rucio.children("seen.read")
    assert not rucio.did(dataset)["open"]
    files = rucio.files(dataset)
    read = sorted(line for file in files for line in Path(rucio.path_of(file["name"])).read_text().split())
    assert read == sorted(f"seen.{block}.{number}" for block in range(2) for number in range(3))
    [rule] = rucio.rules(dataset)
    assert (rule["rse_expression"], rule["state"], rule["locks_ok_cnt"]) == ("OUT", "OK", len(files))


def test_a_server_killed_amid_a_registration_ends_it_after_its_restart(
    rucio: RucioServer, way: FaultyWay, instance: Instance
) -> None:
    fill(rucio, "cut", 1)
    reached, go_on = threading.Event(), threading.Event()

    def answer(request: str) -> int:
        if request == "POST /dids/attachments" and not go_on.is_set():
            reached.set()
            go_on.wait(PATIENCE)
            return -1
        return 0

    way.answer = answer
    try:
        instance.client().submit_request(
            specification("cut", output={"files": ["read.txt"], "dataset": f"rucio:{SCOPE}:cut.read"})
        )
        assert reached.wait(PATIENCE)
        instance.kill_server()
        go_on.set()
        way.answer = lambda request: (
            503 if way.seen.count(request) % 2 and request.startswith("POST /rules") else 0
        )
        instance.start()
        until(lambda: rucio.is_closed("cut.read"), what="the end of the container")
    finally:
        go_on.set()
        way.answer = lambda request: 0
    [dataset] = rucio.children("cut.read")
    assert len(rucio.files(dataset)) == 2
    assert len(rucio.rules(dataset)) == 1


def test_an_outage_is_told_and_stops_nothing_that_is_known(
    rucio: RucioServer, way: FaultyWay, instance: Instance
) -> None:
    fill(rucio, "away", 1)
    client = instance.client()
    client.follow_dataset(f"rucio:{SCOPE}:away")
    until(lambda: client.dataset(f"rucio:{SCOPE}:away").dataset.files == 3, what="the first reading")
    way.answer = lambda request: 503
    try:
        number = client.submit_request(specification("away")).request.id
        until(lambda: client.catalogue("rucio").catalogue.problem, what="the problem")
        assert "503" in client.catalogue("rucio").catalogue.problem
        until(lambda: client.request(number).request.state != "assigned", what="work of the known blocks")
        new = client.submit_request(specification("unknown"))
        assert "is read when it answers again" in new.warnings[0]
        why = client.why_request(new.request.id)
        assert "503" in why.summary, why
        assert instance.cli("catalogue", "test", "rucio").returncode == 1
        assert "503" in instance.cli("catalogue", "list").stdout
    finally:
        way.answer = lambda request: 0
    ends(instance, number)
    until(lambda: "not found" in client.why_request(new.request.id).summary, what="the name's absence")
    client.abort_request(new.request.id)
    assert client.catalogue("rucio").catalogue.problem == ""
    assert instance.log().count("catalogue rucio: http") == 1


def test_a_lost_replica_takes_the_place_of_waiting_work(rucio: RucioServer, instance: Instance) -> None:
    fill(rucio, "lost", 1)
    client = instance.client()
    number = client.submit_request(specification("lost", team="nobody")).request.id
    until(lambda: client.request(number).request.state == "acquired", what="the elements")
    rucio.lose_replica("lost.0.1", "DISK")
    until(lambda: client.dataset(f"rucio:{SCOPE}:lost").nowhere == 1, what="the loss")
    until(lambda: Obstacle.NO_INPUT in str(client.why_request(number).sites), what="the answer of why")


def test_names_and_credentials_that_are_wrong_are_told(rucio: RucioServer, instance: Instance) -> None:
    with pytest.raises(NotFound, match="catalogue rucio does not know data26:nothing"):
        instance.client().submit_request(specification("nothing"))
    rucio.expire_tokens()
    rucio.password_file.write_text("wrong\n")
    said = instance.log().count("Rucio does not accept the credentials")
    try:
        for _ in range(2):
            refused = instance.cli("catalogue", "test", "rucio")
        assert refused.returncode == 1
        assert "Rucio does not accept the credentials" in refused.stdout
        assert "wrong" not in refused.stdout
    finally:
        rucio.password_file.write_text(f"{PASSWORD}\n")
    assert instance.log().count("Rucio does not accept the credentials") == said + 1, "a change is told once"
    assert instance.cli("catalogue", "test", "rucio").returncode == 0
    rucio.expire_tokens()
    assert instance.cli("catalogue", "test", "rucio").returncode == 0, "the server logs in again by itself"


@pytest.fixture
def s3(rucio: RucioServer, tmp_path: Path) -> Iterator[S3Server]:
    with running_s3(tmp_path / "s3") as server:
        rucio.add_rse("BUCKET", f"{server.address}/out", deterministic=False)
        yield server


@pytest.fixture
def instance_with_bucket(rucio: RucioServer, s3: S3Server, tmp_path: Path) -> Iterator[Instance]:
    """A pool whose outputs go to S3 and are registered in Rucio."""
    with running(tmp_path) as instance:
        instance.policy = instance.policy.replace("[sites.here]", '[sites.here]\nstorage = ["results"]')
        out = rucio.folder / "out"
        instance.policy += CATALOGUE.format(url=rucio.url, password_file=rucio.password_file, out=out)
        instance.policy += BUCKET_OF_OUTPUTS.format(
            address=f"{s3.address}/out", endpoint=s3.url, credentials=s3.credentials_file
        )
        instance.apply()
        yield instance


def test_outputs_in_a_bucket_are_registered_with_their_addresses(
    rucio: RucioServer, s3: S3Server, instance_with_bucket: Instance
) -> None:
    fill(rucio, "stored", 2)
    client = instance_with_bucket.client()
    client.submit_request(
        specification("stored", output={"files": ["read.txt"], "dataset": f"rucio:{SCOPE}:stored.read"})
    )
    until(lambda: rucio.is_closed("stored.read"), what="the end of the container")
    [dataset] = rucio.children("stored.read")
    files = rucio.files(dataset)
    contents = {file["name"]: s3.read(rucio.address_of(file["name"])) for file in files}
    read = sorted(line for text in contents.values() for line in text.decode().split())
    assert read == sorted(f"stored.{block}.{number}" for block in range(2) for number in range(3))
    assert {file["name"]: file["bytes"] for file in files} == {
        name: len(text) for name, text in contents.items()
    }
    [rule] = rucio.rules(dataset)
    assert (rule["rse_expression"], rule["state"], rule["locks_ok_cnt"]) == ("BUCKET", "OK", len(files))
