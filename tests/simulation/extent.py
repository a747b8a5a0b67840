"""How long and how busy histories are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """How long and how busy a history is."""

    storm: float = 600.0
    """Seconds in which faults happen."""
    user_jobs: int = 200
    """Jobs that people submit, at least. The requests have some seventy more."""
    faults: tuple[int, int] = (36, 52)
    """The least and the most of them."""
    least_period: float = 8.0
    """Seconds between two cycles of a duty, at least: each costs time of the run."""
    longest_job: int = 200
    """Seconds that the work of a job takes, at most."""
    losses_of_agents: tuple[int, int] = (0, 0)
    """The least and the most of the elements that agents lose when they have just got them."""
    small_requests: tuple[int, int] = (0, 0)
    """The least and the most of the further requests, with one element each."""
    late: float = 45.0
    """Seconds after which a duty that was due has surely run."""


WHOLE = Extent()
SHORT = Extent(
    storm=150.0,
    user_jobs=40,
    faults=(6, 14),
    least_period=12.0,
    longest_job=30,
    losses_of_agents=(15, 30),
    small_requests=(3, 6),
    late=90.0,
)
"""Of histories with transactions that overlap: each trip to PostgreSQL takes a millisecond."""
