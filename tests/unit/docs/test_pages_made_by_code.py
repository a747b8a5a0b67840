"""Every generated page and part equals the output of its generator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripts.reference.faces import addresses, verbs
from scripts.reference.pages import PAGES, PARTS, REFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run: scripts/write-docs"


def test_every_page_that_claims_to_be_made_is_made() -> None:
    claiming = {page.name for page in REFERENCE.glob("*.md") if "Made by" in page.read_text(encoding="utf-8")}
    assert claiming == PAGES.keys()


@pytest.mark.parametrize("name", PARTS)
def test_each_part_stands_on_one_page(name: str) -> None:
    pages = [
        page.name for page in REFERENCE.glob("*.md") if f": {name} -->" in page.read_text(encoding="utf-8")
    ]
    assert len(pages) == 1


@pytest.mark.parametrize("table", [addresses, verbs])
def test_every_address_and_verb_says_what_it_does(table: Callable[[], str]) -> None:
    rows = [row.replace("\\|", "").strip("|").split("|") for row in table().splitlines()[2:]]
    assert len(rows) > 30
    assert not [row for row in rows if not row[2].strip()], "write their docstrings"
