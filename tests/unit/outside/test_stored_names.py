"""Which failures to store a file are the sender's, and which the server's."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput
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
