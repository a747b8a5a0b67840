"""Queues and offers that meet often: few values for everything."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st

from pilotage.core.queues.fit import Offer, PrivateIdentity
from pilotage.core.queues.identity import QueueIdentity

CPU_BUCKETS = (500, 5000, 50000, 300000)
MEMORY_BUCKETS = (512, 1000, 2000, 4000)
DISK_BUCKETS = (1024, 20480)

owners = st.sampled_from(["alice", "bob"])
groups = st.sampled_from(["physics", "home"])


def some(*values: str) -> st.SearchStrategy[frozenset[str]]:
    """Mostly the empty set."""
    return st.one_of(st.just(frozenset()), st.just(frozenset()), st.frozensets(st.sampled_from(values)))


@st.composite
def identities(draw: st.DrawFn) -> QueueIdentity:
    return QueueIdentity(
        owner=draw(owners),
        group=draw(groups),
        setup=draw(st.sampled_from(["", "", "", "test"])),
        cpu_time=draw(st.sampled_from([*CPU_BUCKETS, 700])),
        memory=draw(st.sampled_from([0, 0, *MEMORY_BUCKETS, 8000, 12000, 1500])),
        processors=draw(st.sampled_from([1, 1, 2, 8])),
        job_type=draw(st.sampled_from(["User", "User", "Merge"])),
        force_generic=draw(st.sampled_from([False, False, True])),
        requirements=draw(st.sampled_from(["", "", "x"])),
        pilot_types=draw(some("generic", "private")),
        sites=draw(some("here", "there")),
        banned_sites=draw(some("here", "there")),
        grid_ces=draw(some("ce1", "ce2")),
        platforms=draw(some("el8", "el9")),
        tags=draw(some("gpu", "ssd")),
        wall_time=draw(st.sampled_from([0, 0, 0, 600, 3600])),
        disk=draw(st.sampled_from([0, 0, 0, *DISK_BUCKETS])),
    )


private_identities = st.builds(PrivateIdentity, owners, groups, st.booleans())


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    return Offer(
        site=draw(st.sampled_from(["here", "there", "elsewhere"])),
        ce=draw(st.sampled_from(["ce1", "ce2"])),
        cpu_time=draw(st.one_of(st.sampled_from(CPU_BUCKETS), st.floats(0, 400000))),
        setup=draw(st.sampled_from(["", "", "", "test"])),
        pilot_type=draw(st.sampled_from(["generic", "generic", "private"])),
        identities=tuple(draw(st.lists(private_identities, max_size=2))),
        only_owner=draw(st.one_of(st.none(), owners)),
        platforms=draw(some("el8", "el9")),
        tags=draw(some("gpu", "ssd")),
        required_tags=draw(some("gpu")),
        processors=draw(st.integers(1, 8)),
        memory=draw(st.one_of(st.just(0), st.integers(1, 20000), st.sampled_from(MEMORY_BUCKETS))),
        job_types=draw(st.one_of(st.none(), some("User", "Merge"))),
        wall_time=draw(st.one_of(st.sampled_from([600.0, 3600.0, inf]), st.floats(0, 5000))),
        disk=draw(st.one_of(st.just(0), st.integers(1, 50000), st.sampled_from([1023, 1024, 20480]))),
    )
