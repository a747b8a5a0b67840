"""What makes two jobs wait in one queue (docs/reference/rules.md, section 1)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.policy import Matching
from pilotage.core.queues.identity import QueueIdentity, cpu_bucket, size_bucket, wall_bucket, wall_floor

CPU = (500, 5000, 50000, 300000)
SETS = [field.name for field in fields(QueueIdentity) if field.type.startswith("frozenset")]
names = st.text(min_size=1, max_size=8)
sets = st.lists(names, max_size=4)


@st.composite
def identities(draw: st.DrawFn) -> QueueIdentity:
    return QueueIdentity(
        owner=draw(names),
        group=draw(names),
        setup=draw(st.text(max_size=5)),
        cpu_time=draw(st.sampled_from(CPU)),
        memory=draw(st.integers(0, 10**6)),
        processors=draw(st.integers(1, 128)),
        force_generic=draw(st.booleans()),
        requirements=draw(st.text(max_size=20)),
        **dict[str, Any]({name: frozenset(draw(sets)) for name in SETS}),
    )


@given(st.data(), st.lists(names, min_size=1, max_size=6))
def test_order_and_repetition_in_the_sets_never_matter(data: st.DataObject, given_names: list[str]) -> None:
    other = data.draw(st.permutations(given_names + data.draw(st.lists(st.sampled_from(given_names)))))
    for name in SETS:
        one = QueueIdentity("o", "g", **dict[str, Any]({name: frozenset(given_names)}))
        two = QueueIdentity("o", "g", **dict[str, Any]({name: frozenset(other)}))
        assert one == two
        assert one.to_json() == two.to_json()
        assert one.digest() == two.digest()


@given(identities())
def test_an_identity_survives_its_text(identity: QueueIdentity) -> None:
    again = QueueIdentity.from_json(identity.to_json())
    assert again == identity
    assert again.digest() == identity.digest()


@given(identities(), identities())
def test_equal_texts_are_equal_identities(one: QueueIdentity, two: QueueIdentity) -> None:
    assert (one == two) == (one.to_json() == two.to_json()) == (one.digest() == two.digest())


@given(st.integers(0, 10**8))
def test_a_wall_bucket_never_moves_down_and_is_near(seconds: int) -> None:
    bucket = wall_bucket(seconds)
    assert seconds <= bucket <= max(seconds * 1.1, seconds + 60)
    assert wall_bucket(bucket) == bucket


@given(st.floats(0, 10**7))
def test_the_floor_of_a_wall_time_is_the_longest_bucket_within_it(seconds: float) -> None:
    longest = wall_floor(seconds)
    assert longest == wall_bucket(longest) <= seconds
    assert wall_bucket(longest + 1) > seconds


def test_every_field_tells_queues_apart() -> None:
    plain = QueueIdentity("o", "g")
    other: dict[type, Any] = {str: "other", int: 7, bool: True, frozenset: frozenset({"other"})}
    for field in fields(QueueIdentity):
        changed = replace(plain, **{field.name: other[type(getattr(plain, field.name))]})
        assert changed != plain, field.name
        assert changed.digest() != plain.digest(), field.name
        assert QueueIdentity.from_json(changed.to_json()) == changed


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        *((0, 500), (1, 500), (499.9, 500), (500, 500), (500.1, 5000), (501, 5000), (5000, 5000)),
        *((5001, 50000), (50000, 50000), (50001, 300000), (300000, 300000)),
        *((300001, 300000), (10**9, 300000)),
    ],
)
def test_cpu_time_moves_up_to_the_next_bucket_and_stays_in_the_last(seconds: float, bucket: int) -> None:
    assert cpu_bucket(seconds, CPU) == bucket
    assert cpu_bucket(seconds, Matching().cpu_buckets) == bucket


@pytest.mark.parametrize(
    ("megabytes", "bucket"),
    [(-1, 0), (0, 0), (1, 100), (100, 100), (101, 400), (400, 400), (401, 800), (800, 800), (801, 1200)],
)
def test_memory_moves_up_to_the_next_bucket_and_above_the_last_to_multiples(
    megabytes: int, bucket: int
) -> None:
    assert size_bucket(megabytes, (100, 400)) == bucket


@given(
    st.integers(1, 10**8), st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True).map(sorted)
)
def test_a_memory_bucket_always_holds_what_was_asked_for(megabytes: int, buckets: list[int]) -> None:
    bucket = size_bucket(megabytes, buckets)
    assert bucket >= megabytes
    assert bucket in buckets or bucket % buckets[-1] == 0
    assert size_bucket(bucket, buckets) == bucket


def test_the_text_of_an_identity_without_disk_does_not_name_it() -> None:
    """So queues that were stored before jobs could ask for disk keep their digest."""
    plain = QueueIdentity("alice", "physics")
    assert "disk" not in plain.to_json()
    assert plain.digest() == "8f6414e7a458e3e9e07e6295f80bf92624df4238c4ecca6c12aa1891d1b65d21"
    assert '"disk":1024' in replace(plain, disk=1024).to_json()


def test_the_match_text_joins_the_three_parts() -> None:
    plain = QueueIdentity("o", "g")
    assert (plain.match_text, plain.match_parts()) == ("", {})
    assert replace(plain, requirements="a || b").match_text == "a || b"
    assert replace(plain, host_requirements="c").match_text == "c"
    close = "isundefined(other.closeoutputsecheck) || other.closeoutputsecheck"
    assert replace(plain, output_se="se").match_text == close
    whole = replace(plain, requirements="a || b", host_requirements="c", output_se="se")
    assert whole.match_text == f"(a || b) && (c) && ({close})"
    assert {name: part.match_text for name, part in whole.match_parts().items()} == {
        "Requirements": "a || b",
        "HostRequirements": "c",
        "OutputSE": close,
    }
    assert whole.match_parts()["OutputSE"] == replace(plain, output_se="se")
