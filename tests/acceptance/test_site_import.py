"""`pilotage site import`: documents of GOCDB and CRIC change the policy and the state of sites, once, when told to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.instance import Instance, running
from tests.unit.core.topology import documents


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("import")) as one:
        yield one


def test_sites_and_a_downtime(instance: Instance, tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "sites.xml").write_text(documents.GOCDB_SITES)
    (tmp_path / "ces.json").write_text(documents.CRIC_SERVICES)
    words = ("site", "import", "sites.xml", "ces.json")
    dry = instance.cli(*words, "--dry-run", cwd=tmp_path)
    assert "+[sites.NORTH-T2]" in dry.stdout, dry.stderr
    assert "pilotage ce add arc --name ce1.north.example --site NORTH-T2" in dry.stdout
    assert "left out: site OLD-T3: Closed" in dry.stderr
    assert "NORTH-T2" not in instance.cli("site", "list").stdout
    asked = instance.cli(*words, cwd=tmp_path)
    assert asked.returncode == 2
    assert "use -y" in asked.stderr
    assert instance.cli(*words, "-y", cwd=tmp_path).returncode == 0
    assert "NORTH-T2\tnormal" in instance.cli("site", "list").stdout
    again = instance.cli(*words, "-y", cwd=tmp_path)
    assert "nothing to change" in again.stdout
    versions = json.loads(instance.cli("policy", "history", "--json").stdout)["versions"]
    assert [version["reason"] for version in versions].count("site import sites.xml ces.json") == 1

    (tmp_path / "down.xml").write_text(documents.gocdb_downtime("ce1.north.example", now - 60, now + 3600))
    down = instance.cli("site", "import", "down.xml", "-y", "--json", cwd=tmp_path)
    assert json.loads(down.stdout)["down"] == {"NORTH-T2": float(int(now + 3600))}
    shown = json.loads(instance.cli("site", "show", "NORTH-T2", "--json").stdout)
    assert (shown["state"], shown["reason"]) == ("down", "downtime: new cooling")
    again = instance.cli("site", "import", "down.xml", "-y", cwd=tmp_path)
    assert "it is applied already" in again.stderr
    longer = documents.gocdb_downtime("ce1.north.example", now - 60, now + 7200)
    (tmp_path / "down.xml").write_text(longer)
    assert instance.cli("site", "import", "down.xml", "-y", cwd=tmp_path).returncode == 0
    shown = json.loads(instance.cli("site", "show", "NORTH-T2", "--json").stdout)
    assert shown["until"] == int(now + 7200)


def test_a_state_that_somebody_set_stays(instance: Instance, tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "sites.json").write_text(documents.CRIC_SITES)
    assert instance.cli("site", "import", "sites.json", "-y", cwd=tmp_path).returncode == 0
    instance.cli("site", "drain", "NORTH-T2", "--reason", "mine")
    (tmp_path / "down.xml").write_text(documents.gocdb_downtime("", now - 60, now + 3600))
    done = instance.cli("site", "import", "down.xml", "-y", cwd=tmp_path)
    assert "the site is drain already, by " in done.stderr
    assert json.loads(instance.cli("site", "show", "NORTH-T2", "--json").stdout)["reason"] == "mine"
    (tmp_path / "later.xml").write_text(documents.gocdb_downtime("", now + 3000, now + 3600))
    assert "not yet: downtime of NORTH-T2" in instance.cli("site", "import", "later.xml", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.xml"], "cannot read absent.xml"),
        (["wrong.xml"], "wrong.xml: the document is no answer of GOCDB"),
        (["sites.json", "--only", "SOUTH-*"], "no site of the documents matches SOUTH-*"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use_is_told(instance: Instance, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "wrong.xml").write_text("<html/>")
    (tmp_path / "sites.json").write_text(documents.CRIC_SITES)
    done = instance.cli("site", "import", *words, "-y", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
