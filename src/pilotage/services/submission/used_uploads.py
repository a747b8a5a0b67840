"""Uploaded input files that a submission names: retention keeps them as long as their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from pilotage.core.errors import InvalidInput
from pilotage.store.tables import chunks, submissions
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input


def use_inputs(tx: Transaction, owner: str, inputs: Sequence[Input], now: float) -> None:
    """Mark the uploads as used; raises InvalidInput if one was deleted since the submission was prepared.

    Updating their rows conflicts with a server that deletes old uploads at the same time, so only one of them succeeds.
    """
    for item in inputs:
        if not submissions.renew_upload(tx.connection, owner, item.source, now):
            raise InvalidInput(
                f"the uploaded input {item.name} was deleted, because it was too old",
                hint="submit again with the file",
            )


def use_files(tx: Transaction, owner: str, chunk: ChunkRow, digests: Sequence[str]) -> None:
    """Mark the input files named in the rows of a chunk as used, like `use_inputs`."""
    if not digests:
        return
    if submissions.renew_uploads(tx.connection, owner, digests, chunk.accepted) != len(digests):
        raise InvalidInput(
            "an uploaded input file of these rows was deleted, because it was too old",
            hint="submit again with the files",
        )
    chunks.insert_files(tx.connection, chunk.submission, chunk.number, digests)
