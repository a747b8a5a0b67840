"""Parses a DIRAC configuration into sections and options with their lines.

diraccfg reads the values. But it reports no lines, lets the last of two equal options win, and adds stray text to the
next name. So the text is scanned here first, and such mistakes are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.errors import InvalidInput

MAX_DEPTH = 64
"""Maximum nesting of sections; real configurations have about ten levels."""

MISSING = "install it: pip install 'pilotage[dirac]'; in a checkout: uv pip install --python .venv/bin/python diraccfg"


@dataclass(slots=True)
class Option:
    path: str
    value: str
    line: int
    used: bool = False
    """Whether the option was taken into the policy or listed as omitted."""


@dataclass(slots=True)
class Section:
    path: str
    line: int
    options: dict[str, Option] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    used: bool = False

    def find(self, path: str) -> Section | None:
        """The section at `path` below this section, such as "Registry/Groups"."""
        section: Section | None = self
        for name in filter(None, path.split("/")):
            section = section.sections.get(name) if section else None
        return section

    def walk(self) -> Iterator[Section]:
        """The section and all sections below, in the order of the text."""
        pending = [self]
        while pending:
            section = pending.pop()
            yield section
            pending += reversed(section.sections.values())

    def take(self, name: str) -> Option | None:
        """The option with this name, marked as used."""
        option = self.options.get(name)
        if option is not None:
            option.used = True
        return option

    def text(self, name: str) -> str:
        """The value of an option without quotes; "" if the option is missing."""
        option = self.take(name)
        return unquoted(option.value) if option else ""

    def items(self, name: str) -> list[str]:
        """The value of an option as a list without duplicates."""
        option = self.take(name)
        values = unquoted(option.value).split(",") if option else []
        return list(dict.fromkeys(filter(None, (unquoted(value) for value in values))))

    def number(self, name: str) -> float | None:
        """The value of an option as a number; None if the option is missing; `InvalidInput` if it is not a number."""
        option = self.take(name)
        if option is None:
            return None
        try:
            return float(unquoted(option.value))
        except ValueError:
            hint = "put the comment on a line of its own" if "#" in option.value else ""
            message = f"{option.path} must be a number, not {shortened(option.value)!r}"
            raise InvalidInput(message, hint=hint, line=option.line, field=option.path) from None

    def mark(self) -> None:
        """Mark the section and everything below as used."""
        for section in self.walk():
            section.used = True
            for option in section.options.values():
                option.used = True

    def count(self) -> int:
        return sum(len(section.options) for section in self.walk())

    def content(self) -> dict[str, Any]:
        """Names and values without lines, for comparison."""
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
    """The root section of a configuration; raises `InvalidInput` with the line of a mistake."""
    lines = _Scan(text).lines
    try:
        from diraccfg import CFG
    except ImportError:
        raise InvalidInput(
            "the package diraccfg is required to read a DIRAC configuration", hint=MISSING
        ) from None
    try:
        plain = CFG().loadFromBuffer(text).getAsDict()
    except (KeyError, ValueError) as error:
        raise InvalidInput(f"diraccfg cannot read this configuration: {error}") from None
    root = Section("", 1)
    pending: list[tuple[Section, dict[str, Any], tuple[str, ...]]] = [(root, dict(plain), ())]
    while pending:
        section, values, path = pending.pop()
        for name, value in values.items():
            here = (*path, name)
            shown, line = "/".join(here), lines[here]
            if isinstance(value, dict):
                section.sections[name] = below = Section(shown, line)
                pending.append((below, value, here))
            else:
                section.options[name] = Option(shown, str(value), line)
    return root


class _Scan:
    """Scans the text once: records the line of each section and option, and refuses syntax errors."""

    def __init__(self, text: str) -> None:
        self.lines: dict[tuple[str, ...], int] = {}
        self._options: set[tuple[str, ...]] = set()
        self._path: tuple[str, ...] = ()
        self._pending, self._since = "", 0
        for number, line in enumerate(text.split("\n"), 1):
            bad = next((char for char in line if char == "\0" or "\ud800" <= char <= "\udfff"), "")
            if bad:
                raise InvalidInput("the configuration contains a character that is not text", line=number)
            self._line(number, line.strip())
        self._end()

    def _end(self) -> None:
        if self._pending:
            self._stray(self._since)
        if self._path:
            message = f"section {'/'.join(self._path)} is never closed"
            raise InvalidInput(message, hint="add the missing }", line=self.lines[self._path])

    def _line(self, number: int, line: str) -> None:
        if not line or line.startswith("#"):
            return
        for index, char in enumerate(line):
            if char == "{":
                self._open(number)
            elif char == "}":
                self._close(number)
            elif char == "=" or line[index : index + 2] == "+=":
                self._option(number, line, index, adding=char == "+")
                return
            elif not char.isspace() or self._pending:
                self._more(number, char)

    def _more(self, number: int, char: str) -> None:
        """Adds a character to a name; its { or = may follow on a later line."""
        if not self._pending:
            self._since = number
        elif self._since != number and not char.isspace():
            self._stray(self._since)
        self._pending += char

    def _open(self, number: int) -> None:
        line = self._since or number  # the line of its name
        self._path = (*self._path, self._name(self._pending, "section", line))
        if self._path in self.lines:
            raise self._duplicate_error(
                "name" if self._path in self._options else "section", self._path, line
            )
        if len(self._path) > MAX_DEPTH:
            raise InvalidInput(f"sections are nested more than {MAX_DEPTH} levels deep", line=line)
        self.lines[self._path] = line
        self._pending, self._since = "", 0

    def _close(self, number: int) -> None:
        if self._pending:
            self._stray(self._since)
        if not self._path:
            raise InvalidInput("} without an open section", line=number)
        self._path = self._path[:-1]

    def _option(self, number: int, line: str, index: int, *, adding: bool) -> None:
        before = line[:index]
        if "{" in before or "}" in before:
            hint = "write NAME = VALUE on a line of its own"
            raise InvalidInput("an option is on the same line as a bracket", hint=hint, line=number)
        if self._since and self._since != number:
            self._stray(self._since)
        path = (*self._path, self._name(before, "option", number))
        if adding and path not in self._options:
            message = f"+= needs the option {'/'.join(path)} to be set above"
            raise InvalidInput(message, hint="use = instead", line=number)
        if not adding:
            if path in self.lines:
                raise self._duplicate_error("option" if path in self._options else "name", path, number)
            self.lines[path] = number
            self._options.add(path)
        self._pending, self._since = "", 0

    def _name(self, given: str, kind: str, number: int) -> str:
        name = given.strip()
        if not name:
            raise InvalidInput(f"{'{' if kind == 'section' else '='} without a name before it", line=number)
        if "/" in name:
            raise InvalidInput(f"the name of the {kind} {shortened(name)!r} contains a /", line=number)
        return name

    def _duplicate_error(self, kind: str, path: tuple[str, ...], number: int) -> InvalidInput:
        message = f"{kind} {'/'.join(path)} is given twice: first on line {self.lines[path]}"
        return InvalidInput(message, hint="remove one of them", line=number)

    def _stray(self, number: int) -> None:
        message = f"{shortened(self._pending.strip())!r} is neither an option nor a section"
        hint = "write options as NAME = VALUE, sections as NAME { ... }, and comments on lines of their own"
        raise InvalidInput(message, hint=hint, line=number)
