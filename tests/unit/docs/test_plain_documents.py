"""The prose of the Markdown pages is as plain as that of src. Pages made from the code count as well.

Decision records (docs/adr) keep the words in which they were decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.docs.test_plain_words import CODE, SENTENCE_END, objections

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "adr" not in page.parts),
]

BLOCK = re.compile(r"<!--.*?-->|^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
QUOTED = re.compile(r'"[^"\n]{1,80}"')
NO_PROSE = ("|", "#", "    ")
"""Begins of lines: tables, headings, indented code."""
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+(?:\[[ x]\]\s+)?")
PARAGRAPH_END = re.compile(r"\n\s*\n|:\n")


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page. Code, quotations and links count by one word or by their text."""
    text = CODE.sub("X", LINK.sub(r"\1", BLOCK.sub("\n\n", page)))
    lines = []
    for line in QUOTED.sub("X", text).splitlines():
        if line.startswith(NO_PROSE) and not ITEM.match(line):
            lines.append("\n")
        elif item := ITEM.match(line):
            lines.append("\n" + line[item.end() :].strip())
        else:
            lines.append(line.strip())
    for paragraph in PARAGRAPH_END.split("\n".join(lines)):
        yield from filter(None, SENTENCE_END.split(" ".join(paragraph.split())))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_sentence_of_a_page_is_plain(page: Path) -> None:
    complaints = [
        f"{objection}: {sentence}"
        for sentence in sentences(page.read_text(encoding="utf-8"))
        for objection in objections(sentence)
    ]
    assert not complaints, "\n" + "\n".join(complaints)
