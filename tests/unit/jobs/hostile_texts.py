"""Texts that are meant to break a parser. As a program: reads those of one kind, and prints how each ended."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pilotage.core.classads import parse_ad, parse_expression
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.parsers import MAX_TEXT, from_json, from_yaml

# As many characters as a description may have; `HALF_MILLION` where each of them is worth a node.
MOST = MAX_TEXT - 100
HALF_MILLION = 500_000


def filled(unit: str, size: int = MOST) -> str:
    return unit * (size // len(unit))


def nested(opening: str, closing: str, depth: int) -> str:
    return opening * depth + closing * depth


YAML = {
    "flow lists": lambda: "[" * 50_000,
    "flow lists, most": lambda: filled("["),
    "flow lists, closed": lambda: nested("[", "]", 1_000_000),
    "flow mappings": lambda: filled("{a: "),
    "flow keys": lambda: filled("{? "),
    "block lists": lambda: filled("- "),
    "block keys": lambda: filled("? "),
    "block mappings": lambda: "".join(" " * depth + "a:\n" for depth in range(5000)),
    "below a name": lambda: "executable: x\narguments: " + filled("["),
    "anchors": lambda: "".join(f"&a{number} [" for number in range(HALF_MILLION)),
    "aliases of aliases": lambda: "a: &a [1]\nb: &b [*a, *a]\nc: [*b, *b]",
    "tag directives": lambda: "".join(f"%TAG !a{n}! tag:x\n" for n in range(200_000)) + "---\na: 1",
    "documents": lambda: filled("---\n"),
    "one word": lambda: filled("x"),
    "spaces": lambda: filled(" "),
    "unclosed text": lambda: 'executable: "' + filled("é", 8_000_000),
    "lone surrogate": lambda: "executable: \ud800",
    "NUL": lambda: "executable: \0",
    "names": lambda: "".join(f"k{number}: 1\n" for number in range(200_000)),
    "one name twice": lambda: "executable: a\n" * 200_000,
    "long integer": lambda: "user_priority: " + "9" * 1_000_000,
    "long real": lambda: "user_priority: 1." + "9" * 1_000_000,
    "colons": lambda: filled(":"),
    "flow names": lambda: "{" + filled("a,", HALF_MILLION) + "}",
}
JSON = {
    "lists": lambda: filled("["),
    "lists, closed": lambda: nested("[", "]", 1_000_000),
    "mappings": lambda: filled('{"a":'),
    "below a name": lambda: '{"executable": "x", "arguments": ' + filled("["),
    "pairs of brackets": lambda: "[" + filled("[],", HALF_MILLION) + "[]]",
    "a list in a text": lambda: '"' + filled("[") + '"',
    "unclosed text": lambda: '["' + filled("\\\\["),
    "backslashes": lambda: '"' + filled("\\"),
    "one name twice": lambda: "{" + "".join(f'"k{n}":1,' for n in range(HALF_MILLION)) + '"k":1,"k":1}',
    "long integer": lambda: '{"user_priority": ' + "9" * 1_000_000 + "}",
    "long real": lambda: '{"user_priority": 1e999}',
    "not a number": lambda: '{"user_priority": NaN}',
    "lone surrogate": lambda: '{"executable": "\\ud800"}',
}
JDL = {
    "lists": lambda: "a = " + filled("{"),
    "ads": lambda: filled("[a = "),
    "parentheses": lambda: "a = " + filled("("),
    "signs": lambda: "a = " + filled("- "),
    "selections": lambda: "a = a" + filled(".a"),
    "subscripts": lambda: "a = a" + filled("[0]"),
    "alternatives": lambda: "a = 1" + filled(" ?: 1"),
    "conditionals": lambda: "a = " + filled("1 ? 1 : "),
    "calls": lambda: "a = " + filled("f("),
    "operators": lambda: "a = 1" + filled("+1", HALF_MILLION // 2),
    "mixed operators": lambda: "a = 1" + filled("*1+1", HALF_MILLION // 2),
    "items": lambda: "a = {1" + filled(",1", HALF_MILLION) + "}",
    "semicolons": lambda: filled(";", HALF_MILLION),
    "definitions": lambda: filled("a=1;\n", HALF_MILLION),
    "dotted name": lambda: "a" + filled(".a") + " = 1",
    "comment": lambda: "/*" + filled("*"),
    "comments": lambda: filled("// \n"),
    "comment signs": lambda: filled("/*"),
    "unclosed text": lambda: 'a = "' + filled("\\\\", 4_000_000),
    "texts": lambda: "a = " + filled('"a" ', HALF_MILLION),
    "digits": lambda: "a = " + filled("1"),
    "real": lambda: "a = 1." + filled("1"),
    "lone surrogate": lambda: 'Executable = "\ud800"',
}
EXPRESSION = {
    "parentheses": lambda: filled("("),
    "deepest parentheses": lambda: nested("(", ")", 100),
    "deepest ads": lambda: "[a=" * 99 + "1" + "]" * 99 + "(",
    "deepest lists": lambda: "{" * 99 + "1" + "}" * 99 + "(",
    "signs": lambda: "-" * 60_000,
    "a pattern without end": lambda: 'regexp("' + "(x" * 1000 + '", "a") (',
}
PARSERS: dict[str, tuple[Callable[[str], object], dict[str, Callable[[], str]]]] = {
    "yaml": (from_yaml, YAML),
    "json": (from_json, JSON),
    "jdl": (parse_jdl, JDL),
    "expression": (parse_expression, EXPRESSION),
    "ad": (parse_ad, EXPRESSION),
}


def main(kind: str) -> None:
    read, cases = PARSERS[kind]
    for name, text in cases.items():
        print(name, end=": ", flush=True)
        try:
            read(text())
        except InvalidInput as error:
            print("refused" if len(str(error)) < 40_000 else "refused at length", flush=True)
        else:
            print("accepted", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
