"""A payload's folders are used again only if nobody can tell them from new ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.pilot.work_dirs import WorkDir, WorkDirs

USUAL = frozenset(("stdout", "stderr"))
ADA, BOB = ("ada", "physics"), ("bob", "physics")


def used(place: WorkDir, streams: frozenset[str] = USUAL) -> WorkDir:
    """As a payload leaves it that has written something."""
    for name in streams:
        with open(os.open(Path(place.folder, name), os.O_RDWR | os.O_CREAT, 0o600), "w") as file:
            file.write("said")
    return place


def test_a_clean_one_is_given_to_the_next_of_the_same_owner(tmp_path: Path) -> None:
    places = WorkDirs(str(tmp_path))
    first = used(places.take(ADA, USUAL))
    assert places.give_back(first, USUAL)
    of_another = places.take(BOB, USUAL)
    assert of_another is not first
    assert os.listdir(of_another.folder) == []
    assert places.take(ADA, USUAL) is first
    assert {name: Path(first.folder, name).read_bytes() for name in os.listdir(first.folder)} == {
        "stdout": b"",
        "stderr": b"",
    }
    assert places.take(ADA, USUAL) is not first


def test_files_of_other_names_do_not_stay(tmp_path: Path) -> None:
    places = WorkDirs(str(tmp_path))
    first = used(places.take(ADA, USUAL))
    assert places.give_back(first, USUAL)
    assert places.take(ADA, frozenset(("stdout",))) is first
    assert os.listdir(first.folder) == ["stdout"]


def _replaced(place: WorkDir) -> None:
    os.rename(place.tmp, place.tmp + ".old")
    os.mkdir(place.tmp, 0o700)


def _linked(place: WorkDir) -> None:
    os.unlink(os.path.join(place.folder, "stdout"))
    os.symlink("/dev/null", os.path.join(place.folder, "stdout"))


SPOILED: dict[str, Callable[[WorkDir], object]] = {
    "a file more": lambda place: Path(place.folder, "core").touch(),
    "a file less": lambda place: os.unlink(os.path.join(place.folder, "stderr")),
    "a temporary file": lambda place: Path(place.tmp, "x").touch(),
    "a mode": lambda place: os.chmod(place.folder, 0o755),
    "the mode of a file": lambda place: os.chmod(os.path.join(place.folder, "stdout"), 0o644),
    "another folder": _replaced,
    "a link": _linked,
    "a second name": lambda place: os.link(os.path.join(place.folder, "stdout"), place.folder + ".kept"),
    "no folder": lambda place: os.rename(place.folder, place.folder + ".old"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_one_that_a_payload_has_changed_is_not_kept(
    tmp_path: Path, spoil: Callable[[WorkDir], object]
) -> None:
    places = WorkDirs(str(tmp_path))
    place = used(places.take(ADA, USUAL))
    spoil(place)
    assert not places.give_back(place, USUAL)
    assert places.take(ADA, USUAL).folder != place.folder


def test_what_holds_more_than_the_streams_is_not_removed_at_once(tmp_path: Path) -> None:
    place = used(WorkDirs(str(tmp_path)).take(ADA, USUAL))
    Path(place.tmp, "x").touch()
    assert not place.remove(USUAL)
    os.unlink(Path(place.tmp, "x"))
    assert place.remove(frozenset())
    assert os.listdir(tmp_path) == []


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilotage.pilot.work_dirs._MAX_KEPT", 1)
    places = WorkDirs(str(tmp_path))
    one, two = (used(places.take(ADA, USUAL)) for _ in range(2))
    assert places.give_back(one, USUAL)
    assert not places.give_back(two, USUAL)
