"""docs/reference/glossary.md has every noun of the API, the command line and the policy.

A name is cut into words. All of it must be made of entries of the page: nouns, verbs, and the few words of any program.
An entry may have several words, and a plural counts as its singular. A key of the policy is covered by its table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.cli.root import build as command_line
from pilotage.core.policy import KEYS
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.server.context import Context
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.server.http.routing import build_routes

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")

Words = tuple[str, ...]


def section(title: str) -> str:
    [found] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def in_code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def singular(word: str) -> str:
    if word.endswith(("ss", "us", "wms")) or len(word) < 3:
        return word
    return re.sub("s$", "", re.sub("ies$", "y", word))


def words_of(name: str) -> Words:
    """`RefusedOutputFile`, `pilot_types`, `place in queue`: their words, in lower case and singular."""
    parts = re.findall(r"[A-Z]{2,}(?=[A-Z][a-z]|[^a-zA-Z]|$)|[A-Z]?[a-z]+|[A-Z]+", name)
    return tuple(singular(part.lower()) for part in parts)


HEADWORDS = [row[0] for title in ("Nouns", "Verbs") for row in rows(title)]
SPELLINGS = [name for title in ("Nouns", "Verbs") for row in rows(title) for name in in_code(row[3])]
ENTRIES = {words_of(name) for name in (*HEADWORDS, *SPELLINGS)}
PLAIN = {words_of(name) for name in in_code(section("Words of any program"))}


def stem(words: Words) -> set[Words]:
    """A word, and for a participle (`refused`, `closed`) the verb or noun that it comes from."""
    if len(words) != 1 or not words[0].endswith("ed"):
        return {words}
    word = words[0]
    return {words, (word[:-2],), (word[:-1],), (word[:-2] + "al",)}


def unknown(words: Words) -> Words:
    """The words of a name that no entry covers, the longest entries tried first."""
    if not words:
        return ()
    for end in range(len(words), 0, -1):
        if stem(words[:end]) & (ENTRIES | PLAIN):
            return unknown(words[end:])
    return (words[0], *unknown(words[1:]))


def api() -> dict[str, Any]:
    return build_routes(cast(Context, None)).openapi()


def of_the_api() -> Iterator[str]:
    document = api()
    yield from document["components"]["schemas"]
    for path in (*document["paths"], *ENDPOINTS):
        for part in path.split("/"):
            # A version of the protocol, and the id or name that the address ends in, are no nouns of ours.
            if part and not re.fullmatch(r"v\d+|\{(id_|name|number)\}", part):
                yield part.strip("{}")


def of_the_command_line() -> Iterator[str]:
    for command in command_line(SERVER_COMMANDS).commands:
        yield from command.split()


def of_the_policy() -> Iterator[str]:
    for key in KEYS:
        yield from (part for part in key.split(".")[:-1] if part != "*")


NAMES = {"api": of_the_api, "command line": of_the_command_line, "policy": of_the_policy}


@pytest.mark.parametrize("face", NAMES)
def test_every_noun_is_there(face: str) -> None:
    names = set(NAMES[face]())
    missing = {name: unknown(words_of(name)) for name in names}
    assert len(names) > 8
    assert not {name: words for name, words in missing.items() if words}, "add them to glossary.md"


def test_one_word_is_one_thing() -> None:
    times = Counter(words_of(name) for name in HEADWORDS)
    assert [words for words, number in times.items() if number > 1] == []
    nouns = {words_of(row[0]) for row in rows("Nouns")}
    kept = {words_of(row[0]) for row in rows("Words that are kept")}
    avoided = {words_of(word) for row in rows("Words to avoid") for word in row[0].split(", ")}
    assert not nouns & kept
    assert not {*ENTRIES, *PLAIN, *kept} & avoided
    assert all(len(row) == 4 and row[1] for title in ("Nouns", "Verbs") for row in rows(title))


def in_order(names: Iterable[str]) -> bool:
    lowered = [name.lower() for name in names]
    return lowered == sorted(lowered)


@pytest.mark.parametrize("title", ["Nouns", "Verbs", "Words that are kept", "Words to avoid"])
def test_the_glossary_is_in_order(title: str) -> None:
    assert in_order(row[0] for row in rows(title))


def test_a_new_noun_is_noticed() -> None:
    assert words_of("RefusedOutputFile") == ("refused", "output", "file")
    assert words_of("CePilots") == ("ce", "pilot")
    assert words_of("WMSHistory") == ("wms", "history")
    assert unknown(words_of("RefusedOutputFile")) == ()
    assert unknown(words_of("JobGizmo")) == ("gizmo",)
    assert unknown(words_of("TaskQueue")) == ()
    assert unknown(words_of("TaskSummary")) == ("task",)
