"""The policy in the making: its lines, where each table came from, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pilotage.core.policy import toml
from pilotage.core.policy.dirac_cfg.tree import Option, Section, shortened, unquoted


@dataclass(frozen=True, slots=True)
class Left:
    """Something of the configuration that did not become policy."""

    path: str
    value: str
    """Of an option; how much there is in a section."""
    line: int
    reason: str


@dataclass(slots=True)
class Draft:
    lines: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """By dotted key of the policy: the line of the configuration, for what `parse` refuses."""
    left: list[Left] = field(default_factory=list)
    tables: set[tuple[str, ...]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """What was taken, but should be known."""

    def table(self, names: Iterable[str], line: int, values: Iterable[tuple[str, str]] = ()) -> None:
        """One table of the policy: `values` are keys and TOML."""
        names = tuple(names)
        self.tables.add(names)
        self.places.setdefault(".".join(names), line)
        self.lines += ["", toml.table(*names), *(f"{name} = {value}" for name, value in values)]

    def remark(self, *texts: str) -> None:
        self.lines += ["", *(toml.comment(text) for text in texts)]

    def leave(self, option: Option, value: str, reason: str) -> None:
        """The whole value of an option, or one item of it."""
        option.used = True
        self.left.append(Left(option.path, shortened(unquoted(value)), option.line, reason))

    def leave_section(self, section: Section, reason: str) -> None:
        """The whole section; it stands in the list once."""
        options = section.count()
        section.mark()
        size = f"{options} option{'' if options == 1 else 's'}"
        self.left.append(Left(section.path, size, section.line, reason))

    def sweep(self, root: Section) -> None:
        """List what nothing has asked for: nothing is passed over silently."""
        touched = _touched(root)
        waiting = [root]
        while waiting:
            section = waiting.pop()
            for option in section.options.values():
                if not option.used:
                    self.leave(option, option.value, "not understood")
            for below in section.sections.values():
                if id(below) in touched:
                    waiting.append(below)
                else:
                    self.leave_section(below, "nothing of it is part of a policy")
        self.left.sort(key=lambda one: one.line)


def _touched(root: Section) -> set[int]:
    """Sections of which something was used, or that were looked at themselves."""
    touched: set[int] = set()
    for section in reversed(list(root.walk())):
        used = section.used or any(option.used for option in section.options.values())
        if used or any(id(below) in touched for below in section.sections.values()):
            touched.add(id(section))
    return touched


def described(section: Section) -> Iterator[str]:
    """Its content, a line for each option, for comments."""
    for part in section.walk():
        for option in part.options.values():
            yield f"  {option.path.removeprefix(section.path + '/')} = {option.value}"
