"""The hand-over of a pilot to a batch system, as a table.

A batch system sends no messages: a director observes it. The identity of a pilot is its *stamp*, written with the
intent before anything is submitted, and carried by the batch job as its name. A batch id is only a listing's
answer about a stamp.

The table is total over phase × sight. A director looks its pilots up by stamp, asks `next_step`, and carries out the
action; the next phase counts once the action has succeeded and is stored. `UNKNOWN` never moves anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class SubmissionPhase(StrEnum):
    """How far the hand-over of one pilot has come."""

    PREPARING = "preparing"
    """Its row and stamp are stored; the call that submits it is under way."""
    HELD = "held"
    """The batch system has it and does not start it."""
    RELEASING = "releasing"
    """The call that lets it start was made, and no listing has shown its effect yet."""
    RELEASED = "released"
    """A listing showed it not held. A pilot that has called home is released, even if the records differ."""
    IN_DOUBT = "in-doubt"
    """A call was not answered, or a listing contradicts the records."""
    CANCELLING = "cancelling"
    """The batch system was told to end it."""
    LOST = "lost"
    """It was given up; should it call home, it is refused."""


class Seen(StrEnum):
    """The answer of one query about a stamp or a batch id."""

    SEEN = "seen"
    ABSENT = "absent"
    """A complete listing does not have it."""
    UNKNOWN = "unknown"
    """The query failed, or its answer was partial or stale."""


class Sight(StrEnum):
    """The evidence of all queries so far about a stamp."""

    HELD = "held"
    """It is there, and the batch system holds it or a part of it."""
    PRESENT = "present"
    """It is there and not held: the batch system lets it start."""
    ABSENT = "absent"
    """The last complete listing does not have it."""
    STILL_ABSENT = "still-absent"
    """Two complete listings, a settle time apart, do not have it, and nothing between them contradicted that.

    A listing that has it contradicts, as do the pilot's own sign of life and an accounting that says it runs.
    """
    UNKNOWN = "unknown"


class Action(StrEnum):
    """The director's reaction."""

    NONE = "none"
    ADOPT = "adopt"
    """Store the batch id that the listing has for the stamp. Of several batch jobs keep one and cancel the rest."""
    RELEASE = "release"
    """Let it start: by stamp where the batch system can, else after comparing stamp and batch id."""
    LOOK_AGAIN = "look-again"
    """Note when it was first absent, and list again after the settle time."""
    ABORT = "abort"
    """It never started: end its row and free its processors. It costs no job a try."""
    LOSE = "lose"
    """It has ended without a word: end its row and take its jobs back, which costs each a try."""
    END = "end"
    """It has ended as it was told: end its row and give its jobs back, which costs nothing."""
    CANCEL = "cancel"
    """Tell the batch system to end it."""


@dataclass(frozen=True, slots=True)
class SubmissionStep:
    action: Action
    next: SubmissionPhase


def _stay(phase: SubmissionPhase) -> SubmissionStep:
    return SubmissionStep(Action.NONE, phase)


P, S, A = SubmissionPhase, Sight, Action

_ADOPT = SubmissionStep(A.ADOPT, P.HELD)
_ADOPT_FREE = SubmissionStep(A.ADOPT, P.RELEASED)
_DOUBT = SubmissionStep(A.LOOK_AGAIN, P.IN_DOUBT)
_ABORT = SubmissionStep(A.ABORT, P.LOST)
_LOSE = SubmissionStep(A.LOSE, P.LOST)
_END = SubmissionStep(A.END, P.LOST)

_FREE = SubmissionStep(A.NONE, P.RELEASED)
_AGAIN = SubmissionStep(A.RELEASE, P.RELEASING)
_CANCEL = SubmissionStep(A.CANCEL, P.CANCELLING)

