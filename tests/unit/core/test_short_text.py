"""A long name does not cut the reason behind it."""

from __future__ import annotations

from pilotage.core.short_text import cut_middle


def test_a_cut_text_keeps_its_beginning_and_its_end() -> None:
    text = f"input file s3://store/{'x' * 900}: its checksum is wrong"
    cut = cut_middle(text, 500)
    assert len(cut) == 500
    assert cut.startswith("input file s3://store/")
    assert cut.endswith("xxx: its checksum is wrong")
    assert cut_middle("x" * 500, 500) == "x" * 500
