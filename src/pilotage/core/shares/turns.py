"""Turns of owners on pilots that serve one owner at a time because their nodes do not isolate owners.

The owner of a pilot's first job has the first turn. A turn lasts for one quantum. At its end, `LOTS` lots are drawn by
the rule in force, among all queues that would fit the pilot if it were not bound. The lots divide the core-seconds of
the next turn among the owners. The owner with the largest account has the next turn and pays for all of it. So the
turns of each owner follow the draws within one quantum for each pilot, even over few turns. A single draw for each turn
would need hundreds of turns for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pilotage.core.ids import PilotId

LOTS = 256
"""Draws for each turn."""

HYSTERESIS = 1 / 8
"""A pilot stays with its owner unless another account is larger by more than this part of a turn."""

MAX_FOLLOWING = 1024
"""Turns kept for the successors of pilots that gave way. The oldest are dropped beyond this number."""

START_TIME = 60.0
"""Seconds for which the successor of a pilot is expected after the pilot was last heard."""

SHARE = "share"
"""The reason of a pilot that gives way."""


def leave_for(owner: str) -> str:
    """The value of the column `leave` of a pilot that gives way to `owner`."""
    return f"{SHARE}:{owner}"


def next_owner(leave: str) -> str | None:
    """The owner to whom a pilot with this `leave` gives way; None if it does not give way."""
    return leave.removeprefix(f"{SHARE}:") if leave.startswith(f"{SHARE}:") else None


@dataclass(slots=True)
class Turn:
    """One owner's time on one pilot. Amounts are core-seconds."""

    ce: str
    owner: str
    length: float
    """Seconds."""
    begun: float | None = None
    """None: its pilot has not asked for work yet."""
    credited: Mapping[str, float] = field(default_factory=dict)
    """Core-seconds credited to each owner for it."""
    paid: float = 0.0
    """Core-seconds that its owner paid. 0 for the first turn of a pilot, which is paid at its end."""
    due: float | None = None
    """When the pilot that gave way to it was last heard. None: that pilot has not ended."""

    def over(self, now: float) -> bool:
        """Whether the turn has ended. A clock that steps back also ends it."""
        return self.begun is not None and not self.begun <= now < self.begun + self.length

    def unused(self, at: float) -> float:
        """The part of the turn that remains at `at`."""
        if self.begun is None:
            return 1.0
        return min(1.0, max(0.0, (self.begun + self.length - at) / self.length))

    def is_overdue(self, now: float) -> bool:
        """Whether no successor is expected any longer. A clock that steps back also makes a due turn overdue."""
        return self.due is not None and not self.due <= now < self.due + START_TIME


