"""Partitions of Slurm's commands: the CEs of a job, its variable, and the names that lists show."""

from __future__ import annotations

import pytest

from pilotage.cli.slurm.partitions import Partitions
from pilotage.core.errors import InvalidInput
from pilotage.wire.sites import PartitionSummary

POOL = Partitions(
    [
        PartitionSummary("short", True, ["a", "it's"], [], "up", 60.0),
        PartitionSummary("long", False, ["b"], ["north"], "up", 60.0),
        PartitionSummary("huge", False, ["c"], ["south"], "up", 60.0),
        PartitionSummary("every", False, ["a", "it's", "b", "c"], ["*"], "up", 60.0),
    ]
)


@pytest.mark.parametrize(
    ("text", "names", "fields"),
    [
        ("", "short", {"grid_ces": ["a", "it's"]}),
        ("long", "long", {"sites": ["north"]}),
        ("huge,long,huge", "huge,long", {"sites": ["south", "north"]}),
        (" long , short,", "long,short", {"grid_ces": ["b", "a", "it's"]}),
        ("short,every", "short,every", {}),
    ],
)
def test_a_job_may_run_in_each_partition_that_it_names(text: str, names: str, fields: object) -> None:
    chosen = POOL.chosen(text)
    assert (chosen.names, chosen.fields()) == (names, fields)


def test_an_unknown_partition_is_refused_and_a_missing_default_too() -> None:
    for text in ("nowhere", "short,nowhere", "SHORT"):
        with pytest.raises(InvalidInput, match=f"invalid partition specified: {text.split(',')[-1]}"):
            POOL.chosen(text)
    with pytest.raises(InvalidInput, match="there is no default partition"):
        Partitions([POOL.by_name["long"]]).chosen("")


@pytest.mark.parametrize(
    ("named", "ce", "shown"),
    [
        ("long,short", "", "long,short"),
        ("long,short", "it's", "short"),
        ("long,short", "gone", "long,short"),
        ("removed,short", "a", "short"),
        ("", "", "short"),
        ("", "c", "huge"),
        ("", "gone", "gone"),
    ],
)
def test_the_partition_of_a_job_is_that_of_its_ce(named: str, ce: str, shown: str) -> None:
    assert POOL.of_job(named, ce, ended=False) == shown
    assert POOL.of_job(named, ce, ended=True) == (shown if ce else shown.partition(",")[0])


def test_a_job_of_several_partitions_takes_their_ces_along() -> None:
    assert POOL.chosen("long,short").ces()["short"] == POOL.by_name["short"].ces
    assert POOL.chosen("long").ces() == {}
