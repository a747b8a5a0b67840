"""Servers with one queue offer different jobs of it, and each of them offers all in the end."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from pilotage.core.queues.draws import FIRST
from pilotage.core.queues.index import QueueIndex
from pilotage.core.queues.own_part import WINDOW, OwnPart
from tests.unit.core.queues.test_index import OFFER, Shelf, entry, holds, index_of

JOBS = 2000


def shelf_of(ids: Sequence[int]) -> Shelf:
    shelf = Shelf()
    shelf.waiting = dict.fromkeys(ids, (1, 1))
    return shelf


def index_for(shelf: Shelf, place: int, servers: int) -> QueueIndex:
    index = index_of(shelf, "dirac", entry(1))
    index.own_part = OwnPart((place, servers))
    return index


def drawn(index: QueueIndex, count: int) -> list[int]:
    """The ids of jobs, in the order in which they are drawn."""
    rng, offer_class = Random(2), index.offer_class(OFFER)
    proposals = [index.propose(offer_class, holds, rng) for _ in range(count)]
    return [proposal.job for proposal in proposals if proposal is not None]


@pytest.mark.parametrize("step", [1, 2, 3, 200])
@pytest.mark.parametrize("servers", [2, 3])
def test_servers_that_know_nothing_of_each_other_draw_different_jobs(step: int, servers: int) -> None:
    shelf = shelf_of(range(step, step * JOBS, step))
    of_servers = [drawn(index_for(shelf, place, servers), 40) for place in range(servers)]
    everybody = [job for jobs in of_servers for job in jobs]
    assert len(everybody) == 40 * servers
    assert len(set(everybody)) == len(everybody)


def test_without_parts_they_draw_the_same() -> None:
    shelf = shelf_of(range(1, JOBS))
    assert set(drawn(index_for(shelf, 0, 1), 40)) == set(drawn(index_for(shelf, 0, 1), 40))


def test_a_server_whose_peers_draw_nothing_draws_every_job_in_about_its_order() -> None:
    shelf = shelf_of(range(1, JOBS + 1))
    jobs = drawn(index_for(shelf, 1, 3), JOBS)
    assert sorted(jobs) == list(range(1, JOBS + 1))
    behind = max(place - job for place, job in enumerate(jobs))
    assert FIRST < behind <= 3 * WINDOW