@dataclass(slots=True)
class TurnBook:
    """The turns of one server's pilots, and the accounts of owners at each CE. Kept in memory only.

    Its methods return a function that undoes them.
    """

    accounts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Core-seconds by CE and owner."""
    running: dict[PilotId, Turn] = field(default_factory=dict)
    following: dict[PilotId, Turn] = field(default_factory=dict)
    """The turn of each successor, under the pilot that gives way."""

    def over(self, pilot: PilotId, now: float) -> bool:
        """Whether lots must be drawn before the bound pilot gets more jobs."""
        turn = self.running.get(pilot)
        return turn is not None and turn.over(now)

    def divide(
        self,
        turn: Turn,
        cores: int,
        lots: Mapping[str, int],
        waiting: Callable[[str], int],
        *,
        fixed: bool = False,
    ) -> Callable[[], None]:
        """Divide the core-seconds of a turn by the lots, and choose its owner unless that is `fixed`.

        `lots`: number of lots won by each owner. `waiting`: number of waiting jobs of an owner.
        """
        before = self.accounts.get(turn.ce, {})
        accounts = self.accounts[turn.ce] = {owner: before[owner] for owner in before if before[owner]}
        amount, number = turn.length * cores, sum(lots.values())
        turn.credited = {owner: amount * won / number for owner, won in lots.items()}
        for owner, part in turn.credited.items():
            accounts[owner] = accounts.get(owner, 0.0) + part
        if not fixed:
            turn.owner = self._next(accounts, turn, amount, waiting)
        if number:
            turn.paid = amount
            accounts[turn.owner] = accounts.get(turn.owner, 0.0) - amount
            _fade([owner for owner in accounts if not waiting(owner)], accounts, amount)
        return lambda: self._restore(turn.ce, before)

    def _next(
        self, accounts: Mapping[str, float], turn: Turn, amount: float, waiting: Callable[[str], int]
    ) -> str:
        own = turn.owner
        best = self.first_waiting(turn.ce, [owner for owner in turn.credited if owner != own], waiting)
        if best is None or (own in turn.credited and accounts[best] <= accounts[own] + amount * HYSTERESIS):
            return own
        return best

    def first_waiting(self, ce: str, owners: Iterable[str], waiting: Callable[[str], int]) -> str | None:
        """The owner with the largest account at the CE, among the owners that need a further pilot.

        An owner whose coming pilots suffice for all waiting jobs needs no further pilot.
        """
        accounts = self.accounts.get(ce, {})
        needing = [owner for owner in owners if waiting(owner) > self._coming(owner)]
        return max(needing, key=lambda owner: accounts.get(owner, 0.0), default=None)

    def _coming(self, owner: str) -> int:
        """Pilots of an owner that are ordered or started and have not asked for work yet."""
        coming = sum(turn.owner == owner for turn in self.following.values())
        return coming + sum(turn.owner == owner and turn.begun is None for turn in self.running.values())

    def begin(self, pilot: PilotId, turn: Turn, now: float) -> Callable[[], None]:
        """The pilot asks for work in this turn."""
        before, begun = self.running.get(pilot), turn.begun
        self.running[pilot] = turn
        turn.begun = now

        def undo() -> None:
            turn.begun = begun
            _put_back(self.running, pilot, before)

        return undo

    def give_way(self, pilot: PilotId, turn: Turn) -> Callable[[], None]:
        """The pilot leaves; its successor has `turn`."""
        before = self.running.pop(pilot, None)
        self.following[pilot] = turn
        if len(self.following) > MAX_FOLLOWING:
            del self.following[next(iter(self.following))]

        def undo() -> None:
            self.following.pop(pilot, None)
            _put_back(self.running, pilot, before)

        return undo

    def take_over(self, pilot: PilotId) -> tuple[Turn | None, Callable[[], None]]:
        """The turn of the successor of a pilot that gave way; None if another server has it."""
        turn = self.following.pop(pilot, None)
        return turn, lambda: _put_back(self.following, pilot, turn)

    def start(self, pilot: PilotId, turn: Turn) -> Callable[[], None]:
        """The pilot is started for this turn, which begins when it first asks for work."""
        self.running[pilot] = turn
        return lambda: _put_back(self.running, pilot, None)

    def end(self, pilot: PilotId, at: float | None) -> Callable[[], None]:
        """A pilot has ended or serves nobody: give back the rest of its turn at `at`, or all of it if `at` is None.

        If it gave way, its successor's turn is due from `at`.
        """
        next_turn = self.following.get(pilot)
        if next_turn is not None:
            return _make_due(next_turn, at) if at is not None else lambda: None
        turn = self.running.pop(pilot, None)
        if turn is None:
            return lambda: None
        undo = self.give_back(turn, at)

        def restore() -> None:
            undo()
            self.running[pilot] = turn

        return restore

    def cancel_overdue(self, now: float) -> Callable[[], None]:
        """Give back overdue turns, so that other pilots may give way to their owners.

        The director takes a turn over soon after its pilot has ended. But the director may pause, or run on another
        server.
        """
        overdue = {pilot: turn for pilot, turn in self.following.items() if turn.is_overdue(now)}
        following = dict(self.following) if overdue else self.following
        undone = [self.give_back(turn, None) for turn in overdue.values()]
        for pilot in overdue:
            del self.following[pilot]

        def restore() -> None:
            self.following = following
            for undo in reversed(undone):
                undo()

        return restore

    def give_back(self, turn: Turn, at: float | None) -> Callable[[], None]:
        """Give back the part of a turn that is unused at `at`, or all of it if `at` is None."""
        before = self.accounts.get(turn.ce, {})
        if not turn.paid:
            return lambda: None
        part = 1.0 if at is None else turn.unused(at)
        accounts = self.accounts[turn.ce] = dict(before)
        for owner, credit in turn.credited.items():
            accounts[owner] = accounts.get(owner, 0.0) - part * credit
        accounts[turn.owner] = accounts.get(turn.owner, 0.0) + part * turn.paid
        return lambda: self._restore(turn.ce, before)

    def _restore(self, ce: str, before: dict[str, float]) -> None:
        self.accounts[ce] = before


def _fade(absent: Iterable[str], accounts: dict[str, float], amount: float) -> None:
    """Let the accounts of owners without waiting jobs decay towards 0."""
    for owner in absent:
        accounts[owner] *= 1 - 1 / LOTS
        if abs(accounts[owner]) < amount / LOTS:
            del accounts[owner]


def _make_due(turn: Turn, at: float) -> Callable[[], None]:
    before = turn.due
    turn.due = at

    def undo() -> None:
        turn.due = before

    return undo


def _put_back(turns: dict[PilotId, Turn], pilot: PilotId, before: Turn | None) -> None:
    if before is None:
        turns.pop(pilot, None)
    else:
        turns[pilot] = before
