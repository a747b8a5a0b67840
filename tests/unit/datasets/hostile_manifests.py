"""Manifests that are meant to break a parser. As a program: reads the texts of one kind, and prints how each ended."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pilotage.core.datasets.document import MAX_TEXT
from pilotage.core.datasets.manifest import parse_manifest
from pilotage.core.errors import InvalidInput

MOST = MAX_TEXT - 100


def filled(unit: str, size: int = MOST) -> str:
    return unit * (size // len(unit))


Cases = dict[str, Callable[[], str]]

COMMON: Cases = {
    "too long": lambda: "x" * (MAX_TEXT + 1),
    "lone surrogate": lambda: '["\ud800"]',
    "NUL": lambda: "a\0",
    "opening brackets": lambda: filled("["),
}
STRUCTURED: Cases = {
    **COMMON,
    "unknown keys": lambda: "{" + ",".join(f'"k{n}": 1' for n in range(150_000)) + "}",
    "negative sizes": lambda: (
        '{"files": [' + ",".join(f'{{"name": "f{n}", "size": -1}}' for n in range(50_000)) + "]}"
    ),
    "one name": lambda: '{"files": [' + ",".join(['"a"'] * 500_000) + "]}",
    "overlapping records": lambda: (
        '{"files": [{"name": "a", "lumis": [' + ",".join(["[1, 1, 9]"] * 10_000) + "]}]}"
    ),
    "too many records": lambda: (
        '{"files": [{"name": "a", "lumis": [' + ",".join(f"[1, {n}, {n}]" for n in range(100_000)) + "]}]}"
    ),
    "a block of every file": lambda: (
        '{"files": ['
        + ",".join(f'{{"name": "f{n}", "block": "b{n % 7}"}}' for n in range(40_000))
        + ',{"name": "f0"}]}'
    ),
    "long number": lambda: '{"events_per_file": ' + "9" * 100_000 + "}",
    "no number": lambda: '{"events_per_file": NaN}',
    "deep": lambda: '{"files": ' + "[" * 49 + "]" * 49 + "}",
}
CASES: dict[str, Cases] = {
    "json": STRUCTURED,
    "yaml": STRUCTURED | {"aliases": lambda: "a: &a [1]\nfiles: [*a, *a]", "documents": lambda: filled("---\n")},
    "toml": COMMON
    | {
        "tables": lambda: filled("[[files]]\n", 500_000),
        "dotted key": lambda: "a" + filled(".a") + " = 1",
        "one name": lambda: filled('[[files]]\nname = "a"\n', 500_000),
        "negative sizes": lambda: "".join(f'[[files]]\nname = "f{n}"\nsize = -1\n' for n in range(20_000)),
    },
    "jsonl": COMMON
    | {
        "mistakes": lambda: filled("{\n"),
        "one name": lambda: filled('"a"\n'),
        "brackets": lambda: filled("[[[[\n"),
    },
    "list": COMMON
    | {
        "one name": lambda: filled("a\n"),
        "parents": lambda: "".join(f"../{n}\n" for n in range(500_000)),
        "mixed": lambda: "/a\n" + "".join(f"b{n}\n" for n in range(500_000)),
        "slashes": lambda: filled("/"),
    },
}  # fmt: skip


def main(kind: str) -> None:
    for name, text in CASES[kind].items():
        print(name, end=": ", flush=True)
        try:
            parse_manifest(text(), kind)
        except InvalidInput as error:
            print("refused" if len(str(error)) < 40_000 else "refused at length", flush=True)
        else:
            print("accepted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
