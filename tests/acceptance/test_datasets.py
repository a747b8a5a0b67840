"""`pilotage dataset` on a real server: add, list, show, replicas, close, remove, and who may."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotage.client.datasets import compute_checksum
from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound, PilotageError, Unreachable
from tests.instance import Instance, answer_of, output_of, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("catalogue"), owners="any") as instance:
        instance.policy += "[sites.there]\n"
        instance.apply()
        yield instance


def refused(instance: Instance, *words: str) -> str:
    done = instance.cli(*words)
    assert done.returncode not in (0, 1) or done.stderr, done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode != 0
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("top.py", "json/decoder.py", "json/encoder.py", "json/notes.txt", ".hidden/x.py"):
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "lib"


def test_a_folder_that_isolation_hides_is_told(server: Instance, folder: Path) -> None:
    plain = server.policy
    try:
        server.policy = (
            plain
            + """
[sites.sealed]
[ces.sealed]
site = "sealed"
type = "slurm"
isolation = "require"
visible = ["/srv/data:rw"]
"""
        )
        server.apply()
        words = ("dataset", "add", "hidden", str(folder), "--site")
        told = server.cli(*words, "sealed").stderr
        assert f"payloads at sealed do not see {folder}" in told
        assert f'add "{folder}" to ces.sealed.visible in the policy' in told
        for place in ("here", "sealed=/srv/data/x", "sealed=/cvmfs/x"):
            assert (
                "do not see"
                not in server.cli(
                    "dataset", "add", f"seen-{place[-1]}{place[0]}", str(folder), "--site", place
                ).stderr
            )
        request = folder / "request.toml"
        request.write_text(
            'name = "r"\ninput = "hidden"\n[program]\nexecutable = "true"\n'
            '[splitting]\nalgorithm = "FileBased"\nfiles_per_job = 1\n'
        )
        told = server.cli("request", "submit", "--dry-run", str(request)).stderr
        assert f"payloads at sealed do not see {folder}" in told
    finally:
        server.policy = plain
        server.apply()


def test_a_folder_becomes_a_data_set_and_grows(server: Instance, folder: Path) -> None:
    words = ("dataset", "add", "library", str(folder), "--match", "*.py", "--checksum", "adler32")
    assert output_of(server, *words) == "library: added 3 files in 2 blocks\n"
    assert output_of(server, *words) == "library: added 0 files in 0 blocks, 3 were there\n"
    shown = answer_of(server, "dataset", "show", "library")
    assert {block["name"]: block["files"] for block in shown["blocks"]} == {".": 1, "json": 2}
    assert shown["blocks"][0]["replicas"][0]["site"] == "here"
    assert shown["blocks"][0]["replicas"][0]["prefix"] == str(folder)
    assert shown["report"]["sites"][0]["blocks"] == 2
    [first, _] = answer_of(server, "dataset", "show", "library", "--block", "json")["files"]
    assert first["name"] == "json/decoder.py"
    assert (first["size"], first["checksum"]) == (15, compute_checksum(folder / "json/decoder.py", "adler32"))
    (folder / "json/scanner.py").write_text("new")
    assert output_of(server, *words, "--close") == "library: added 1 file in 1 block, 3 were there\n"
    shown = answer_of(server, "dataset", "show", "library")
    assert [block["name"] for block in shown["blocks"]] == [".", "json", "json#2"]
    assert not shown["report"]["dataset"]["open"]
    (folder / "json/late.py").write_text("late")
    assert "the data set library is closed" in refused(server, *words)
    (folder / "top.py").write_text("changed contents")
    assert "registered with another size" in refused(server, *words)


def test_a_manifest_says_blocks_events_and_places(server: Instance, tmp_path: Path) -> None:
    manifest = tmp_path / "run.yaml"
    manifest.write_text(
        "name: /run/2026\nclosed: true\nreplicas: {here: /data, there: 'root://se//x'}\nblocks:\n"
        "- name: run1\n  files:\n  - {name: a, size: 3, events: 10, lumis: [[1, 1, 5]]}\n  - b\n"
    )
    output_of(server, "dataset", "add", "/run/2026", str(manifest), "--events-per-file", "7")
    report = answer_of(server, "dataset", "show", "/run/2026")["report"]
    assert [share["site"] for share in report["sites"]] == ["here", "there"]
    assert (report["dataset"]["events"], report["dataset"]["open"]) == (17, False)
    assert output_of(server, "dataset", "files", "/run/2026", "--site", "here") == "/data/a\n/data/b\n"
    assert output_of(server, "dataset", "files", "/run/2026", "--site", "far") == "(none)\n(none)\n"
    first, _ = answer_of(server, "dataset", "files", "/run/2026", "--site", "there")["files"]
    assert (first["path"], first["events"], first["lumis"]) == ("root://se//x/a", 10, [[1, 1, 5]])
    assert "data set" in refused(server, "dataset", "files", "no-such")
    [row] = [row for row in answer_of(server, "dataset", "list", "2026")["datasets"]]
    assert (row["name"], row["files"], row["size"]) == ("/run/2026", 2, 3)
    assert answer_of(server, "dataset", "list", "2027")["datasets"] == []
    assert "is the manifest of /run/2026" in refused(server, "dataset", "add", "other", str(manifest))


def test_replicas_are_changed_and_unknown_is_shown(server: Instance, folder: Path) -> None:
    output_of(server, "dataset", "add", "moving", str(folder))
    assert "2 of 2 blocks" in output_of(server, "dataset", "replicas", "moving", "--add", "there")
    assert "1 of 1 block " in output_of(
        server, "dataset", "replicas", "moving", "--remove", "here", "--block", "json"
    )
    blocks = answer_of(server, "dataset", "replicas", "moving")["blocks"]
    assert {b["name"]: [place["site"] for place in b["replicas"]] for b in blocks} == {
        ".": ["here", "there"], "json": ["there"],
    }  # fmt: skip
    output_of(server, "dataset", "replicas", "moving", "--remove", "there")
    report = answer_of(server, "dataset", "show", "moving")["report"]
    assert (report["nowhere"], report["unknown"]) == (1, 0)
    output_of(server, "dataset", "replicas", "moving", "--forget")
    report = answer_of(server, "dataset", "show", "moving")["report"]
    assert (report["nowhere"], report["unknown"]) == (0, 2)
    assert "(unknown)" in output_of(server, "dataset", "replicas", "moving")
    assert "did you mean there?" in refused(server, "dataset", "replicas", "moving", "--add", "theer=/x")
    assert "prefix" in refused(server, "dataset", "replicas", "moving", "--add", "there")


def test_a_removed_data_set_leaves_its_files(server: Instance, folder: Path) -> None:
    output_of(server, "dataset", "add", "gone", str(folder))
    assert "its files stay where they are" in output_of(server, "dataset", "remove", "gone")
    assert "there is no data set gone" in refused(server, "dataset", "show", "gone")
    assert (folder / "top.py").exists()
    assert output_of(server, "dataset", "add", "gone", str(folder)).startswith("gone: added 4 files")


def test_who_may_change_a_data_set(server: Instance) -> None:
    alice, bob = server.client("alice"), server.client("bob")
    alice.create_dataset("hers")
    block = BlockEntry("x", (FileEntry("a"),), (Replica("here", "/data"),))
    alice.add_to_dataset("hers", [block])
    attempts: list[Callable[[], object]] = [
        lambda: bob.create_dataset("hers"),
        lambda: bob.add_to_dataset("hers", [block]),
        lambda: bob.close_dataset("hers"),
        lambda: bob.remove_dataset("hers"),
        lambda: bob.change_replicas("hers", forget=True),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            attempt()
    assert [row.owner for row in bob.datasets(contains="hers")] == ["alice"]
    assert bob.dataset("hers").dataset.files == 1
    server.client().close_dataset("hers")
    with pytest.raises(Conflict):
        alice.add_to_dataset("hers", [block._replace(files=(FileEntry("b"),))])
    with pytest.raises(NotFound):
        bob.dataset("his")
    with pytest.raises(Forbidden):
        bob.create_dataset("fresh", group="home")


BAD: list[tuple[str, object, type[PilotageError]]] = [
    ("", {"dataset": "bad", "block": "../x", "files": []}, InvalidInput),
    ("", {"dataset": "bad", "block": "x", "files": [{"name": "/a"}]}, InvalidInput),
    ("", {"dataset": "bad", "block": "x", "files": [{"name": "a", "size": -1}]}, InvalidInput),
    ("", {"dataset": "bad", "block": "x", "files": [{"name": "a", "lumis": [[1, 5, 2]]}]}, InvalidInput),
    ("", {"dataset": "bad", "block": "x", "files": [{"name": "a"}, {"name": "a"}]}, InvalidInput),
    ("", {"dataset": "bad", "block": "x", "files": [{"name": "a", "checksum": "md5:1"}]}, InvalidInput),
    ("", {"dataset": "bad", "block": "x", "files": [], "replicas": [{"site": "her", "prefix": "/"}]}, NotFound),
    ("", {"dataset": "none", "block": "x", "files": [{"name": "a"}]}, NotFound),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_requests_name_the_mistake(server: Instance, case: int) -> None:
    client = server.client()
    client.create_dataset("bad")
    _, body, error = BAD[case]
    with pytest.raises(error):
        client._transport.request("POST", "/v1/datasets/files", json=body)


def test_bad_commands_name_the_mistake(server: Instance, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"files": [{"name": "a",\n "size": -1}]}')
    assert "line 2: files.0.size" in refused(server, "dataset", "add", "x", str(tmp_path / "bad.json"))
    assert "not that of a manifest" in refused(server, "dataset", "add", "x", str(folder / "top.py"))
    assert "has no files that fit" in refused(server, "dataset", "add", "x", str(folder), "--match", "*.c")
    assert "cannot be the name" in refused(server, "dataset", "add", "a b", str(folder))
    assert "no site nowhere" in refused(server, "dataset", "add", "x", str(folder), "--site", "nowhere")
    (folder / os.fsdecode(b"\xff.py")).write_text("odd")
    assert "cannot be printed" in refused(server, "dataset", "add", "x", str(folder))
    assert "--block-size" in refused(server, "dataset", "add", "x", str(folder), "--block-size", "0")
    shutil.rmtree(folder)
    assert "cannot read" in refused(server, "dataset", "add", "x", str(tmp_path / "none.txt"))


def test_adding_goes_on_after_the_server_was_killed_in_between(tmp_path: Path) -> None:
    names = [f"run{block}/{number:04}" for block in range(3) for number in range(1000)]
    files = [FileEntry(name, 5, 1) for name in names]
    blocks = [
        BlockEntry(
            f"run{block}", tuple(files[1000 * block : 1000 * block + 1000]), (Replica("here", "/data"),)
        )
        for block in range(3)
    ]
    with running(tmp_path) as instance:
        for stop_at in (600, 1600, 2600):
            with instance.client() as client:
                client._transport.patience = client._transport._connect_patience = 0.1
                client.create_dataset("raw")

                def kill(sent: int, stop_at: int = stop_at) -> None:
                    if sent >= stop_at:
                        instance.kill_server()

                with pytest.raises(Unreachable):
                    client.add_to_dataset("raw", blocks, kill)
            instance._clients.clear()
            instance.start()
        client = instance.client()
        added = client.add_to_dataset("raw", blocks)
        assert (added.files, added.known) == (400, 2600)
        stored = [
            file.name
            for block in client.dataset_blocks("raw")
            for file in client.dataset_files("raw", block.name)
        ]
        assert sorted(stored) == sorted(names)
        assert [(block.name, block.files, block.open) for block in client.dataset_blocks("raw")] == [
            (f"run{block}", 1000, False) for block in range(3)
        ]
