"""Every relative link of the documents leads to a file."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"``.+?``|`[^`\n]*`")
LINK = re.compile(r"(?<!\\)\]\(\s*<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*:|//|#)")


def relative_links(text: str) -> list[str]:
    """The targets in a page that are files of ours; text in code is no link."""
    # Links may have code as their text: only the code goes, the brackets stay.
    prose = INLINE_CODE.sub("", FENCED.sub("", text))
    found = LINK.findall(prose) + DEFINITION.findall(prose)
    return [unquote(target.partition("#")[0]) for target in found if not ELSEWHERE.match(target)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page: Path) -> None:
    broken = [
        target
        for target in relative_links(page.read_text(encoding="utf-8"))
        if target.startswith("/") or not (page.parent / target).exists()
    ]
    assert not broken, f"{page.relative_to(ROOT)}: no such file: {', '.join(broken)}"
