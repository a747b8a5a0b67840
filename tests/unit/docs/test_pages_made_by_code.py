"""The reference pages say what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

GENERATOR = runpy.run_path(str(Path(__file__).with_name("generate.py")))


@pytest.mark.parametrize("name", ["states.md", "handover.md", "policy.md"])
def test_the_page_is_what_the_code_says(name: str) -> None:
    written = (GENERATOR["REFERENCE"] / name).read_text()
    assert written == GENERATOR["PAGES"][name](), "run: python -m tests.unit.docs.generate"


def test_no_page_is_left_out() -> None:
    assert set(GENERATOR["PAGES"]) == {"states.md", "handover.md", "policy.md"}
