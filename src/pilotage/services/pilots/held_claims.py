"""Compares the jobs that pilots say they hold with the store, and loads rows only where the two differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from pilotage.core.ids import PilotId
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.store.tables.held_jobs import HeldReference, not_held
from pilotage.wire.pilot import ExchangeRequest, Reference


class HeldClaims:
    """The claims of all requests of one transaction."""

    def __init__(self, moves: JobTransitions) -> None:
        self.moves = moves
        self._confirmed: set[HeldReference] = set()
        """The store had these as the pilot says. The rows of these jobs were not loaded for that."""

    def load(self, requests: Iterable[tuple[PilotId, ExchangeRequest]]) -> None:
        """Load the jobs of all reports, and the held jobs that differ from the word of their pilot.

        All are locked by one statement, in the order of their ids.
        """
        reported: set[int] = set()
        claims: list[HeldReference] = []
        for pilot, request in requests:
            reported.update(reported_jobs(request))
            claims += [HeldReference(held.job, held.epoch, pilot) for held in request.holding]
        self.moves.load(reported | self._compare(claims, besides=reported))

    def differing(self, pilot: PilotId, holding: Sequence[Reference]) -> Iterator[Reference]:
        """The references of `holding` that differ from the store, one at a time. Their rows are loaded."""
        claims = [HeldReference(held.job, held.epoch, pilot) for held in holding]
        # Jobs that were offered to somebody since they were loaded are read again.
        self.moves.load(self._compare(claims))
        for held, claim in zip(holding, claims, strict=True):
            if not self._is_held(claim):
                yield held

    def _compare(self, claims: Iterable[HeldReference], besides: Set[int] = frozenset()) -> set[int]:
        """The jobs of the claims that the store has otherwise. Jobs with a row, and `besides`, are not compared."""
        rows = self.moves.rows
        unread = [
            claim
            for claim in claims
            if claim.job not in rows and claim.job not in besides and not self._is_held(claim)
        ]
        if not unread:
            return set()
        if any(claim.job in self.moves.moved_since for claim in unread):
            self.moves.write()
        differing = not_held(self.moves.tx.connection, unread)
        self._confirmed.update(claim for claim in unread if claim.job not in differing)
        return differing

    def _is_held(self, claim: HeldReference) -> bool:
        """Whether the pilot holds the job as it says. A job with a row in `moves` is judged by its row."""
        row = self.moves.rows.get(claim.job)
        if row is not None:
            return row.pilot == claim.pilot and row.epoch == claim.epoch
        return claim in self._confirmed and claim.job not in self.moves.offered_since


def reported_jobs(request: ExchangeRequest) -> Iterator[int]:
    """The jobs about which the request reports."""
    yield from (finish.job for finish in request.finishes)
    yield from (release.job for release in request.releases)
    yield from (confirm.job for confirm in request.confirms)
    yield from (start.job for start in request.starts)
