"""The text of a DIRAC configuration as sections and options that know their line.

diraccfg reads the values. It names no lines, lets the later of two equal options win, and takes stray text into the
next name: so the text is looked through here first, and what cannot be meant is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.errors import InvalidInput

DEEPEST = 64
"""So many sections inside each other; real configurations have about ten."""

MISSING = "install it: pip install 'pilotage[dirac]'; in a checkout: uv pip install --python .venv/bin/python diraccfg"


@dataclass(slots=True)
class Option:
    path: str
    value: str
    line: int
    used: bool = False
    """Taken into the policy, or listed: nothing is passed over silently."""


@dataclass(slots=True)
class Section:
    path: str
    line: int
    options: dict[str, Option] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    used: bool = False

    def find(self, path: str) -> Section | None:
        """The section below this one that `path` names, such as "Registry/Groups"."""
        found: Section | None = self
        for name in filter(None, path.split("/")):
            found = found.sections.get(name) if found else None
        return found

    def walk(self) -> Iterator[Section]:
        """The section and all below it, in the order of the text."""
        waiting = [self]
        while waiting:
            section = waiting.pop()
            yield section
            waiting += reversed(section.sections.values())

    def take(self, name: str) -> Option | None:
        """An option that is understood: it counts as used from now on."""
        option = self.options.get(name)
        if option is not None:
            option.used = True
        return option

    def text(self, name: str) -> str:
        """The value of an option without quotes around it; "" if there is none."""
        option = self.take(name)
        return unquoted(option.value) if option else ""

    def items(self, name: str) -> list[str]:
        """The value of an option as a list, each item once."""
        option = self.take(name)
        values = unquoted(option.value).split(",") if option else []
        return list(dict.fromkeys(filter(None, (unquoted(value) for value in values))))

    def number(self, name: str) -> float | None:
        """The value of an option as a number; None if there is none, `InvalidInput` with its line if it is not one."""
        option = self.take(name)
        if option is None:
            return None
        try:
            return float(unquoted(option.value))
        except ValueError:
            hint = "a comment stands on a line of its own" if "#" in option.value else ""
            message = f"{option.path} must be a number, not {shortened(option.value)!r}"
            raise InvalidInput(message, hint=hint, line=option.line, field=option.path) from None

    def mark(self) -> None:
        """All of it counts as used."""
        for section in self.walk():
            section.used = True
            for option in section.options.values():
                option.used = True

    def count(self) -> int:
        return sum(len(section.options) for section in self.walk())

    def content(self) -> dict[str, Any]:
        """Names and values alone, for comparing."""
        values: dict[str, Any] = {name: unquoted(option.value) for name, option in self.options.items()}
        return values | {name: section.content() for name, section in self.sections.items()}


def unquoted(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == '"' and '"' not in value[1:-1]:
        return value[1:-1].strip()
    return value


def shortened(value: str) -> str:
    return value if len(value) <= 60 else value[:57] + "..."


def read_tree(text: str) -> Section:
    """The root section of a configuration, or `InvalidInput` with the line of what cannot be meant."""
    lines = _Scan(text).lines
    try:
        from diraccfg import CFG
    except ImportError:
        raise InvalidInput("reading a DIRAC configuration needs the package diraccfg", hint=MISSING) from None
    try:
        plain = CFG().loadFromBuffer(text).getAsDict()
    except (KeyError, ValueError) as error:
        raise InvalidInput(f"diraccfg does not read this configuration: {error}") from None
    root = Section("", 1)
    waiting: list[tuple[Section, dict[str, Any], tuple[str, ...]]] = [(root, dict(plain), ())]
    while waiting:
        section, values, path = waiting.pop()
        for name, value in values.items():
            here = (*path, name)
            shown, line = "/".join(here), lines[here]
            if isinstance(value, dict):
                section.sections[name] = below = Section(shown, line)
                waiting.append((below, value, here))
            else:
                section.options[name] = Option(shown, str(value), line)
    return root


class _Scan:
    """One pass over the text: where each section and option stands, and all that makes it no configuration."""

    def __init__(self, text: str) -> None:
        self.lines: dict[tuple[str, ...], int] = {}
        self._options: set[tuple[str, ...]] = set()
        self._path: tuple[str, ...] = ()
        self._pending, self._since = "", 0
        for number, line in enumerate(text.split("\n"), 1):
            bad = next((letter for letter in line if letter == "\0" or "\ud800" <= letter <= "\udfff"), "")
            if bad:
                raise InvalidInput("this is not a text: it has a character that no text has", line=number)
            self._line(number, line.strip())
        self._end()

    def _end(self) -> None:
        if self._pending:
            self._stray(self._since)
        if self._path:
            message = f"section {'/'.join(self._path)} is never closed"
            raise InvalidInput(message, hint="a } is missing", line=self.lines[self._path])

    def _line(self, number: int, line: str) -> None:
        if not line or line.startswith("#"):
            return
        for index, letter in enumerate(line):
            if letter == "{":
                self._open(number)
            elif letter == "}":
                self._close(number)
            elif letter == "=" or line[index : index + 2] == "+=":
                self._option(number, line, index, adding=letter == "+")
                return
            elif not letter.isspace() or self._pending:
                self._more(number, letter)

    def _more(self, number: int, letter: str) -> None:
        """A letter of a name whose bracket or = is still to come, maybe on a later line."""
        if not self._pending:
            self._since = number
        elif self._since != number and not letter.isspace():
            self._stray(self._since)
        self._pending += letter

    def _open(self, number: int) -> None:
        line = self._since or number  # where its name stands
        self._path = (*self._path, self._name(self._pending, "section", line))
        if self._path in self.lines:
            raise self._twice("name" if self._path in self._options else "section", self._path, line)
        if len(self._path) > DEEPEST:
            raise InvalidInput(f"sections are nested more than {DEEPEST} deep", line=line)
        self.lines[self._path] = line
        self._pending, self._since = "", 0

    def _close(self, number: int) -> None:
        if self._pending:
            self._stray(self._since)
        if not self._path:
            raise InvalidInput("} closes a section, but none is open", line=number)
        self._path = self._path[:-1]

    def _option(self, number: int, line: str, index: int, *, adding: bool) -> None:
        before = line[:index]
        if "{" in before or "}" in before:
            hint = "write NAME = VALUE on a line of its own"
            raise InvalidInput("an option stands on a line with a bracket", hint=hint, line=number)
        if self._since and self._since != number:
            self._stray(self._since)
        path = (*self._path, self._name(before, "option", number))
        if adding and path not in self._options:
            message = f"+= adds to option {'/'.join(path)}, which is not set above"
            raise InvalidInput(message, hint="write = instead", line=number)
        if not adding:
            if path in self.lines:
                raise self._twice("option" if path in self._options else "name", path, number)
            self.lines[path] = number
            self._options.add(path)
        self._pending, self._since = "", 0

    def _name(self, given: str, what: str, number: int) -> str:
        name = given.strip()
        if not name:
            raise InvalidInput(f"{'{' if what == 'section' else '='} without a name before it", line=number)
        if "/" in name:
            raise InvalidInput(f"the name of {what} {shortened(name)!r} has a /", line=number)
        return name

    def _twice(self, what: str, path: tuple[str, ...], number: int) -> InvalidInput:
        message = f"{what} {'/'.join(path)} is there twice: on line {self.lines[path]} already"
        return InvalidInput(message, hint="keep one of them", line=number)

    def _stray(self, number: int) -> None:
        message = f"{shortened(self._pending.strip())!r} is neither an option nor a section"
        hint = "an option is NAME = VALUE, a section NAME { ... }; a comment has a line of its own"
        raise InvalidInput(message, hint=hint, line=number)
