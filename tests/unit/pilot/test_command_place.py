"""Places of commands: programs of the node store, read, compare and remove files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.pilot import place
from pilotage.pilot.checksums import Checksum
from pilotage.pilot.command_place import CommandPlace
from pilotage.pilot.node_commands import COMMANDS
from pilotage.pilot.place import DataAttempt, DataCancelled, PlaceFailed
from pilotage.pilot.system import peek_dead_child
from pilotage.wire.data import StoragePlace
from tests.deadlines import PATIENCE


@pytest.fixture(autouse=True)
def reaper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reaps the commands, as the loop of the pilot does."""
    monkeypatch.setattr(place, "PAUSES", (0.0,))
    over = threading.Event()

    def reap() -> None:
        while not over.wait(0.01):
            for pid in COMMANDS.leaders():
                if peek_dead_child() == pid:
                    COMMANDS.reap(pid)

    thread = threading.Thread(target=reap, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


class Store:
    """A storage of the tests: a folder, and a script that reads addresses as names in it."""

    def __init__(self, folder: Path) -> None:
        (folder / "store").mkdir()
        self.folder = folder / "store"
        self.calls = folder / "calls"
        self.program = folder / "tool"
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.cancelled = False
        self.script()

    def script(self, before: str = "") -> None:
        self.program.write_text(
            f"""#!/bin/sh
echo "$@" >> {self.calls}
name() {{ echo {self.folder}/$(echo "$1" | sed 's|.*://||; s|/|_|g'); }}
{before}
case $1 in
put) cp "$2" "$(name "$3")" ;;
get) cp "$(name "$2")" "$3" ;;
sum) python3 -c 'import sys, zlib; print("adler32 %x" % zlib.adler32(open(sys.argv[1], "rb").read()))' "$(name "$2")" ;;
rm) rm "$(name "$2")" ;;
esac
"""
        )
        self.program.chmod(0o700)

    def open(self, **more: object) -> CommandPlace:
        tool = str(self.program)
        options = {
            "put": [tool, "put", "{file}", "{url}"],
            "get": [tool, "get", "{url}", "{file}"],
            "remove": [tool, "rm", "{url}"],
            "timeout": PATIENCE,
        } | more
        attempt = DataAttempt((7, 1), None, str(self.tmp), lambda: self.cancelled)  # type: ignore[arg-type]
        return CommandPlace(StoragePlace("eos", "disk://eos/x", "command", **options), attempt)  # type: ignore[arg-type]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def verbs(self) -> list[str]:
        return [line.split()[0] for line in self.calls.read_text().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


URL = "disk://eos/x/a file; $(touch bad)"


def write(opened: CommandPlace, contents: bytes = b"one\ntwo\n") -> Checksum:
    checksum = Checksum("adler32")
    assert opened.write(URL, [contents[:3], contents[3:]], checksum) == ""
    return checksum


def test_a_file_is_stored_compared_read_and_removed(store: Store) -> None:
    opened = store.open()
    assert write(opened).size == 8
    assert store.verbs() == ["put", "get"], "it is copied back to compare it"
    assert store.names() == ["eos_x_a file; $(touch bad)"], "no shell reads the address"
    assert b"".join(opened.read(URL)) == b"one\ntwo\n"
    opened.remove(URL)
    assert store.names() == []
    assert list(store.tmp.iterdir()) == []


def test_a_command_tells_the_checksum(store: Store) -> None:
    opened = store.open(check=[str(store.program), "sum", "{url}"])
    write(opened)
    write(opened, b"")
    assert store.verbs() == ["put", "sum", "put", "sum"]


def test_other_contents_are_found_and_stored_again(store: Store) -> None:
    once = store.folder.parent / "once"
    store.script(
        f'if [ "$1" = put ] && [ ! -e {once} ]; then touch {once}; echo wrong > "$(name "$3")"; exit; fi'
    )
    for more in ({}, {"check": [str(store.program), "sum", "{url}"]}):
        once.unlink(missing_ok=True)
        write(store.open(**more))
    assert store.verbs() == ["put", "get", "rm", "put", "get", "put", "sum", "rm", "put", "sum"]


def test_other_contents_again_and_again_fail(store: Store) -> None:
    store.script('if [ "$1" = put ]; then echo wrong > "$(name "$3")"; exit; fi')
    with pytest.raises(PlaceFailed, match=r"it has 6 bytes and adler32:.* there; 8 bytes and adler32:"):
        write(store.open())
    with pytest.raises(PlaceFailed, match="its checksum there is not"):
        write(store.open(check=[str(store.program), "sum", "{url}"]))


def test_an_exit_code_is_tried_again_and_told(store: Store) -> None:
    store.script("echo no space left >&2; exit 54")
    with pytest.raises(PlaceFailed, match=r"tool ended with exit code 54: no space left") as failed:
        write(store.open())
    assert not failed.value.is_of_node
    assert store.verbs().count("put") == 3


@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program", "/etc/passwd"])
def test_a_program_that_is_missing_is_a_failure_of_the_node(store: Store, program: str) -> None:
    with pytest.raises(PlaceFailed, match=f"this node has no program {program}") as failed:
        write(store.open(put=[program, "{file}", "{url}"]))
    assert failed.value.is_of_node


def test_a_command_that_does_not_end_is_ended(store: Store) -> None:
    store.script("sleep 1000 & wait")
    with pytest.raises(PlaceFailed, match=r"has not ended after 0\.1 s"):
        list(store.open(timeout=0.1).read(URL))
    pause = threading.Event()
    while COMMANDS.leaders():
        pause.wait(0.01)


def test_a_command_of_a_killed_job_is_ended(store: Store) -> None:
    store.script("sleep 1000 & wait")
    store.cancelled = True
    with pytest.raises(DataCancelled):
        list(store.open().read(URL))


def test_secrets_of_the_pilot_are_not_given_to_commands(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTAGE_SECRET", "not for others")
    monkeypatch.setenv("X509_USER_PROXY", "/tmp/proxy")
    store.script(f"env > {store.tmp}/environment; exit 1")
    with pytest.raises(PlaceFailed):
        list(store.open().read(URL))
    variables = (store.tmp / "environment").read_text()
    assert "not for others" not in variables
    assert "X509_USER_PROXY=/tmp/proxy" in variables


def test_nothing_is_removed_without_a_command(store: Store) -> None:
    with pytest.raises(PlaceFailed, match="no command `remove`"):
        store.open(remove=[]).remove(URL)
