"""Rows of lists are passed to the wire by position: both sides must name the same fields in the same order."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pilotage.store.tables import listing
from pilotage.wire.jobs import Attempt, JobSummary
from pilotage.wire.pool import PilotSummary


@pytest.mark.parametrize(
    ("row", "answer"), [(listing.JobSummaryRow, JobSummary), (listing.AttemptRow, Attempt)]
)
def test_a_row_has_the_fields_of_its_answer_in_order(row: type[tuple[object]], answer: type) -> None:
    assert list(row._fields) == [field.name for field in fields(answer)]  # type: ignore[attr-defined]


def test_a_row_of_a_pilot_lacks_only_facts_in_memory_and_efficiency() -> None:
    of_answer = {field.name for field in fields(PilotSummary)}
    assert of_answer - set(listing.PilotSummaryRow._fields) == {"stalled", "last_seen", "efficiency"}
    assert set(listing.PilotSummaryRow._fields) <= of_answer


@pytest.mark.parametrize(
    ("columns", "row"),
    [(listing._JOB_COLUMNS, listing.JobSummaryRow), (listing._HISTORY_COLUMNS, listing.JobSummaryRow)],
)
def test_a_statement_names_the_columns_of_its_row_in_order(columns: str, row: type[tuple[object]]) -> None:
    *named, names, given = [part.split()[-1].strip('"').rpartition(".")[2] for part in _outer_parts(columns)]
    assert (names, given) == ("names", "parameters"), "the field `parameters` is made of both"
    assert [*named, given] == list(row._fields)  # type: ignore[attr-defined]


def _outer_parts(columns: str) -> list[str]:
    """The list's items: commas within parentheses do not separate."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(columns):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(columns[begin:place])
            begin = place + 1
    return [*parts, columns[begin:]]
