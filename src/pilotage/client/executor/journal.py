"""The journal of an executor with a name, on the client's disk: a later process finds its calls there.

A line is written before a submission is sent, and one when it was accepted. The first has the idempotency key, so a
submission without the second is sent again as it was: the server knows it, or takes it now.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotage.core.errors import Conflict, InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass
class SentChunks:
    """A submission: its description, and the keys of the calls of each job."""

    key: str
    description: dict[str, Any]
    group: str
    chunks: list[list[str]]
    submission: int = 0
    first: int = 0
    """Its first job; 0: whether it was accepted is not known."""


class CallJournal:
    """The journal of one name, for one process at a time."""

    def __init__(self, above: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{name!r} cannot be the name of an executor: letters, digits and ._- only")
        self.folder = folder = above / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = (folder / "journal.jsonl").open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as trouble:
            self._file.close()
            raise Conflict(
                f"another process uses the executor {name!r}", hint="end it, or take another name"
            ) from trouble
        self.sent = self._read()

    def _read(self) -> dict[str, SentChunks]:
        """All submissions by their keys. A line that was cut short was never acted on: it is removed."""
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        self._file.truncate(whole)
        sent: dict[str, SentChunks] = {}
        for line in content[:whole].splitlines():
            fields = json.loads(line)
            if "chunks" in fields:
                sent[fields["key"]] = SentChunks(**fields)
            elif "refused" in fields:
                sent.pop(fields["key"])
            else:
                submission = sent[fields["key"]]
                submission.submission, submission.first = fields["submission"], fields["first"]
        return sent

    def sending(self, sent: SentChunks) -> None:
        facts = {"key": sent.key, "description": sent.description, "group": sent.group, "chunks": sent.chunks}
        self._append(facts)

    def accepted(self, key: str, submission: int, first: int) -> None:
        self._append({"key": key, "submission": submission, "first": first})

    def refused(self, key: str) -> None:
        """The server took nothing of it: it is not sent again."""
        self._append({"key": key, "refused": True})

    def _append(self, facts: dict[str, Any]) -> None:
        line = memoryview(json.dumps(facts).encode() + b"\n")
        while line:
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
