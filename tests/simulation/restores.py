"""Restores of the database from a backup: what the store went back to, and what it has forgotten.

The documentation promises: reports of earlier pilots are refused, and these pilots leave. Jobs that had not ended at
the time of the backup run again. Jobs that were submitted later are lost, and their ids are not given again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.broken import need
from tests.simulation.stores import Rows


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store has at one instant."""

    incarnation: int
    jobs: frozenset[int]
    applied: frozenset[tuple[int, int]]
    """Tries whose results were taken."""
    requests: frozenset[int]
    pilots: frozenset[str]
    """Their stamps."""


@dataclass(frozen=True, slots=True)
class Restore:
    backed_up: float
    """When the backup was made, on the loop's clock."""
    at: float
    before: StoreFacts
    """The store that was replaced."""
    after: StoreFacts
    """The store as restored."""

    @property
    def lost_jobs(self) -> frozenset[int]:
        return self.before.jobs - self.after.jobs

    @property
    def lost_pilots(self) -> frozenset[str]:
        return self.before.pilots - self.after.pilots

    @property
    def lost_requests(self) -> frozenset[int]:
        return self.before.requests - self.after.requests


class Restores:
    """All restores of a history."""

    def __init__(self) -> None:
        self.all: list[Restore] = []

    def add(self, restore: Restore) -> None:
        self.all.append(restore)

    def __bool__(self) -> bool:
        return bool(self.all)

    def later_than(self, incarnation: int) -> Iterator[Restore]:
        """The restores after which pilots of this incarnation are no longer heard."""
        return (one for one in self.all if one.after.incarnation > incarnation)

    def may_be_forgotten(self, incarnation: int, instant: float) -> bool:
        """Whether the store may have forgotten something of this incarnation that happened at this instant."""
        return any(instant > one.backed_up for one in self.later_than(incarnation))

    def pilots_by_store(self, stamps: frozenset[str]) -> Iterator[frozenset[str]]:
        """Those of all pilots that one store has known, for each: the replaced ones, and that of the end."""
        for one in self.all:
            yield stamps & one.before.pilots
            stamps -= one.lost_pilots
        yield stamps

    def seconds_forgotten(self) -> float:
        return sum(one.at - one.backed_up for one in self.all)

    def check(self, connection: Rows) -> None:
        """Lost jobs stay lost: nobody else has their ids."""
        known = jobs_in(connection)
        for one in self.all:
            given_again = sorted(one.lost_jobs & known)
            need(not given_again, f"ids of lost jobs were given again: {given_again[:5]}")


def jobs_in(connection: Rows) -> frozenset[int]:
    return frozenset(
        id_ for (id_,) in connection.execute("SELECT id FROM jobs UNION ALL SELECT id FROM history")
    )


def facts_of(connection: Rows) -> StoreFacts:
    [incarnation] = connection.execute("SELECT incarnation FROM instance").fetchone()
    applied = connection.execute("SELECT job_id, epoch FROM attempts WHERE outcome = 'applied'")
    requests = connection.execute("SELECT id FROM requests")
    pilots = connection.execute("SELECT stamp FROM pilots")
    return StoreFacts(
        incarnation,
        jobs_in(connection),
        frozenset((job, epoch) for job, epoch in applied),
        frozenset(id_ for (id_,) in requests),
        frozenset(stamp for (stamp,) in pilots),
    )
