"""A count stands with its noun in the right number: "1 of 1 jobs" reads as if nobody had looked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "pilotage"
FLOORS = ("agent", "cli", "client", "main", "services")
"""Floors that write sentences for people. Limits, which are never one, stand in others too."""
NOUNS = (
    *(
        "attempt",
        "batch job",
        "block",
        "core",
        "element",
        "event",
        "file",
        "host",
        "job",
        "mask",
        "name",
        "node",
    ),
    *("output", "pilot", "queue", "request", "row", "site", "slot", "submission", "token", "user", "value"),
)
COUNTED = re.compile(rf" (?:more |live |other |failed )?({'|'.join(NOUNS)})s\b")
NO_COUNT = re.compile(r"^(?:verb|asked|chosen|latest\.in_vain|len\(best\.sites\)|cores)$")
"""Words before a noun, and numbers that are above one where they are told."""
LIMIT = re.compile(r"\b[A-Z][A-Z_]{3,}\b|^most$|^limit$")


def counted(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of counts that are followed by the plural of a noun."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                number, noun = ast.unparse(value.value), COUNTED.match(str(text.value))
                if noun and not NO_COUNT.search(number) and not LIMIT.search(number):
                    yield node.lineno, f"{{{number}}}{noun[0]}"


def test_counts_and_nouns_agree() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {text}: say plural({text[1:-1].partition('}')[0]}, ...)"
        for floor in FLOORS
        for file in sorted((SOURCE / floor).rglob("*.py"))
        for line, text in counted(file)
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_search_finds_a_count(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text('a = f"{done:,} of {all:,} jobs"\nb = f"{one} row"\nc = f"{MAX_FILES} files"\n')
    assert list(counted(file)) == [(1, "{all} jobs")]
