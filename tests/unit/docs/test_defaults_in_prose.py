"""A default, a number or a rule's name that a page tells is that of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from pilotage.core.policy import Policy
from pilotage.core.setting import keys_of
from pilotage.pilot.exchange_timing import _MAX_POLL
from tests.unit.docs.test_plain_documents import BLOCK, PAGES, ROOT

KEYS = {key.name: key for key in keys_of(Policy)}
SECONDS = {
    "s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86_400, "week": 604_800,
    "year": 31_536_000,
}  # fmt: skip
BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
AMOUNT = re.compile(rf"\b(\d[\d,]*(?:\.\d+)?|{'|'.join(WORDS)})\b ?([A-Za-z]+)?")
DEFAULT = re.compile(r"\bdefaults?\b")
MADE_BY_CODE = {"policy.md", "cli.md", "configuration.md", "job-description.md", "requests.md"}
"""Pages with a table that the code makes."""
CHOICES = {name: set(get_args(key.type)) for name, key in KEYS.items() if get_args(key.type)}
RULES = ("matching.rule", "director.demand")
"""Keys that choose between rules by names, which pages tell without the key."""


def statements(text: str) -> Iterator[tuple[str, str]]:
    """(heading, statement): each row of a table, and each sentence of the prose."""
    heading = ""
    for paragraph in re.split(r"\n\s*\n", BLOCK.sub("\n\n", text)):
        if paragraph.startswith("#"):
            heading = paragraph.splitlines()[0]
        rows = [line for line in paragraph.splitlines() if line.startswith("|")]
        yield from ((heading, row) for row in rows)
        prose = " ".join(line for line in paragraph.splitlines() if not line.startswith(("|", "#")))
        yield from ((heading, part) for part in re.split(r"(?<=[.:;]) ", prose))


def amounts(text: str) -> set[float]:
    """The numbers of a text, with and without their units."""
    found: set[float] = set()
    for number, unit in AMOUNT.findall(text):
        value = float(WORDS.get(number, number.replace(",", "")))
        one = unit.removesuffix("s") if unit not in SECONDS else unit
        found |= {value, value * SECONDS.get(one, 1), value * BYTES.get(unit, 1)}
    return found


def mistake(heading: str, text: str) -> str:
    """Why a statement about a default is not that of the code; empty: it is, or it is about no key."""
    if not DEFAULT.search(text):
        return ""
    quoted = set(re.findall(r"`\"?([^`\"]+)\"?`", text))
    said = quoted | set(re.findall(r"`(\w+)`", heading) if "rule is the default" in text else ())
    said -= set(re.findall(r"preset `(\w+)`", text))
    of_rules = [name for name in RULES if CHOICES[name] & said]
    if of_rules and not any(KEYS[name].default in said for name in of_rules):
        return f"{of_rules[0]} is {KEYS[of_rules[0]].default} by default"
    named = [name for name in quoted if name in KEYS and "." in name]
    if len(named) != 1:
        return ""
    default: Any = KEYS[named[0]].default
    if (
        default is msgspec.NODEFAULT
        or isinstance(default, bool | msgspec.UnsetType)
        or default in (None, "", ())
    ):
        return ""
    if isinstance(default, int | float):
        numbers = amounts(text.replace(named[0], ""))
        return "" if not numbers or default in numbers else f"{named[0]} is {default:,} by default"
    return "" if not isinstance(default, str) or default in quoted else f"{named[0]} is {default} by default"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in MADE_BY_CODE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_defaults_of_a_page_are_those_of_the_code(page: Path) -> None:
    told = statements(page.read_text(encoding="utf-8"))
    mistakes = [f"{why}: {text}" for heading, text in told if (why := mistake(heading, text))]
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize(
    ("page", "words", "number"),
    [
        ("docs/explanation/fair-shares.md", "job are up to {:g} s apart", _MAX_POLL),
    ],
)
def test_fixed_numbers_of_a_page_are_those_of_the_code(page: str, words: str, number: float) -> None:
    assert words.format(number) in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("### 3.1 The rule `dirac`, of the document", "This rule is the default."),
        ("", "`dirac` is the default."),
        ("", "The key `director.demand` is `dirac` by default."),
        ("", "It lasts for one quantum (`ces.*.quantum`, default 30 s)."),
        ("", "Rows are kept for `retention.events` seconds, a day by default."),
    ],
)
def test_an_untrue_default_is_found(heading: str, text: str) -> None:
    assert mistake(heading, text)


def test_rules_of_the_pool_are_cited_by_links() -> None:
    """A test follows the anchors, so that a rule with another number is found."""
    text = BLOCK.sub("", (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8"))
    assert not re.findall(r"(?<!\[)\brules? \d\.\d", text)
    assert not re.findall(r"\(\d\.\d\b", text)
    assert not re.findall(r"\b(?:in|of|see) [1-8]\.[1-9]\b", text)
    for number, anchor in re.findall(r"\[(?:rules? )?(\d\.\d)\]\(#(\d+)", text):
        assert number.replace(".", "") == anchor
