"""Interleaves two kinds of transactions, and compares the state with those of both serial orders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from tests.interleavings import visible
from tests.interleavings.footprints import Footprint, together
from tests.interleavings.judges import complaints, finish_all
from tests.interleavings.kinds import KINDS
from tests.interleavings.kinds_of_people import Kind
from tests.interleavings.race import Broken, Interleaver, Outcome, answer_of, footprints_of
from tests.interleavings.server import PairServer
from tests.interleavings.settling import settle
from tests.interleavings.snapshot import State
from tests.interleavings.visible import Visible
from tests.interleavings.world import World

NUMBER = re.compile(r"\d+")


class Finding(NamedTuple):
    """A wrong state."""

    first: str
    second: str
    trip: int
    words: tuple[str, ...]
    """What the callers were told."""
    complaints: tuple[str, ...]
    difference: str
    """From the state of a serial order."""


class Look(NamedTuple):
    """The state after the duties have settled."""

    seen: Visible
    wrong: frozenset[str]


class Serial:
    """One kind after the other, each in peace."""

    def __init__(self, world: World, steps: Sequence[tuple[PairServer, Kind]]) -> None:
        self._world, self._steps = world, steps
        self._run()
        self.state: State = world.snapshot.state()

    def _run(self) -> None:
        self._world.restore()
        for server, kind in self._steps:
            answer_of(server.begin(kind(self._world)))

    @cached_property
    def look(self) -> Look:
        self._run()
        return look(self._world)

    @cached_property
    def end(self) -> frozenset[str]:
        """What is wrong once all work has gone on."""
        self._run()
        return frozenset([*look(self._world).wrong, *end(self._world)])


def new_in(wrong: frozenset[str], serial: frozenset[str]) -> frozenset[str]:
    """The complaints that a serial order does not have. The ids in them depend on the order."""
    known = {NUMBER.sub("", complaint) for complaint in serial}
    return frozenset(complaint for complaint in wrong if NUMBER.sub("", complaint) not in known)


def look(world: World) -> Look:
    try:
        settle(world)
    except AssertionError as error:
        return Look({}, frozenset([str(error)]))
    return Look(visible.read(world.session), frozenset(complaints(world)))


def end(world: World) -> list[str]:
    """What is wrong after agents and pilots have done all that they are given."""
    try:
        return [*finish_all(world), *complaints(world)]
    except Exception as error:
        return [f"the work does not go on: {type(error).__name__}: {error}"]


class Pairs:
    """All cases on one world."""

    def __init__(self, world: World, kinds: Mapping[str, Kind] = KINDS) -> None:
        self.world, self.kinds = world, kinds
        self._interleaver = Interleaver(world)
        self._footprints: dict[str, list[Footprint]] = {}
        self._right: set[State] = set()
        """States that are right whatever has led to them."""
        self.cases = self.settled = self.judged = 0

    def close(self) -> None:
        self._interleaver.close()

    def footprints(self, name: str) -> list[Footprint]:
        """Those of the trips of a kind that runs alone."""
        if name not in self._footprints:
            self.world.restore()
            work = self.kinds[name](self.world)
            _, self._footprints[name] = footprints_of(self.world.first, work, self.world.snapshot.tables)
        return self._footprints[name]

    def trips(self, first: str, second: str) -> list[int]:
        """The trips of the first one before which the second one makes a difference."""
        mine, theirs = self.footprints(first), together(self.footprints(second))
        if not together(mine).conflicts_with(theirs):
            return []
        later = [place + 2 for place, trip in enumerate(mine[:-1]) if trip.conflicts_with(theirs)]
        return [1, *later]

    def check(self, first: str, second: str, trips: Iterable[int] | None = None) -> list[Finding]:
        """All wrong states of a pair. `trips`: only before these trips of the first one."""
        chosen = self.trips(first, second) if trips is None else list(trips)
        if not chosen:
            return []
        world = self.world
        one, two = (world.servers[0], self.kinds[first]), (world.servers[1], self.kinds[second])
        serials = [Serial(world, order) for order in ([one, two], [two, one])]
        found = (self._case(first, second, trip, serials) for trip in chosen)
        return [finding for finding in found if finding is not None]

    def _case(self, first: str, second: str, trip: int, serials: list[Serial]) -> Finding | None:
        world = self.world
        world.restore()
        self.cases += 1
        try:
            words = self._run((first, second), (trip,)).words
        except Broken as error:
            return Finding(first, second, trip, (), (str(error),), "")
        state = world.snapshot.state()
        if state in self._right or any(state == serial.state for serial in serials):
            return None
        self.settled += 1
        here = look(world)
        if not here.wrong and any(here.seen == serial.look.seen for serial in serials):
            self._right.add(state)
            return None
        # It is like neither order. Then all work must still come to its end.
        self.judged += 1
        wrong = here.wrong | frozenset(end(world))
        if not wrong or not (wrong := new_in(wrong, serials[0].end | serials[1].end)):
            self._right.add(state)
            return None
        difference = visible.difference(here.seen, serials[0].look.seen) if here.seen else ""
        return Finding(first, second, trip, words, tuple(sorted(wrong)), difference)

    def _run(self, names: Sequence[str], trips: Sequence[int]) -> Outcome:
        works = [self.kinds[name](self.world) for name in names]
        return self._interleaver.run(*works, trips=trips)

    def check_three(self, names: Sequence[str], trips: Sequence[int]) -> Finding | None:
        """The wrong state of three kinds, each before a trip of the one before it, if they leave any."""
        world = self.world
        world.restore()
        self.cases += 1
        try:
            with world.with_third():
                words = self._run(names, trips).words
        except Broken as error:
            return Finding(names[0], " and ".join(names[1:]), trips[0], (), (str(error),), "")
        wrong = frozenset([*look(world).wrong, *end(world)])
        if wrong:
            servers = [world.first, world.second, world.first]
            kinds = [self.kinds[name] for name in names]
            wrong = new_in(wrong, Serial(world, list(zip(servers, kinds, strict=True))).end)
        if not wrong:
            return None
        return Finding(names[0], " and ".join(names[1:]), trips[0], words, tuple(sorted(wrong)), "")
