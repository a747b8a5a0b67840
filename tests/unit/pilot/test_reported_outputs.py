"""A program may report events and lumis of its job's order, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.pilot.data_report import BadReport, OutputFacts, parse_report
from pilotage.wire.data import DataFile, DataOrder

FILES = [
    DataFile("a", "/a", events=100, event_count=60, lumis=[[1, 1, 5], [1, 6, 9]]),
    DataFile("b", "/b", events=50, event_count=50, lumis=[[2, 1, 3]]),
]
ORDER = DataOrder(files=FILES, events=110)
GENERATOR = DataOrder(events=1000, first_lumi=11, lumis=5)


def facts(order: DataOrder, **claimed: Any) -> OutputFacts:
    return parse_report({"outputs": {"x": claimed}}).facts_of("x", order)


@pytest.mark.parametrize(
    ("order", "claimed"),
    [
        (ORDER, {"events": 110, "lumis": [[2, 1, 3], [1, 2, 8]]}),
        (ORDER, {"events": 0, "lumis": []}),
        (GENERATOR, {"events": 999, "lumis": [[1, 11, 15]]}),
        (DataOrder(files=[DataFile("a", "/a"), *FILES], events=110), {"events": 10**9, "lumis": [[9, 9, 9]]}),
        (DataOrder(), {"events": 7, "lumis": [[1, 1, 1]]}),
    ],
)
def test_events_and_lumis_that_the_order_allows_are_taken(order: DataOrder, claimed: dict[str, Any]) -> None:
    assert facts(order, **claimed) == OutputFacts(**claimed)


@pytest.mark.parametrize(
    ("order", "claimed", "told"),
    [
        (ORDER, {"events": 111}, "111 events; the job was given 110"),
        (ORDER, {"lumis": [[1, 5, 10]]}, "lumis 5 to 10 of run 1 were not given"),
        (ORDER, {"lumis": [[3, 1, 1]]}, "of run 3"),
        (ORDER, {"lumis": [[1, 0, 1]]}, "lumis 0 to 1"),
        (ORDER, {"lumis": [[2, 1, 3], [2, 4, 4]]}, "lumis 4 to 4 of run 2"),
        (GENERATOR, {"events": 1001}, "the job was given 1,000"),
        (GENERATOR, {"lumis": [[1, 10, 11]]}, "lumis 10 to 11"),
    ],
)
def test_more_than_the_order_has_is_refused(order: DataOrder, claimed: dict[str, Any], told: str) -> None:
    with pytest.raises(BadReport, match=told):
        facts(order, **claimed)


@pytest.mark.parametrize("claimed", [{"events": 2**63 - 1}, {"lumis": [[1, 1, 2**32]]}, {"events": 10**13}])
def test_a_number_that_no_file_has_is_refused_without_an_order(claimed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a whole number from 0 to"):
        facts(DataOrder(), **claimed)
