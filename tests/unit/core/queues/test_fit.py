"""The one predicate (docs/reference/rules.md, section 2): each condition by itself, their order, and private pilots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.ids import QueueId
from pilotage.core.queues.fit import (
    STATIC,
    Condition,
    Offer,
    PrivateIdentity,
    binds_owner,
    concurrent_jobs,
    failures,
    first_failure,
    fits,
    remaining_sizes,
    static_failure,
    with_sizes,
)
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue, waiting_by_site
from tests.unit.core.queues.offers import identities, offers

TAGS = frozenset({"gpu", "ssd"})
QUEUE = QueueIdentity(
    owner="alice",
    group="physics",
    setup="production",
    cpu_time=5000,
    memory=2000,
    disk=20000,
    processors=4,
    job_type="User",
    requirements="x",
    pilot_types=frozenset({"generic", "private"}),
    sites=frozenset({"here", "there"}),
    banned_sites=frozenset({"nowhere"}),
    grid_ces=frozenset({"ce1", "ce2"}),
    platforms=frozenset({"el8", "el9"}),
    tags=TAGS,
    wall_time=3600,
)
OFFER = Offer(
    site="here",
    ce="ce1",
    cpu_time=5000.0,
    setup="production",
    platforms=frozenset({"el9", "el7"}),
    tags=TAGS | {"more"},
    required_tags=frozenset({"gpu"}),
    processors=4,
    memory=2000,
    disk=20000,
    job_types=frozenset({"User", "Merge"}),
    wall_time=3600.0,
    shared_folders=("/home", "/scratch"),
    account="alice",
)

# Each is the one thing wrong.
REFUSALS: dict[Condition, tuple[dict[str, Any], dict[str, Any]]] = {
    Condition.SITE_CLOSED: ({}, {"closed": True}),
    Condition.OWNER: ({}, {"only_owner": "bob"}),
    Condition.BANNED_OWNER: ({}, {"banned_owners": frozenset({"alice", "bob"})}),
    Condition.SETUP: ({}, {"setup": ""}),
    Condition.CPU_TIME: ({}, {"cpu_time": 4999.9}),
    Condition.WALL_TIME: ({}, {"wall_time": 3599.9}),
    Condition.PILOT_TYPE: ({"pilot_types": frozenset({"private"})}, {}),
    Condition.SITE: ({"sites": frozenset({"there"})}, {}),
    Condition.BANNED_SITE: ({"banned_sites": frozenset({"here"})}, {}),
    Condition.GRID_CE: ({"grid_ces": frozenset({"ce2"})}, {}),
    Condition.PLATFORM: ({}, {"platforms": frozenset({"el7"})}),
    Condition.TAGS: ({}, {"tags": frozenset({"gpu"})}),
    Condition.REQUIRED_TAGS: ({}, {"required_tags": frozenset({"gpu", "other"})}),
    Condition.PROCESSORS: ({}, {"processors": 3}),
    Condition.MEMORY: ({}, {"memory": 1999}),
    Condition.DISK: ({}, {"disk": 19999}),
    Condition.JOB_TYPE: ({}, {"job_types": frozenset({"Merge"})}),
    Condition.FOLDER: (
        {"folders": frozenset({"/scratch/a"})},
        {"shared_folders": ("/home", "/scratches", "/scratch/a/b")},
    ),
    Condition.ACCOUNT: ({"folders": frozenset({"/scratch/a"})}, {"account": "bob"}),
    Condition.NODE_FOLDER: (
        {"folders": frozenset({"/scratch/a"})},
        {"other_folders": frozenset({"/scratch/a"})},
    ),
}


def test_a_job_in_place_fits_in_and_below_a_shared_folder() -> None:
    for folder in ("/scratch", "/scratch/a/b", "/home/alice"):
        assert fits(replace(QUEUE, folders=frozenset({folder})), OFFER, yes)
    everywhere = replace(OFFER, shared_folders=("/",))
    assert fits(replace(QUEUE, folders=frozenset({"/any/where"})), everywhere, yes)
    elsewhere = replace(OFFER, shared_folders=(), account="bob")
    assert fits(QUEUE, elsewhere, yes), "other jobs have no folder"


def yes(_: QueueIdentity) -> bool:
    return True


def no(_: QueueIdentity) -> bool:
    return False


def test_an_offer_that_just_suffices_fits() -> None:
    assert first_failure(QUEUE, OFFER, yes) is None
    assert fits(QUEUE, OFFER, yes)


@pytest.mark.parametrize("condition", REFUSALS)
def test_each_condition_alone_refuses_by_its_name(condition: Condition) -> None:
    of_queue, of_offer = REFUSALS[condition]
    queue, offer = replace(QUEUE, **of_queue), replace(OFFER, **of_offer)
    assert first_failure(queue, offer, yes) is condition
    assert static_failure(queue, offer) is condition
    assert not fits(queue, offer, yes)


def test_requirements_refuse_last_and_are_only_asked_where_there_are_some() -> None:
    assert first_failure(QUEUE, OFFER, no) is Condition.REQUIREMENTS
    assert static_failure(QUEUE, OFFER) is None
    assert fits(replace(QUEUE, requirements=""), OFFER, no)
    for condition in REFUSALS:
        of_queue, of_offer = REFUSALS[condition]
        assert first_failure(replace(QUEUE, **of_queue), replace(OFFER, **of_offer), no) is condition


def test_the_first_condition_in_order_is_the_one_named() -> None:
    order = list(REFUSALS)
    assert order == list(Condition)[1 : len(order) + 1], "after the membership, which is the policy's"
    queue, offer = QUEUE, OFFER
    for condition in reversed(order):
        of_queue, of_offer = REFUSALS[condition]
        queue, offer = replace(queue, **of_queue), replace(offer, **of_offer)
        assert first_failure(queue, offer, no) is condition


def test_an_empty_set_asks_for_nothing() -> None:
    empty = frozenset[str]()
    queue = QueueIdentity("alice", "physics", setup="production")
    assert fits(queue, replace(OFFER, required_tags=empty, platforms=empty, tags=empty), no)
    assert fits(QUEUE, replace(OFFER, job_types=None, memory=0, disk=0), yes)
    # Not known is not none: a site that takes no job type takes none.
    assert first_failure(QUEUE, replace(OFFER, job_types=empty), yes) is Condition.JOB_TYPE


def private(*identities: PrivateIdentity, **more: Any) -> Offer:
    return replace(OFFER, pilot_type="private", identities=identities, **more)


@pytest.mark.parametrize(
    ("identities", "served"),
    [
        ((), False),
        ((PrivateIdentity("alice", "physics"),), True),
        ((PrivateIdentity("bob", "physics"),), False),
        ((PrivateIdentity("bob", "physics", job_sharing=True),), True),
        ((PrivateIdentity("alice", "other"),), False),
        ((PrivateIdentity("alice", "other", job_sharing=True),), False),
        ((PrivateIdentity("bob", "physics"), PrivateIdentity("alice", "physics")), True),
        ((PrivateIdentity("alice", "other"), PrivateIdentity("bob", "physics", job_sharing=True)), True),
        # The pairs are ORed, never mixed: alice of one and physics of the other is nobody.
        ((PrivateIdentity("alice", "other"), PrivateIdentity("bob", "physics")), False),
    ],
)
def test_a_private_pilot_serves_its_own(identities: tuple[PrivateIdentity, ...], served: bool) -> None:
    expected = None if served else Condition.OWNER
    assert first_failure(QUEUE, private(*identities), yes) is expected


def test_a_generic_pilot_serves_everybody_whatever_identities_it_names() -> None:
    assert fits(QUEUE, replace(OFFER, identities=(PrivateIdentity("bob", "other"),)), yes)


def test_a_bound_pilot_serves_one_owner_whatever_its_identities() -> None:
    sharing = PrivateIdentity("bob", "physics", job_sharing=True)
    assert fits(QUEUE, private(sharing, only_owner="alice"), yes)
    assert first_failure(QUEUE, private(sharing, only_owner="bob"), yes) is Condition.OWNER


@pytest.mark.parametrize(
    ("pilot_types", "force_generic", "generic", "private_"),
    [
        (frozenset(), False, True, True),
        (frozenset({"generic"}), False, True, False),
        (frozenset({"private"}), False, False, True),
        (frozenset({"generic", "private"}), False, True, True),
        (frozenset(), True, True, False),
        (frozenset({"generic", "private"}), True, True, False),
        # Generic over everything; submission refuses the pair.
        (frozenset({"private"}), True, True, False),
    ],
)
def test_pilot_types(pilot_types: frozenset[str], force_generic: bool, generic: bool, private_: bool) -> None:
    queue = replace(QUEUE, pilot_types=pilot_types, force_generic=force_generic)
    refused = Condition.PILOT_TYPE
    assert first_failure(queue, OFFER, yes) is (None if generic else refused)
    assert first_failure(queue, private(PrivateIdentity("alice", "physics")), yes) is (
        None if private_ else refused
    )


@given(identities(), offers(), st.booleans())
def test_fits_if_and_only_if_no_condition_fails(queue: QueueIdentity, offer: Offer, hold: bool) -> None:
    failure = first_failure(queue, offer, lambda _: hold)
    assert fits(queue, offer, lambda _: hold) == (failure is None)
    static = static_failure(queue, offer)
    if static is not None:
        assert failure is static
    else:
        assert failure is (Condition.REQUIREMENTS if queue.match_text and not hold else None)


@given(identities(), offers())
def test_a_larger_offer_fits_no_less(queue: QueueIdentity, offer: Offer) -> None:
    larger = replace(
        offer,
        cpu_time=offer.cpu_time * 2,
        processors=offer.processors + 1,
        memory=offer.memory * 2,
        disk=offer.disk * 2,
        tags=offer.tags | {"more"},
        platforms=offer.platforms | {"more"},
    )
    assert not fits(queue, offer, yes) or fits(queue, larger, yes)


@given(identities(), offers(), st.booleans())
def test_all_failures_begin_with_the_first_and_are_none_if_it_fits(
    queue: QueueIdentity, offer: Offer, held: bool
) -> None:
    found = failures(queue, offer, lambda _: held)
    assert (found[0] if found else None) is first_failure(queue, offer, lambda _: held)
    assert [condition for condition in Condition if condition in found] == list(found)


def test_every_failure_is_named() -> None:
    queue, offer = QUEUE, OFFER
    for of_queue, of_offer in REFUSALS.values():
        queue, offer = replace(queue, **of_queue), replace(offer, **of_offer)
    assert failures(queue, offer, no) == (*REFUSALS, Condition.REQUIREMENTS)


def shrink(offer: Offer, taken: QueueIdentity) -> Offer:
    """The rest of an offer after a job of this queue."""
    processors, memory, disk = remaining_sizes(offer.processors, offer.memory, offer.disk, taken)
    only_owner = taken.owner if binds_owner(offer.pilot_type, isolated=offer.isolated) else offer.only_owner
    return replace(offer, processors=processors, memory=memory, disk=disk, only_owner=only_owner)


@given(identities(), offers())
def test_concurrent_jobs_is_how_often_the_shrinking_offer_fits(queue: QueueIdentity, offer: Offer) -> None:
    if not fits(queue, offer, yes):
        return
    count, left = 0, offer
    while left.processors > 0 and fits(queue, left, yes):
        count, left = count + 1, shrink(left, queue)
    assert concurrent_jobs(queue, offer) == count


@given(offers(), st.booleans())
def test_with_sizes_changes_only_the_sizes(offer: Offer, closed: bool) -> None:
    offer = replace(offer, closed=closed)
    assert with_sizes(offer, 7.0, 3, 9, 11.0, 13) == replace(
        offer, cpu_time=7.0, processors=3, memory=9, wall_time=11.0, disk=13
    )


@given(st.lists(st.tuples(identities(), st.integers(0, 5)), max_size=8), offers())
def test_the_waiting_jobs_of_all_sites_are_those_whose_site_lists_name_or_do_not_ban_it(
    queues: list[tuple[QueueIdentity, int]], offer: Offer
) -> None:
    entries = [
        IndexedQueue(QueueId(number), identity, (identity.owner, identity.group), waiting=waiting)
        for number, (identity, waiting) in enumerate(queues)
    ]
    lists = (STATIC[Condition.SITE], STATIC[Condition.BANNED_SITE])
    assert waiting_by_site(entries, ["here", "there", "elsewhere"]) == {
        site: sum(
            waiting
            for identity, waiting in queues
            if all(rule.met(identity, replace(offer, site=site)) for rule in lists)
        )
        for site in ("here", "there", "elsewhere")
    }
