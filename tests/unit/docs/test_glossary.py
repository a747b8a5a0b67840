"""docs/reference/glossary.md: each of its words is used, stands in its place and has one meaning."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "glossary.md"
TEXT = PAGE.read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    [section] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ENTRIES = [*rows("Nouns"), *rows("Verbs")]
SPELLINGS = {row[0]: re.findall(r"`([^`]+)`", row[3]) for row in ENTRIES}
"""Other spellings by headword."""


def spread(word: str) -> str:
    """A pattern for a word with its plural and participles, joined in any way: `job_offers`, `JobOffer`."""
    parts = [re.escape(part) for part in re.split(r"[ -]", word)]
    return "[ _-]?\n?".join(rf"{part}\w*" for part in parts)


@pytest.fixture(scope="module")
def program() -> str:
    """The text of the program and of its pages, without the glossary and the decisions."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page != PAGE and "adr" not in page.parts]
    return "\n".join(file.read_text("utf-8") for file in (*pages, *(ROOT / "src").rglob("*.py")))


def test_each_word_is_used(program: str) -> None:
    unused = {
        word
        for headword, spellings in SPELLINGS.items()
        for word in (headword, *spellings)
        if not re.search(rf"\b_?{spread(word)}", program, re.IGNORECASE)
    }
    assert unused == set()


def test_one_word_is_one_thing() -> None:
    words = [
        word for headword in SPELLINGS for word in {text.lower() for text in (headword, *SPELLINGS[headword])}
    ]
    assert [word for word, number in Counter(words).items() if number > 1] == []
    avoided = {word.lower() for row in rows("Words to avoid") for word in row[0].split(", ")}
    assert avoided.isdisjoint(words)
    assert all(len(row) == 4 and row[1] for row in ENTRIES)


@pytest.mark.parametrize("title", ["Nouns", "Verbs", "Words to avoid"])
def test_the_glossary_is_in_order(title: str) -> None:
    lowered = [row[0].lower() for row in rows(title)]
    assert lowered == sorted(lowered)
