"""The frame of adapters whose batch system is asked by client commands, and holds submissions until their release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pilotage.outside.batch.adapter import BatchAccount, Receipt, submissions_of
from pilotage.outside.batch.command_client import CommandClient, UnreadableOutput
from pilotage.outside.batch.runner import CommandResult
from pilotage.outside.batch.submission import (
    STAMP_PREFIX,
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

Properties = dict[tuple[str, int | None], dict[str, str]]
"""The properties of pilots, by stamp and index."""


class CommandBatch(ABC):
    """An adapter that runs client commands. It keeps no state: everything is read from the batch system."""

    holds = True
    keeps_ended = False
    place = ""

    def __init__(self, client: CommandClient, user: str, log_folder: str) -> None:
        """`user`: the account that the pilots run under."""
        self._client = client
        self._user = user
        self._log_folder = log_folder

    def close(self) -> None:
        self._client.runner.close()

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if batch_ids:
            self._client.check_epoch(epoch, self._epoch())
            self._cancel_ids(batch_ids)

    @abstractmethod
    def _cancel_ids(self, batch_ids: Sequence[str]) -> None:
        """Cancel single pilots or arrays by ids of the epoch of now."""

    def _known_pilots(self, batch_ids: Sequence[str]) -> list[str]:
        """The ids that still are pilots of this account: another job may have got an id of them."""
        tasks = [task for task in self._tasks(None) if task.stamp.startswith(STAMP_PREFIX)]
        alive = [task for task in tasks if task.state is not NativeState.ENDED]
        known = {task.batch_id for task in alive} | {task.array for task in alive}
        return [batch_id for batch_id in batch_ids if batch_id in known]

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        return self._client.list_in_one_epoch(self._epoch, lambda: self._tasks(stamps))

    @abstractmethod
    def _epoch(self) -> str:
        """The start of the controller and its cluster: ids of another epoch may belong to other jobs."""

    def _tasks(self, stamps: Collection[str] | None) -> tuple[ListedTask, ...]:
        """The batch jobs with these stamps. None: all of the account."""
        if stamps is None:
            return tuple(self._listed(None))
        wanted = frozenset(stamps)
        return tuple(task for task in self._listed(stamps) if task.stamp in wanted) if wanted else ()

    @abstractmethod
    def _listed(self, stamps: Collection[str] | None) -> Iterable[ListedTask]:
        """The batch jobs with these stamps or all, perhaps with others between them."""

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """List by stamp: a listing by ids may fail if one of them is gone, or show another job."""
        return self.list_pilots(submissions_of(batch_ids))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        return [task for task in self._accounted(stamps, since) if task.stamp in stamps] if stamps else []

    @abstractmethod
    def _accounted(self, stamps: Collection[str], since: float) -> Iterable[ListedTask]:
        """The batch jobs of `list_accounted`, perhaps with others between them."""

    def properties(self, stamps: Collection[str] | None = None) -> Properties:
        if stamps is not None and not stamps:
            return {}
        listed = self._properties(stamps)
        return {pilot: values for pilot, values in listed.items() if stamps is None or pilot[0] in stamps}

    @abstractmethod
    def _properties(self, stamps: Collection[str] | None) -> Properties:
        """The answer of `properties`, perhaps with batch jobs of other stamps."""

    def accounts(self) -> list[BatchAccount]:
        """Most batch systems do not say which accounts a user may charge."""
        return []

    def output(self, stamp: str, index: int, most: int) -> str:
        return self._client.read_log_tail(self._log_folder, stamp, index, most)


def read_receipt(
    result: CommandResult,
    classify: Callable[[int | None, str], tuple[SubmissionRefusal, str]],
    read: Callable[[str], Receipt],
) -> Receipt:
    """The receipt of a submission from the result of its command, or `SubmissionFailed`.

    `classify`: class and text of a failure, from status and errors. `read`: the receipt, from the output.
    """
    if result.never_began:
        raise SubmissionFailed(SubmissionRefusal.UNREACHED, result.unreached)
    if not result.succeeded:
        raise SubmissionFailed(*classify(result.status, result.errors))
    try:
        return read(result.output)
    except UnreadableOutput as error:
        raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, str(error)) from None