TABLE: Mapping[tuple[SubmissionPhase, Sight], SubmissionStep] = {
    # The director ended between the call and its record: the stamp tells that it is ours.
    (P.PREPARING, S.HELD): _ADOPT,
    (P.PREPARING, S.PRESENT): _ADOPT_FREE,
    # The call may arrive later than the listing: never submit again blindly.
    (P.PREPARING, S.ABSENT): _DOUBT,
    (P.PREPARING, S.STILL_ABSENT): _ABORT,
    (P.PREPARING, S.UNKNOWN): _stay(P.PREPARING),
    (P.HELD, S.HELD): _AGAIN,
    # The release was made and not recorded, or somebody else made it.
    (P.HELD, S.PRESENT): _FREE,
    # An acknowledged batch job may be gone after a crash of the batch system.
    (P.HELD, S.ABSENT): _DOUBT,
    (P.HELD, S.STILL_ABSENT): _ABORT,
    (P.HELD, S.UNKNOWN): _stay(P.HELD),
    # A command may end well without effect. To release twice does no harm; the director limits it.
    (P.RELEASING, S.HELD): _AGAIN,
    (P.RELEASING, S.PRESENT): _FREE,
    (P.RELEASING, S.ABSENT): _DOUBT,
    (P.RELEASING, S.STILL_ABSENT): _ABORT,
    (P.RELEASING, S.UNKNOWN): _stay(P.RELEASING),
    # A hold after the release is somebody's will.
    (P.RELEASED, S.HELD): _stay(P.RELEASED),
    (P.RELEASED, S.PRESENT): _stay(P.RELEASED),
    (P.RELEASED, S.ABSENT): _LOSE,
    (P.RELEASED, S.STILL_ABSENT): _LOSE,
    (P.RELEASED, S.UNKNOWN): _stay(P.RELEASED),
    (P.IN_DOUBT, S.HELD): _ADOPT,
    (P.IN_DOUBT, S.PRESENT): _ADOPT_FREE,
    (P.IN_DOUBT, S.ABSENT): _DOUBT,
    (P.IN_DOUBT, S.STILL_ABSENT): _ABORT,
    (P.IN_DOUBT, S.UNKNOWN): _stay(P.IN_DOUBT),
    (P.CANCELLING, S.HELD): _CANCEL,
    (P.CANCELLING, S.PRESENT): _CANCEL,
    (P.CANCELLING, S.ABSENT): _END,
    (P.CANCELLING, S.STILL_ABSENT): _END,
    (P.CANCELLING, S.UNKNOWN): _stay(P.CANCELLING),
    # It was given up and is there after all: nobody waits for it.
    (P.LOST, S.HELD): SubmissionStep(A.CANCEL, P.LOST),
    (P.LOST, S.PRESENT): SubmissionStep(A.CANCEL, P.LOST),
    (P.LOST, S.ABSENT): _stay(P.LOST),
    (P.LOST, S.STILL_ABSENT): _stay(P.LOST),
    (P.LOST, S.UNKNOWN): _stay(P.LOST),
}
"""The specification: every phase × sight, for a batch system that can hold a job."""


def next_step(phase: SubmissionPhase, sight: Sight, *, holds: bool = True) -> SubmissionStep:
    """The next step of a pilot. `holds`: whether the batch system can hold a job before it starts.

    Where it cannot, the call that submits a pilot also releases it.
    """
    step = TABLE[phase, sight]
    if not holds and step.next in (P.HELD, P.RELEASING):
        action = A.NONE if step.action is A.RELEASE else step.action
        return SubmissionStep(action, P.RELEASED)
    return step


def sight_of(
    seen: Seen, absent_since: float | None, now: float, settle: float, *, held: bool = False
) -> Sight:
    """Judge one answer. `held`: the batch system holds the batch job that it shows.

    `absent_since`: when a complete listing first lacked the stamp, and each since; or the last contradiction since
    then. `settle`: seconds, at least twice the batch system's own state-save and message time-outs.
    """
    if seen is Seen.SEEN:
        return Sight.HELD if held else Sight.PRESENT
    if seen is Seen.UNKNOWN:
        return Sight.UNKNOWN
    # A clock that stepped back proves nothing.
    settled = absent_since is not None and now - absent_since >= settle
    return Sight.STILL_ABSENT if settled else Sight.ABSENT
