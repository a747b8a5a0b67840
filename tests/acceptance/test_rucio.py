"""Requests over containers of a real Rucio server, and what its faults do to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
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
def instance(rucio: RucioServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("pool")) as instance:
        out = rucio.folder / "out"
        instance.policy = instance.policy.replace("[sites.here]", f'[sites.here]\nstorage = ["{out}"]')
        instance.policy += CATALOGUE.format(url=rucio.url, password_file=rucio.password_file, out=out)
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
