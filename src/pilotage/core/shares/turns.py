"""Turns of owners on pilots that serve one owner at a time, since their nodes isolate nobody.

A pilot's first job gives its owner the first turn. A turn lasts for one quantum. When it is over, lots are drawn among
all queues that the pilot would fit were it bound to nobody: `LOTS` draws by the rule in force. They divide the next
turn's core-seconds among the owners that won them. The owner with the largest account has that turn, and pays for the
whole of it. So each owner's turns add up to what the draws give that owner, within a quantum for each pilot, however
few the turns are: a single draw for each turn would need hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pilotage.core.ids import PilotId

LOTS = 256
"""Draws for each turn."""

CLOSE = 1 / 8
"""A pilot stays with its owner unless another account is larger by more than this part of a turn."""

FORGOTTEN = 1024
"""Turns of pilots that gave way, kept for the director; more than these nobody has asked for."""

SHARE = "share"
"""The reason for which such a pilot leaves."""


def leave_for(owner: str) -> str:
    """What the row of a pilot that gives way keeps in `leave`: the next turn there is `owner`'s."""
    return f"{SHARE}:{owner}"


def next_owner(leave: str) -> str | None:
    """Whose turn comes after a pilot with this `leave`; None: it does not give way."""
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
    dealt: Mapping[str, float] = field(default_factory=dict)
    """What each owner was given of it."""
    paid: float = 0.0
    """What its owner paid. 0: a pilot's first turn, which a plain draw gave, is paid for when it is over."""

    def over(self, now: float) -> bool:
        """A clock that stepped back ends it as well."""
        return self.begun is not None and not self.begun <= now < self.begun + self.length

    def unused(self, at: float) -> float:
        """The part that is left of it."""
        if self.begun is None:
            return 1.0
        return min(1.0, max(0.0, (self.begun + self.length - at) / self.length))


@dataclass(slots=True)
class TurnBook:
    """The turns of one server's pilots, and the accounts of owners at each CE. It may be forgotten.

    Its methods return how to undo what they did.
    """

    accounts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Core-seconds by CE and owner."""
    running: dict[PilotId, Turn] = field(default_factory=dict)
    following: dict[PilotId, Turn] = field(default_factory=dict)
    """By the pilot that gives way: the turn of the pilot that is to be started in its place."""

    def over(self, pilot: PilotId, now: float) -> bool:
        """Whether lots are to be drawn before a pilot that is bound to an owner is given jobs."""
        turn = self.running.get(pilot)
        return turn is not None and turn.over(now)

    def draw_up(
        self,
        turn: Turn,
        cores: int,
        lots: Mapping[str, int],
        waiting: Callable[[str], int],
        *,
        fixed: bool = False,
    ) -> Callable[[], None]:
        """Divide a turn by the lots, and have it be `turn.owner`'s or, unless that is `fixed`, another one's.

        `lots`: how many each owner won. `waiting`: the number of an owner's waiting jobs.
        """
        before = self.accounts.get(turn.ce, {})
        accounts = self.accounts[turn.ce] = {owner: before[owner] for owner in before if before[owner]}
        amount, number = turn.length * cores, sum(lots.values())
        turn.dealt = {owner: amount * won / number for owner, won in lots.items()}
        for owner, part in turn.dealt.items():
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
        # One whose pilots to come will take all that waits needs no further one.
        others = [owner for owner in turn.dealt if owner != own and waiting(owner) > self._coming(owner)]
        best = max(others, key=lambda owner: accounts[owner], default=own)
        if own in turn.dealt and accounts[best] <= accounts[own] + amount * CLOSE:
            return own
        return best

    def _coming(self, owner: str) -> int:
        """Pilots that are to be started, or have been, and have not asked for work yet."""
        coming = sum(turn.owner == owner for turn in self.following.values())
        return coming + sum(turn.owner == owner and turn.begun is None for turn in self.running.values())

    def begin(self, pilot: PilotId, turn: Turn, now: float) -> Callable[[], None]:
        """The pilot asks for work in this turn."""
        before, begun = self.running.get(pilot), turn.begun
        self.running[pilot] = turn
        turn.begun = now

        def undo() -> None:
            turn.begun = begun
            _restored(self.running, pilot, before)

        return undo

    def give_way(self, pilot: PilotId, turn: Turn) -> Callable[[], None]:
        """The pilot leaves, and `turn` is that of the next one in its place."""
        before = self.running.pop(pilot, None)
        self.following[pilot] = turn
        if len(self.following) > FORGOTTEN:
            del self.following[next(iter(self.following))]

        def undo() -> None:
            self.following.pop(pilot, None)
            _restored(self.running, pilot, before)

        return undo

    def take_over(self, pilot: PilotId) -> tuple[Turn | None, Callable[[], None]]:
        """The turn after that of a pilot that gave way; None: another server knows it."""
        turn = self.following.pop(pilot, None)
        return turn, lambda: _restored(self.following, pilot, turn)

    def start(self, pilot: PilotId, turn: Turn) -> Callable[[], None]:
        """The pilot is started for this turn, which begins when it first asks for work."""
        self.running[pilot] = turn
        return lambda: _restored(self.running, pilot, None)

    def end(self, pilot: PilotId, at: float | None) -> Callable[[], None]:
        """A pilot has ended, or serves nobody after all: what is left of its turn is given back. `at` None: all."""
        turn = self.running.pop(pilot, None)
        if turn is None:
            return lambda: None
        undo = self.give_back(turn, at)

        def restore() -> None:
            undo()
            self.running[pilot] = turn

        return restore

    def give_back(self, turn: Turn, at: float | None) -> Callable[[], None]:
        """Nobody uses what is left of a turn at the instant `at`; None: nobody has used any of it."""
        before = self.accounts.get(turn.ce, {})
        if not turn.paid:
            return lambda: None
        part = 1.0 if at is None else turn.unused(at)
        accounts = self.accounts[turn.ce] = dict(before)
        for owner, dealt in turn.dealt.items():
            accounts[owner] = accounts.get(owner, 0.0) - part * dealt
        accounts[turn.owner] = accounts.get(turn.owner, 0.0) + part * turn.paid
        return lambda: self._restore(turn.ce, before)

    def _restore(self, ce: str, before: dict[str, float]) -> None:
        self.accounts[ce] = before


def _fade(absent: Iterable[str], accounts: dict[str, float], amount: float) -> None:
    """Who has nothing waiting neither gains nor owes for ever."""
    for owner in absent:
        accounts[owner] *= 1 - 1 / LOTS
        if abs(accounts[owner]) < amount / LOTS:
            del accounts[owner]


def _restored(turns: dict[PilotId, Turn], pilot: PilotId, before: Turn | None) -> None:
    if before is None:
        turns.pop(pilot, None)
    else:
        turns[pilot] = before
