"""Cells of CSV files."""

from __future__ import annotations


def csv_cell(value: object) -> object:
    """Seconds to the millisecond; a text that a spreadsheet would take for a formula is quoted."""
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
