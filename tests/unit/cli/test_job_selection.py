"""Selections as they are written on the command line."""

from __future__ import annotations

from datetime import datetime

import pytest

from pilotage.cli.job_selection import build_selection, describe_selection
from pilotage.cli.time_format import parse_instant
from pilotage.client.selections import given_conditions
from pilotage.core.errors import InvalidInput
from pilotage.wire.jobs import Selection


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2d", 1_000_000 - 2 * 86400),
        ("90", 1_000_000 - 90),
        ("1h30m", 1_000_000 - 5400),
        ("2026-11-05", datetime(2026, 11, 5).astimezone().timestamp()),
        ("2026-11-05 14:30", datetime(2026, 11, 5, 14, 30).astimezone().timestamp()),
        ("2026-11-05T14:30:00+00:00", 1793889000.0),
    ],
)
def test_an_instant_is_a_date_or_so_long_ago(text: str, instant: float) -> None:
    assert parse_instant(text, 1_000_000.0) == instant


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "-", "5x"])
def test_a_bad_instant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a time") as refused:
        parse_instant(text, 1.0)
    assert "2026-11-05" in str(refused.value)


def test_names_and_ends_are_part_of_a_selection() -> None:
    found = build_selection(None, name="n", since="2026-11-05", before="2026-11-06")
    begin = datetime(2026, 11, 5).astimezone().timestamp()
    assert found == Selection(
        name="n", ended_since=begin, ended_before=datetime(2026, 11, 6).astimezone().timestamp()
    )
    assert given_conditions(found) == {
        "name": "n",
        "ended_since": begin,
        "ended_before": found.ended_before,
    }
    assert describe_selection(found).startswith("name n, ended since 2026-11-05T00:00:00")
    assert given_conditions(Selection(ended_since=0.0)) == {"ended_since": 0.0}
