"""Sums of amounts in SQL are bounded: SQLite ends a statement whose sum has more than 64 bits."""

from __future__ import annotations

import re

import sqlalchemy as sa

from pilotage.store.schema.base import metadata
from tests.unit.docs.test_sizes import SRC

_SUM = re.compile(r"\bsum\((?:\w+\.)?(\w+)\)", re.IGNORECASE)
SMALL = {"open", "made", "count", "processors"}
"""Columns of flags, of rows that exist, and of 32 bits."""
COUNTED = {
    "job_counts.py: sum(jobs)",
    "listing.py: sum(jobs)",
    "submission_listing.py: sum(jobs)",
    "accepted_jobs.py: sum(jobs)",
}
"""Of jobs that exist."""


def test_no_amount_is_summed_without_a_bound() -> None:
    amounts = {
        column.name
        for table in metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, sa.BigInteger | sa.Integer)
    }
    found = [
        f"{file.name}: sum({match[1]})"
        for file in sorted((SRC / "store/tables").glob("*.py"))
        for match in _SUM.finditer(file.read_text(encoding="utf-8"))
        if match[1] in amounts - SMALL
    ]
    assert set(found) <= COUNTED, "use bounded_sum of store/engine/connection.py"
