"""Where a key stands in the text: TOML parsers tell no places."""

from __future__ import annotations

import re


def line_of(text: str, keys: list[str]) -> int | None:
    """Where `keys` stand, or the nearest table above them; best effort: tomllib tells no places."""
    places: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[{1,2})([^\[\]]+)\]", line)
        pair = re.match(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*'|\s*\.\s*)+?)\s*=", line)
        if header:
            table = _key_parts(header[2])
            if header[1] == "[[":
                table += (str(sum(path[:-1] == table for path in places)),)
            places.setdefault(table, number)
        elif pair:
            places.setdefault(table + _key_parts(pair[1]), number)
    for length in range(len(keys), 0, -1):
        found = [n for path, n in places.items() if path[:length] == tuple(keys[:length])]
        if found:
            return min(found)
    return None


def _key_parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(r"[\w-]+|\"[^\"]*\"|'[^']*'", dotted))
