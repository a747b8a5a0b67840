"""Requests over containers of a real Rucio server, and what its faults do to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.instance import Instance, running, until
from tests.rucio import SCOPE, RucioServer, running_rucio, stored_file

pytestmark = pytest.mark.slow

CATALOGUE = """
[catalogues.rucio]
type = "rucio"
period = 5
retry = 1
[catalogues.rucio.places.DISK]
site = "here"
[catalogues.rucio.rucio]
url = "{url}"
auth = "userpass"
account = "root"
username = "ddmlab"
password_file = "{password_file}"
"""


@pytest.fixture(scope="module")
def rucio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RucioServer]:
    with running_rucio(tmp_path_factory.mktemp("rucio")) as server:
        store = server.folder / "store"
        store.mkdir()
        server.add_rse("DISK", str(store))
        yield server


@pytest.fixture(scope="module")
def instance(rucio: RucioServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("pool")) as instance:
        instance.policy += CATALOGUE.format(url=rucio.url, password_file=rucio.password_file)
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


def test_a_request_over_a_container_reads_all_of_its_files_and_ends(
    rucio: RucioServer, instance: Instance
) -> None:
    fill(rucio, "whole", 3)
    accepted = instance.client().submit_request(specification("whole"))
    number = accepted.request.id

    def ended() -> bool:
        return instance.client().request(number).request.state in ("completed", "failed", "aborted")

    until(ended, what="the end of the request")
    detail = instance.client().request(number)
    assert detail.request.state == "completed", detail
    report = instance.client().dataset(f"rucio:{SCOPE}:whole")
    assert (report.dataset.open, report.dataset.blocks, report.dataset.files) == (False, 3, 9)
    assert [(site.site, site.blocks) for site in report.sites] == [("here", 3)]
