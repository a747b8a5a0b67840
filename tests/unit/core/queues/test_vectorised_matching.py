"""The vectorised matching and the predicate agree on every queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.queues.fit import STATIC, Condition, Offer, static_failure
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limits import ATTRIBUTES, Limit
from pilotage.core.queues.vectorised_matching import FITS, ORDER, VectorisedMatching
from tests.unit.core.queues.offers import identities, offers


@given(st.lists(identities(), max_size=12), st.lists(offers(), min_size=1, max_size=4), st.integers(0, 12))
def test_the_vectorised_matching_fails_where_the_predicate_fails(
    queues: list[QueueIdentity], asked: list[Offer], first: int
) -> None:
    """Also of queues that came after a question was asked for the first time."""
    screen = VectorisedMatching()
    for identity in queues[:first]:
        screen.add(identity)
    for offer in asked:
        screen.failures(offer, np.arange(len(screen)))
    for identity in queues[first:]:
        screen.add(identity)
    for offer in asked:
        said = screen.failures(offer, np.arange(len(screen)))
        found = [None if place == FITS else ORDER[place] for place in said]
        assert found == [static_failure(identity, offer) for identity in queues]


@given(st.lists(identities(), max_size=12), st.sampled_from(ATTRIBUTES), st.data())
def test_the_vectorised_matching_knows_the_queues_of_a_limit(
    queues: list[QueueIdentity], attribute: str, data: Any
) -> None:
    screen = VectorisedMatching()
    for identity in queues:
        screen.add(identity)
    values = {"nobody"}
    for identity in queues:
        value = getattr(identity, attribute)
        values |= value if isinstance(value, frozenset) else {str(value)}
    limit = Limit(attribute, data.draw(st.sampled_from(sorted(values))), running=1)
    said = screen.limited_by([limit], np.arange(len(screen)))
    assert said.tolist() == [limit.applies_to(identity) for identity in queues]


class Only:
    """Has some attributes of another, and no others."""

    def __init__(self, whole: object, names: tuple[str, ...]) -> None:
        for name in names:
            setattr(self, name, getattr(whole, name))


@given(identities(), offers())
def test_a_condition_reads_what_it_says(queue: QueueIdentity, offer: Offer) -> None:
    for condition, rule in STATIC.items():
        partly: Any = rule.met
        found = partly(Only(queue, rule.of_queue), Only(offer, rule.of_offer))
        assert found == rule.met(queue, offer), condition


def test_every_condition_that_an_offer_alone_decides_is_there() -> None:
    others = {Condition.MEMBERSHIP, Condition.REQUIREMENTS, Condition.LIMIT, Condition.BACKGROUND}
    assert set(STATIC) == set(Condition) - others


def test_the_vectorised_matching_grows_with_its_queues() -> None:
    screen = VectorisedMatching()
    for number in range(2000):
        assert screen.add(QueueIdentity(f"o{number}", "g", cpu_time=number)) == number
    offer = Offer("here", "ce", cpu_time=1234)
    said = screen.failures(offer, np.arange(2000))
    assert [
        ORDER.index(Condition.CPU_TIME) if number > 1234 else FITS for number in range(2000)
    ] == said.tolist()
    with pytest.raises(IndexError):
        screen.failures(offer, np.array([5000]))
