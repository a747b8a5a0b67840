"""Which failures to store a file are the sender's, and which the server's."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput, Unreachable
from pilotage.outside.sandbox.directory import DirectorySandbox


def put(sandbox: DirectorySandbox, name: str) -> int:
    async def bytes_() -> AsyncIterator[bytes]:
        yield b"x"

    return asyncio.run(sandbox.put_output(1, 1, name, bytes_(), 100))


@pytest.mark.parametrize("name", ["file/below", "folder", "n" * 300])
def test_a_name_that_cannot_be_is_refused_and_would_be_again(tmp_path: Path, name: str) -> None:
    sandbox = DirectorySandbox(tmp_path)
    put(sandbox, "file")
    put(sandbox, "folder/inside")
    with pytest.raises(InvalidInput):
        put(sandbox, name)


def test_an_error_of_the_disk_is_no_word_about_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pilot gives up a file that is refused, and keeps one while the server fails."""
    sandbox = DirectorySandbox(tmp_path)

    def broken(source: object, target: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(OSError, match="Input/output"):
        put(sandbox, "file")


@pytest.mark.parametrize(
    "name", ["n" * 256, "é" * 128, f"a/{'n' * 300}", "/".join(["n" * 200] * 16), "\udc80" * 100]
)
def test_a_name_that_no_file_system_has_is_refused_before_it_is_looked_for(tmp_path: Path, name: str) -> None:
    sandbox = DirectorySandbox(tmp_path)
    with pytest.raises(InvalidInput):
        sandbox.open_output(1, 1, name)


def test_folders_that_were_removed_are_made_again_with_their_mark(tmp_path: Path) -> None:
    sandbox = DirectorySandbox(tmp_path / "sandboxes")
    mark = sandbox.mark
    shutil.rmtree(tmp_path / "sandboxes")
    assert put(sandbox, "file") == 1
    assert DirectorySandbox(tmp_path / "sandboxes").mark == mark
    shutil.rmtree(tmp_path / "sandboxes" / "partial")
    digest = hashlib.sha256(b"x").hexdigest()
    sandbox.put_inputs([(digest, b"x")])
    assert sandbox.input_path(digest).read_bytes() == b"x"
    shutil.rmtree(tmp_path / "sandboxes" / "tails")
    sandbox.append_tail(1, 1, "stdout", 0, b"x")


def test_a_folder_without_its_mark_may_be_an_unmounted_disk(tmp_path: Path) -> None:
    sandbox = DirectorySandbox(tmp_path / "sandboxes")
    shutil.rmtree(tmp_path / "sandboxes")
    (tmp_path / "sandboxes").mkdir()
    with pytest.raises(Unreachable, match="cannot be used"):
        put(sandbox, "file")
    shutil.rmtree(tmp_path / "sandboxes")
    (tmp_path / "sandboxes").write_text("a file")
    with pytest.raises(Unreachable):
        put(sandbox, "file")
