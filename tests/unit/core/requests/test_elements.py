"""Identity, sites and slots of elements, and the start policies by property."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.datasets.facts import ELSEWHERE
from pilotage.core.errors import InvalidInput
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.requests.start_policy import (
    FailedPiece,
    Generator,
    InputBlock,
    PlannedElement,
    SliceRule,
    StepInput,
)
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.workqueue.eligibility import (
    ANYWHERE,
    Locations,
    Obstacle,
    SiteRules,
    eligible_sites,
    obstacle,
)
from pilotage.core.workqueue.identity import canonical_json, element_digest
from pilotage.core.workqueue.thresholds import (
    SlotRules,
    lesser_slots,
    slots_of_site,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
masks = st.dictionaries(st.text(max_size=6), json_values, max_size=5)


def shuffled(value: Any, rng: Random) -> Any:
    """The same value with the keys of all dictionaries in another order."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    return value


@given(st.lists(st.text(max_size=5), max_size=4), masks, st.integers(0, 9))
def test_identity_has_no_order(inputs: list[str], mask: dict[str, Any], seed: int) -> None:
    rng = Random(seed)
    names = [*inputs]
    rng.shuffle(names)
    assert element_digest(7, 1, inputs, mask) == element_digest(7, 1, names, shuffled(mask, rng))


@given(masks, masks)
def test_different_masks_have_different_identities(first: dict[str, Any], second: dict[str, Any]) -> None:
    same = canonical_json(first) == canonical_json(second)
    assert (element_digest(1, 0, ["b"], first) == element_digest(1, 0, ["b"], second)) is same


def test_identity_covers_request_step_and_input() -> None:
    digests = {
        element_digest(request, step, inputs, {})
        for request in (1, 2)
        for step in (0, 1)
        for inputs in ([], ["a"], ["b"], ["a", "b"])
    }
    assert len(digests) == 16


def test_unknown_is_not_empty() -> None:
    unknown, empty = Locations((None,)), Locations((frozenset(),))
    assert obstacle("A", SiteRules(), unknown) is Obstacle.INPUT_UNKNOWN
    assert obstacle("A", SiteRules(), empty) is Obstacle.NO_INPUT
    assert obstacle("A", SiteRules(trust_input=True), unknown) is Obstacle.INPUT_UNKNOWN


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ({"B"}, Obstacle.NO_ADDRESS),
        (set(), Obstacle.NO_ADDRESS),
        ({"A"}, None),
        ({"B", ELSEWHERE}, None),
        ({ANYWHERE}, None),
    ],
)
def test_input_is_read_from_elsewhere_only_where_it_has_an_address(
    places: set[str], reason: Obstacle | None
) -> None:
    assert obstacle("A", SiteRules(trust_input=True), Locations((frozenset(places),))) is reason


def test_no_list_is_every_site_and_an_empty_list_none() -> None:
    anywhere = Locations((frozenset({ANYWHERE}),))
    assert eligible_sites("AB", SiteRules(), anywhere) == frozenset("AB")
    assert eligible_sites("AB", SiteRules(listed=frozenset()), anywhere) == frozenset()


