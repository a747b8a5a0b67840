"""Texts that are meant to break the reader of policies. As a program: reads them, and prints how each ended."""

from __future__ import annotations

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse

MOST = 16_000_000


def filled(unit: str, size: int = MOST) -> str:
    return unit * (size // len(unit))


POLICIES = {
    "lists": lambda: "a = " + filled("[", 1_000_000),
    "tables": lambda: "a = " + filled("{a=", 1_000_000),
    "points in a table of a table": lambda: "a = {" + filled("a.", 1_000_000) + "a = 1}",
    "dotted key": lambda: "a" + filled(".a", 1_000_000) + " = 1",
    "dotted header": lambda: "[a" + filled(".a", 1_000_000) + "]",
    "one word": lambda: "[groups]\n" + "x" * 1_000_000,
    "one long key": lambda: "[groups]\n" + "x" * 1_000_000 + " = 1",
    "one long line": lambda: "[grups]\n[" + "x " * 500_000,
    "spaces and points": lambda: "[grups]\n" + " ." * 500_000 + "\n",
    "quotes": lambda: "[grups]\n" + "''" * 300_000 + "\n",
    "tables of arrays": lambda: filled("[[limits]]\n", 500_000),
    "many users in no group": lambda: (
        "[groups]\n" + "".join(f"[users.u{n}]\ngroups=[]\n" for n in range(50_000))
    ),
    "many groups and users": lambda: (
        "".join(f"[groups.g{n}]\n[users.u{n}]\ngroups=['g{n}']\n" for n in range(20_000)) + "x=1"
    ),
    "a wrong key after them": lambda: (
        filled('[[limits]]\nattribute="owner"\nvalue="a"\nrunning=1\n', 500_000) + "x=1"
    ),
    "long integer": lambda: "a = " + "9" * 1_000_000,
    "long hexadecimal": lambda: "a = 0x" + "f" * 1_000_000,
    "lone surrogate": lambda: "a = '\ud800'",
    "unclosed text": lambda: 'a = """' + filled("\\\\", 1_000_000),
    "more than can be a policy": lambda: filled("# comment\n"),
}


def main() -> None:
    for name, text in POLICIES.items():
        print(name, end=": ", flush=True)
        try:
            parse(text())  # type: ignore[no-untyped-call]
        except InvalidInput as error:
            print("refused" if len(str(error)) < 40_000 else "refused at length", flush=True)
        else:
            print("accepted", flush=True)


if __name__ == "__main__":
    main()
