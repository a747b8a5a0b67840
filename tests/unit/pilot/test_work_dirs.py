"""A payload's folders are used again only if nobody can tell them from new ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.pilot.work_dirs import SETTLED, WorkDir, WorkDirs

USUAL = frozenset(("stdout", "stderr"))
ADA, BOB = ("ada", "physics"), ("bob", "physics")


def used(place: WorkDir, streams: frozenset[str] = USUAL) -> list[int]:
    """Open the files as the pilot does, and write to them as a payload. Returns their descriptors."""
    files = [os.open(Path(place.folder, name), os.O_RDWR | os.O_CREAT, 0o600) for name in sorted(streams)]
    for number in files:
        os.write(number, b"said")
    return files


def given_back(
    places: WorkDirs, place: WorkDir, files: list[int], now: float = 0.0, streams: frozenset[str] = USUAL
) -> bool:
    kept = places.give_back(place, streams, files, now)
    for number in files:
        os.close(number)
    return kept


def settled(places: WorkDirs, tmp_path: Path) -> WorkDir:
    """A directory whose folders have been as they are for so long that they need not be read."""
    place = places.take(ADA, USUAL, 0.0)
    assert given_back(places, place, used(place), 1.0)
    changed = max(os.lstat(folder).st_ctime_ns for folder in (place.folder, place.tmp))
    other = tmp_path / "other"
    while True:  # until the clock of the file system has gone on
        other.touch()
        if os.lstat(other).st_ctime_ns > changed:
            break
    assert places.take(ADA, USUAL, 1.0 + SETTLED) is place
    return place


def test_a_clean_folder_is_given_to_the_next_payload_of_the_owner(tmp_path: Path) -> None:
    places = WorkDirs(str(tmp_path))
    first = places.take(ADA, USUAL, 0.0)
    assert given_back(places, first, used(first))
    of_another = places.take(BOB, USUAL, 0.0)
    assert of_another is not first
    assert os.listdir(of_another.folder) == []
    assert places.take(ADA, USUAL, 0.0) is first
    assert {name: Path(first.folder, name).read_bytes() for name in os.listdir(first.folder)} == {
        "stdout": b"",
        "stderr": b"",
    }
    assert places.take(ADA, USUAL, 0.0) is not first


def test_files_of_other_names_do_not_stay(tmp_path: Path) -> None:
    places = WorkDirs(str(tmp_path))
    first = settled(places, tmp_path)
    assert given_back(places, first, used(first), 10.0)
    only = frozenset(("stdout",))
    assert places.take(ADA, only, 20.0) is first
    assert os.listdir(first.folder) == ["stdout"]
    # A file that the next payload makes under the name that is no stream of it any more.
    Path(first.folder, "stderr").touch()
    assert not given_back(places, first, used(first, only), 30.0, only)


def test_folders_that_have_not_changed_for_long_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = WorkDirs(str(tmp_path))
    place = settled(places, tmp_path)
    read: list[object] = []
    monkeypatch.setattr("pilotage.pilot.work_dirs.os.listdir", read.append)
    assert given_back(places, place, used(place), 10.0)
    assert not read
    assert Path(place.folder, "stdout").read_bytes() == b""


def test_folders_that_have_just_changed_are_read(tmp_path: Path) -> None:
    # The clock of the file system may not have gone on since: the second change has the time of the first.
    places = WorkDirs(str(tmp_path))
    place = places.take(ADA, USUAL, 0.0)
    assert given_back(places, place, used(place), 1.0)
    assert places.take(ADA, USUAL, 1.0 + SETTLED - 0.1) is place
    files = used(place)
    Path(place.tmp, "x").touch()
    place._times = place._current_times()
    assert not given_back(places, place, files, 9.0)


def _replaced(place: WorkDir) -> None:
    os.rename(place.tmp, place.tmp + ".old")
    os.mkdir(place.tmp, 0o700)


def _linked(place: WorkDir) -> None:
    os.unlink(os.path.join(place.folder, "stdout"))
    os.symlink("/dev/null", os.path.join(place.folder, "stdout"))


def _exchanged(place: WorkDir) -> None:
    os.rename(os.path.join(place.folder, "stdout"), place.folder + ".kept")
    os.close(os.open(os.path.join(place.folder, "stdout"), os.O_WRONLY | os.O_CREAT, 0o600))


SPOILED: dict[str, Callable[[WorkDir], object]] = {
    "a file more": lambda place: Path(place.folder, "core").touch(),
    "a file less": lambda place: os.unlink(os.path.join(place.folder, "stderr")),
    "a temporary file": lambda place: Path(place.tmp, "x").touch(),
    "a mode": lambda place: os.chmod(place.folder, 0o755),
    "the mode of a file": lambda place: os.chmod(os.path.join(place.folder, "stdout"), 0o644),
    "another folder": _replaced,
    "a link": _linked,
    "another file of the same name": _exchanged,
    "a second name": lambda place: os.link(os.path.join(place.folder, "stdout"), place.folder + ".kept"),
    "no folder": lambda place: os.rename(place.folder, place.folder + ".old"),
}


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_folder_that_a_payload_has_changed_is_not_kept(
    tmp_path: Path, spoil: Callable[[WorkDir], object], is_settled: bool
) -> None:
    places = WorkDirs(str(tmp_path))
    place = settled(places, tmp_path) if is_settled else places.take(ADA, USUAL, 0.0)
    files = used(place)
    spoil(place)
    assert not given_back(places, place, files, 10.0)
    assert places.take(ADA, USUAL, 20.0).folder != place.folder


def test_a_folder_with_other_files_is_not_removed_at_once(tmp_path: Path) -> None:
    place = WorkDirs(str(tmp_path)).take(ADA, USUAL, 0.0)
    for number in used(place):
        os.close(number)
    Path(place.tmp, "x").touch()
    assert not place.remove(USUAL)
    os.unlink(Path(place.tmp, "x"))
    assert place.remove(frozenset())
    assert os.listdir(tmp_path) == []


def test_the_number_of_kept_folders_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilotage.pilot.work_dirs._MAX_KEPT", 1)
    places = WorkDirs(str(tmp_path))
    one, two = (places.take(ADA, USUAL, 0.0) for _ in range(2))
    assert given_back(places, one, used(one))
    assert not given_back(places, two, used(two))