@given(
    st.frozensets(st.sampled_from("ABC")),
    st.frozensets(st.sampled_from("ABC")),
    st.lists(st.frozensets(st.sampled_from("ABC")), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_banned_sites_are_never_eligible(
    listed: frozenset[str],
    banned: frozenset[str],
    inputs: list[frozenset[str]],
    trust_input: bool,
    trust_pileup: bool,
) -> None:
    rules = SiteRules(listed, banned, trust_input, trust_pileup)
    sites = eligible_sites("ABCD", rules, Locations(tuple(inputs), (), tuple(inputs)))
    assert not sites & banned
    assert sites <= listed


@given(st.integers(0, 10**6), st.integers(1, 50))
def test_agents_share_the_slots_of_a_site(available: int, agents: int) -> None:
    rules = SlotRules()
    slots = slots_of_site(available, agents, rules)
    assert slots >= rules.site_floor
    assert (slots - 1) * agents <= available * 1.5 or slots == rules.site_floor


def test_slots_are_pending_and_running_slots() -> None:
    assert slots_of_site(1000, 1, SlotRules()) == 1500
    assert slots_of_site(1000, 4, SlotRules()) == 375
    assert slots_of_site(1000, 2, SlotRules(pending_fraction=0.1, queue_depth=0.5)) == 275
    assert slots_of_site(2, 10, SlotRules()) == 1


def test_lesser_slots_takes_the_smaller_number_of_each_site() -> None:
    assert lesser_slots({"A": 5, "B": 9, "C": 1}, {"A": 7, "B": 2, "D": 8}) == {"A": 5, "B": 2}


@given(
    st.integers(1, 5000), st.integers(1, 300), st.integers(1, 300), st.integers(1, 20), st.integers(1, 500)
)
def test_generated_events_are_covered_once(
    events: int, per_job: int, per_lumi: int, max_jobs: int, first: int
) -> None:
    generator = Generator(events, per_job, first, 3, per_lumi, max_jobs)
    step = StepInput(generator=generator, limit=10**6)
    elements = START_POLICIES["MonteCarlo"].plan(step).elements
    next_event, next_lumi = first, 3
    for element in elements:
        mask = element.mask
        assert mask is not None
        assert (mask.first_event, mask.first_lumi) == (next_event, next_lumi)
        assert 1 <= element.jobs <= max_jobs
        next_event, next_lumi = mask.first_event + mask.events, mask.first_lumi + mask.lumis
    assert next_event == first + events


@given(st.integers(1, 5000), st.integers(1, 50), st.integers(1, 60), st.integers(1, 7), st.integers(1, 9))
def test_slices_of_a_generator_make_the_same_elements(
    events: int, per_job: int, per_lumi: int, max_jobs: int, limit: int
) -> None:
    policy = START_POLICIES["MonteCarlo"]
    whole = Generator(events, per_job, 1, 1, per_lumi, max_jobs)
    at_once = policy.plan(StepInput(generator=whole, limit=10**6)).elements
    in_slices: list[PlannedElement] = []
    rest = whole
    while rest.events > 0:
        part = policy.plan(StepInput(generator=rest, limit=limit)).elements
        in_slices += part
        last = part[-1].mask
        assert last is not None
        end = last.first_event + last.events
        rest = Generator(events + 1 - end, per_job, end, last.first_lumi + last.lumis, per_lumi, max_jobs)
    assert tuple(in_slices) == at_once


def block(number: int, files: int = 3, location_set: int = 2, **changes: Any) -> InputBlock:
    return InputBlock(number, f"d#{number}", files, files * 100, files * 1000, location_set, **changes)


def test_a_data_set_is_one_element() -> None:
    blocks = [block(1), block(2, files=0), block(3, runs=frozenset([7])), block(4, runs=frozenset([7, 8]))]
    step = StepInput(SliceRule("files", 4), blocks=blocks)
    [element] = START_POLICIES["Dataset"].plan(step).elements
    assert (element.blocks, element.files, element.jobs) == ((1, 3, 4), 9, 3)
    by_event = StepInput(SliceRule("events", 300), blocks=blocks)
    assert START_POLICIES["Dataset"].plan(by_event).elements[0].jobs == 3


def test_a_data_set_without_files_is_no_element() -> None:
    plan = START_POLICIES["Dataset"].plan(StepInput(SliceRule(), blocks=[block(1, files=0)]))
    assert plan.elements == ()
    assert list(plan.bad) == ["d#1"]


def test_exactly_the_failed_pieces_are_taken() -> None:
    failures = [
        FailedPiece(
            number,
            ((number % 5, f"b{number % 5}"),),
            Mask((FileRange(number, 10, 5),), events=5),
            1,
            50,
            2 + number % 2,
        )
        for number in range(600)
    ]
    step = StepInput(SliceRule("events", 5), failures=failures)
    elements = START_POLICIES["Resubmit"].plan(step).elements
    masks = [element.mask for element in elements if element.mask is not None]
    ranges = [part for mask in masks for part in mask.ranges]
    assert sorted(ranges) == [FileRange(number, 10, 5) for number in range(600)]
    assert all(element.jobs <= 250 for element in elements)
    assert {element.location_set for element in elements} == {2, 3}
    backwards = StepInput(SliceRule("events", 5), failures=failures[::-1])
    assert START_POLICIES["Resubmit"].plan(backwards).elements == elements


def test_failed_events_to_generate_are_elements_of_their_own() -> None:
    masks = [Mask((), first, 100, first // 100, 1) for first in (100, 700)]
    failures = [FailedPiece(number, (), mask, 0, 0, 7) for number, mask in enumerate(masks)]
    plan = START_POLICIES["Resubmit"].plan(StepInput(failures=failures))
    assert [element.mask for element in plan.elements] == masks


def test_nothing_to_generate_is_refused() -> None:
    for generator in (None, Generator(0, 5), Generator(-4, 5), Generator(5, 0), Generator(5, 5, max_jobs=0)):
        with pytest.raises(InvalidInput):
            START_POLICIES["MonteCarlo"].plan(StepInput(generator=generator))
