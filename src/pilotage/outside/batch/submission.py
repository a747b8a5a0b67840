"""Answers of batch systems: failed submissions, and listings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from pilotage.core.pilots.handover import Seen
from pilotage.core.pilots.waits import WaitClass

STAMP_PREFIX = "pilotage-"
"""Begins every stamp, so that jobs of the account that are no pilots can be told apart."""


CLUSTER_MARK = "@"


def cluster_of(epoch: str) -> str:
    """The name of the cluster in an epoch; empty: it has none."""
    return epoch.partition(CLUSTER_MARK)[2]


MOST_CHARACTERS = 300
"""Characters of an error or a reason: people read it in lists, and it is stored and logged."""


def in_short(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text of a batch system on one line, at most `most` characters long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


_CHANGING = re.compile(r"'.*|\".*|[0-9]+")
"""The parts of a failure that differ each time: numbers, and the output that it quotes."""


def is_same_failure(one: str, other: str) -> bool:
    """Whether two texts tell of the same failure: it is stored and logged once."""
    return _CHANGING.sub("", one) == _CHANGING.sub("", other)


class SubmissionRefusal(StrEnum):
    """Why a submission has failed."""

    FULL = "full"
    """A limit of the batch system on waiting or submitted jobs: try again later."""
    REFUSED = "refused"
    """The request itself is wrong: submit nothing alike until somebody changes something."""
    UNREACHED = "unreached"
    """Certainly nothing was submitted, as the batch system was not reached: try again when it answers."""
    IN_DOUBT = "in-doubt"
    """The batch system may have the pilots: look the stamp up, never submit again blindly."""


class SubmissionFailed(Exception):
    """A submission was not acknowledged."""

    def __init__(self, refusal: SubmissionRefusal, reason: str) -> None:
        self.refusal = refusal
        self.reason = in_short(reason)
        super().__init__(self.reason)


class NativeState(StrEnum):
    """Meaning of a batch job's state for its pilot. An unknown state moves nothing."""

    HELD = "held"
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ListedTask:
    """One batch job of a listing."""

    stamp: str
    """The job's name. Jobs of the account that are no pilots have names of their own."""
    index: int | None
    """The pilot within its submission. None: all pilots of the submission without a line of their own."""
    batch_id: str
    state: NativeState
    native: str
    """The batch system's own word."""
    reason: str
    """Why the job waits, in the batch system's words; empty: none."""
    node: str
    array: str = ""
    """The id under which the whole submission can be cancelled; empty: it has none."""
    wait: WaitClass | None = None
    """The class of `reason`, of a job that waits or is held; None: it does neither, or the adapter does not tell."""


@dataclass(frozen=True, slots=True)
class BatchListing:
    """One listing of all batch jobs of an account."""

    epoch: str = ""
    """The start of the batch system's controller: ids of another epoch may belong to other jobs.

    After `CLUSTER_MARK` comes the name of the cluster, where it has one.
    """
    tasks: tuple[ListedTask, ...] = ()
    failure: str = ""
    """Why the listing is not complete. Absence from an incomplete listing means nothing."""

    @property
    def complete(self) -> bool:
        return not self.failure

    @property
    def cluster(self) -> str:
        """The name of the cluster; empty: it has none."""
        return cluster_of(self.epoch)

    def find(self, stamp: str, index: int | None = None) -> tuple[Seen, str]:
        """The evidence about one pilot, and its batch id if the listing has it. No index: any of the submission."""
        ended = False
        for task in self.tasks:
            if task.stamp == stamp and (None in (index, task.index) or task.index == index):
                if task.state is NativeState.UNKNOWN:
                    return Seen.UNKNOWN, task.batch_id
                if task.state is not NativeState.ENDED:
                    return Seen.SEEN, task.batch_id
                ended = True
        return (Seen.ABSENT if ended or self.complete else Seen.UNKNOWN), ""
