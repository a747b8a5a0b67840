"""Folders go, whatever a payload did to them, and nothing beside them is touched."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from pilotage.pilot.folders import make_work_folder, remove_stale
from pilotage.pilot.removal import remove_tree


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _parent(tmp_path: Path) -> Path:
    parent = tmp_path / "scratch"
    parent.mkdir()
    parent.chmod(0o1777)
    return parent


def test_a_folder_that_is_gone_leaves_its_parent_as_it_was(tmp_path: Path) -> None:
    parent = _parent(tmp_path)
    remove_tree(str(parent / "gone"))
    assert _mode(parent) == 0o1777


def test_a_folder_with_modes_taken_away_goes_and_its_parent_stays(tmp_path: Path) -> None:
    parent = _parent(tmp_path)
    deep = parent / "work" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    for folder in (deep, deep.parent, deep.parent.parent):
        folder.chmod(0)
    remove_tree(str(parent / "work"))
    assert not (parent / "work").exists()
    assert _mode(parent) == 0o1777


@pytest.mark.parametrize("name", ["outside", "scratch/beside"])
def test_links_are_removed_and_what_they_point_to_stays(tmp_path: Path, name: str) -> None:
    parent = _parent(tmp_path)
    target = tmp_path / name
    target.mkdir()
    (target / "file").write_text("kept")
    target.chmod(0o755)
    work = parent / "work"
    work.mkdir()
    (work / "link").symlink_to(target)
    work.chmod(0o500)
    remove_tree(str(work))
    assert not os.path.lexists(work)
    assert (target / "file").read_text() == "kept"
    assert _mode(target) == 0o755


def test_a_folder_that_cannot_be_removed_leaves_its_parent_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = _parent(tmp_path)
    work = parent / "work"
    work.mkdir()

    def refused(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "no", str(path))

    monkeypatch.setattr(os, "rmdir", refused)
    remove_tree(str(work))
    monkeypatch.undo()
    assert _mode(parent) == 0o1777
    assert "could not remove" in capsys.readouterr().err


@pytest.mark.slow
def test_a_tree_of_any_depth_goes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    here = os.open(work, os.O_RDONLY)
    for level in range(3000):  # deeper than a path may be long, and than calls may be nested
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        descendants = os.open("d", os.O_RDONLY, dir_fd=here)
        if level % 100 == 0:
            os.fchmod(here, 0)
        os.close(here)
        here = descendants
    os.close(here)
    remove_tree(str(work))
    assert list(tmp_path.iterdir()) == []


def test_many_folders_beside_each_other_go(tmp_path: Path) -> None:
    for name in range(300):
        (tmp_path / "work" / str(name) / "a" / "b").mkdir(parents=True)
        (tmp_path / "work" / str(name) / "a" / ".removed-1").mkdir()
    remove_tree(str(tmp_path / "work"))
    assert list(tmp_path.iterdir()) == []


def test_a_link_instead_of_the_folder_is_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/file").touch()
    (tmp_path / "work").symlink_to(tmp_path / "target")
    remove_tree(str(tmp_path / "work"))
    assert (tmp_path / "target/file").exists()
    assert "could not remove" in capsys.readouterr().err


def test_only_folders_of_dead_pilots_of_this_host_are_removed(tmp_path: Path) -> None:
    living, lock = make_work_folder(str(tmp_path), "12:34@x-0", "node.a")
    dead, lock_of_dead = make_work_folder(str(tmp_path), "5-0", "node.a")
    elsewhere, lock_of_other = make_work_folder(str(tmp_path), "5-0", "node.a-b")
    os.close(lock_of_dead)
    os.close(lock_of_other)
    (Path(dead) / "payload-1").mkdir()
    for name in ("pilotage-mine", "pilotage-x+node.a", "other+node.a-12345678"):
        (tmp_path / name).mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "pilotage-x+node.a-abcdefgh").symlink_to(outside)
    before = {path.name for path in tmp_path.iterdir()}
    # One without a lock may be just being made.
    assert remove_stale(str(tmp_path), "node.a", time.time()) == []
    assert remove_stale(str(tmp_path), "node.a", time.time() + 3600) == [Path(dead).name]
    assert {path.name for path in tmp_path.iterdir()} == before - {Path(dead).name}
    assert Path(elsewhere).exists()
    os.close(lock)
    assert remove_stale(str(tmp_path), "node.a", time.time() + 3600) == [Path(living).name]
