"""The search for outputs: what it finds, what it refuses, and that it ends whatever a payload left there."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotage.pilot import output_search
from pilotage.pilot.output_search import SearchCancelled, SearchResult, find_outputs
from pilotage.pilot.outputs import Unreadable, open_output, upload
from pilotage.pilot.safe_open import escape_name, is_storable_name, make_folders, open_file, open_root
from pilotage.pilot.transport import Readable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "payload"
    place.mkdir()
    return place


def make(folder: Path, *names: str) -> None:
    for name in names:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(name)


def names(found: SearchResult) -> list[str]:
    return [output.name for output in found.outputs]


def refusals(found: SearchResult) -> dict[str, str]:
    return {refused.name: refused.reason for refused in found.refused}


FILES = ("a.txt", "b.log", ".hidden", "d/x.txt", "d/.h", "d/e/y.txt", ".g/z.txt", "[odd]", "d/e/f/w.log")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.txt", ["a.txt"]),
        ("./a.txt", ["a.txt"]),
        ("d//x.txt", ["d/x.txt"]),
        ("*", ["[odd]", "a.txt", "b.log", "d/.h", "d/e/f/w.log", "d/e/y.txt", "d/x.txt"]),
        ("*.txt", ["a.txt"]),
        ("?.txt", ["a.txt"]),
        ("[ab].*", ["a.txt", "b.log"]),
        ("[!a].*", ["b.log"]),
        ("[[]odd]", ["[odd]"]),
        # A file of this name is meant as well as names of one of these letters.
        ("[odd]", ["[odd]", "d/.h", "d/e/f/w.log", "d/e/y.txt", "d/x.txt"]),
        ("a.txt/**", []),
        ("d/e/**/", ["d/e/f/w.log", "d/e/y.txt"]),
        ("**/x.txt/**", []),
        (".*", [".g/z.txt", ".hidden"]),
        ("*/", ["d/.h", "d/e/f/w.log", "d/e/y.txt", "d/x.txt"]),
        ("a.txt/", []),
        ("d", ["d/.h", "d/e/f/w.log", "d/e/y.txt", "d/x.txt"]),
        ("d/*.txt", ["d/x.txt"]),
        ("*/*.txt", ["d/x.txt"]),
        ("**/*.txt", ["a.txt", "d/e/y.txt", "d/x.txt"]),
        ("**/*.log", ["b.log", "d/e/f/w.log"]),
        ("d/**", ["d/.h", "d/e/f/w.log", "d/e/y.txt", "d/x.txt"]),
        ("**/e/**/w.log", ["d/e/f/w.log"]),
        ("**/**/y.txt", ["d/e/y.txt"]),
        ("d/e/f", ["d/e/f/w.log"]),
        ("A.TXT", []),
        ("../payload/a.txt", []),
        ("/etc/passwd", []),
        ("[z-a]*", []),
        ("\ud800", []),
        ("x" * 5000, []),
    ],
)
def test_patterns(folder: Path, pattern: str, expected: list[str]) -> None:
    make(folder, *FILES)
    found = find_outputs(str(folder), [pattern])
    assert names(found) == expected
    assert found.missing == ([] if expected else [escape_name(pattern)])
    assert found.refused == []


def test_several_patterns_share_one_walk(folder: Path) -> None:
    make(folder, *FILES)
    found = find_outputs(str(folder), ["*.txt", "nothing", "d/e", "a.txt", "empty"])
    assert names(found) == ["a.txt", "d/e/f/w.log", "d/e/y.txt"]
    assert found.missing == ["nothing", "empty"]


def test_links_are_not_followed_out_of_the_folder_or_around_it(folder: Path, tmp_path: Path) -> None:
    make(tmp_path, "outside/secret")
    make(folder, "real.txt", "d/deep.txt")
    links = {
        "around": ".",
        "d/up": "..",
        "root": "/",
        "out": str(tmp_path / "outside/secret"),
        "relative-out": "../outside/secret",
        "through-root": str(folder / "../outside/secret"),
        "folder": "d",
        "nothing": "not-there",
        "self": "self",
        "latest": "real.txt",
        "absolute": str(folder / "real.txt"),
        "hop": "latest",
        "d/back": "../real.txt",
        "via": "folder/deep.txt",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    found = find_outputs(str(folder), ["**", "around/around/real.txt"])
    sources = {output.name: output.source for output in found.outputs}
    inside = {"latest", "absolute", "hop", "d/back"}
    assert sources == {
        "real.txt": "real.txt",
        "d/deep.txt": "d/deep.txt",
        **dict.fromkeys(inside, "real.txt"),
    }
    assert refusals(found).keys() >= links.keys() - inside
    assert "out of the folder" in refusals(found)["out"]
    assert "out of the folder" in refusals(found)["relative-out"]
    assert "out of the folder" in refusals(found)["through-root"]
    assert "a link to a folder" in refusals(found)["around"]
    assert "link through another link" in refusals(found)["via"]
    assert "too many other links" in refusals(found)["self"]
    for output in found.outputs:
        with open_output(str(folder), output.source) as file:
            assert b"secret" not in file.read()


def test_links_that_are_inputs_are_no_outputs(folder: Path, tmp_path: Path) -> None:
    make(tmp_path, "shared")
    (folder / "in").symlink_to(tmp_path / "shared")
    assert find_outputs(str(folder), ["**"], inputs={"in"}) == SearchResult([], ["**"], [])


def test_only_regular_files_are_opened(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        home = Path.cwd()
        os.chdir(folder)  # a path of a socket is short
        try:
            server.bind("socket")
        finally:
            os.chdir(home)
        found = find_outputs(str(folder), ["*"])
    assert refusals(found) == {
        "fifo": "a FIFO, not a regular file",
        "socket": "a socket, not a regular file",
    }
    assert found.missing == []


def test_odd_names_are_refused_for_that_file_alone(folder: Path) -> None:
    make(folder, "good", "grün £ 日本.txt", "with blank")
    odd = [b"bytes\xff", b"new\nline", b"esc\x1b[31m", b"d\xfe/inner"]
    for name in odd:
        place = os.path.join(os.fsencode(folder), name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb"):
            pass
    found = find_outputs(str(folder), ["*"])
    assert names(found) == ["good", "grün £ 日本.txt", "with blank"]
    assert refusals(found).keys() == {"bytes\\xff", "new\\nline", "esc\\x1b[31m", "d\\xfe/inner"}
    for shown in refusals(found):
        shown.encode()
        assert is_storable_name(shown)
    # An odd name that no pattern asks for is nobody's business.
    assert find_outputs(str(folder), ["good"]).refused == []


def test_a_path_that_is_too_long_is_refused(folder: Path) -> None:
    make(folder, "/".join(["n" * 200] * 5))
    found = find_outputs(str(folder), ["**"])
    assert found.outputs == []
    assert list(refusals(found).values()) == ["its name has more than 1000 bytes"]


def test_a_folder_that_cannot_be_read_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder, "d/locked/x", "d/y")
    (folder / "d/locked").chmod(0)
    if os.geteuid() == 0:  # modes do not stop root: the kernel's answer is given for it
        plain = output_search.open_folder  # type: ignore[attr-defined]

        def refuse(root: int, name: str) -> int:
            if name == "d/locked":
                raise PermissionError(13, "Permission denied")
            return plain(root, name)

        monkeypatch.setattr(output_search, "open_folder", refuse)
    found = find_outputs(str(folder), ["d"])
    assert names(found) == ["d/y"]
    assert refusals(found) == {"d/locked": "cannot be read: Permission denied"}
    (folder / "d/locked").chmod(0o700)


def test_the_number_of_entries_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_search, "MAX_ENTRIES", 50)
    make(folder, *(f"d/{number}" for number in range(100)), "last")
    found = find_outputs(str(folder), ["d", "nothing"])
    assert 40 < len(found.outputs) <= 50
    assert found.missing == ["nothing"]
    assert "more than 50 entries" in refusals(found)["d, nothing"]
    # A file that is named is found among any number of others.
    assert names(find_outputs(str(folder), ["last", "d/7"])) == ["d/7", "last"]


def test_the_number_of_files_and_the_bytes_of_their_names_are_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(folder, *(f"{number:04}" for number in range(30)))
    monkeypatch.setattr(output_search, "MAX_FILES", 20)
    found = find_outputs(str(folder), ["*"])
    assert len(found.outputs) == 20
    assert refusals(found) == {"*": "the search ended early: more than 20 files match"}
    monkeypatch.setattr(output_search, "MAX_TOTAL_NAME_BYTES", 40)
    assert len(find_outputs(str(folder), ["*"]).outputs) == 10


def test_refusals_are_told_one_by_one_up_to_a_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_search, "MAX_REFUSED", 5)
    for number in range(12):
        (folder / f"{number}").symlink_to("/etc/passwd")
    found = find_outputs(str(folder), ["*"])
    assert len(found.refused) == 6
    assert refusals(found)["..."] == "7 more files"


def test_the_depth_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_search, "MAX_DEPTH", 4)
    make(folder, "1/2/3/4/in", "1/2/3/4/5/out")
    found = find_outputs(str(folder), ["1"])
    assert names(found) == ["1/2/3/4/in"]
    assert refusals(found) == {"1/2/3/4/5": "more than 4 folders deep"}


def test_the_search_ends_after_its_time_and_at_a_cancellation(folder: Path) -> None:
    for number in range(1000):
        (folder / str(number)).touch()
    instants = iter(range(0, 100_000, 50))
    found = find_outputs(str(folder), ["*"], clock=lambda: float(next(instants)))
    assert 0 < len(found.outputs) < 1000
    assert "longer than 60 s" in refusals(found)["*"]
    asked: list[int] = []

    def is_cancelled() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(SearchCancelled):
        find_outputs(str(folder), ["*"], is_cancelled=is_cancelled)


def test_a_file_that_becomes_a_link_after_the_walk_is_not_read(folder: Path, tmp_path: Path) -> None:
    make(tmp_path, "secret")
    make(folder, "d/file")
    [output] = find_outputs(str(folder), ["d"]).outputs
    (folder / "d/file").unlink()
    (folder / "d/file").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="a link, not a regular file"):
        open_output(str(folder), output.source)
    (folder / "d/file").unlink()
    (folder / "d").rmdir()
    make(tmp_path, "other/file")
    (folder / "d").symlink_to(tmp_path / "other")
    with pytest.raises(NotADirectoryError):
        open_output(str(folder), output.source)


def test_folders_are_not_made_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    root = open_root(str(folder))
    with pytest.raises(NotADirectoryError):
        make_folders(root, "link/below")
    os.close(make_folders(root, "a/b"))
    with pytest.raises(OSError, match="folder"):
        open_file(root, "a")
    os.close(root)
    assert list((tmp_path / "outside").iterdir()) == []


class _Line:
    """Reads a body as the connection does; `meanwhile` happens before each piece."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.sent = b""
        self.announced = 0
        self._meanwhile = meanwhile

    def request(self, method: str, path: str, body: Readable, headers: dict[str, str]) -> bytes:
        self.announced = int(headers["Content-Length"])
        self._meanwhile()
        while data := body.read(7):
            self.sent += data
            self._meanwhile()
        return b""


def test_as_many_bytes_are_sent_as_were_announced(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"12345678" * 10_000)

    def grow() -> None:
        with place.open("ab") as more:
            more.write(b"more")

    line = _Line(grow)
    with place.open("rb") as file:
        upload(line, (1, 1), "n", file)  # type: ignore[arg-type]
    assert len(line.sent) == line.announced == 80_000
    line = _Line(lambda: os.truncate(place, 3))
    with place.open("rb") as file, pytest.raises(Unreadable, match="shorter"):
        upload(line, (1, 1), "n", file)  # type: ignore[arg-type]


def test_a_sparse_file_beyond_the_limit_is_not_sent(tmp_path: Path) -> None:
    place = tmp_path / "sparse"
    with place.open("wb") as file:
        file.truncate(1 << 40)
    line = _Line()
    with place.open("rb") as file, pytest.raises(Unreadable, match="1,099,511,627,776 bytes"):
        upload(line, (1, 1), "n", file, max_bytes=10_000_000_000)  # type: ignore[arg-type]
    assert line.sent == b""
