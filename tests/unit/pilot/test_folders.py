"""Folders go, whatever a payload did to them, and nothing beside them is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pilotage.pilot.folders import remove_tree


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
