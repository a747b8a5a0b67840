"""The record of durations names modules that exist."""

from __future__ import annotations

from tests.order import RECORD, read_durations


def test_the_record_names_modules_that_exist() -> None:
    root = RECORD.parent.parent
    assert [module for module in read_durations() if not (root / module).is_file()] == []
